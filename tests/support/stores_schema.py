"""A database of an older version with rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from resolute.wire.states import AllocationState
from resolute_master.domain.account import Account, WindDown
from resolute_master.domain.change import Entity
from resolute_master.domain.ids import ExperimentId, PoolName, TaskId, TrialId
from resolute_master.domain.search import Search
from resolute_master.domain.trial import Trial
from resolute_master.store.base import LogQuery, Store
from resolute_master.store.encoding import encode_entity
from resolute_master.store.sql import schema
from resolute_provisioner.model import Observed
from support.stores import (
    a_search,
    a_search_trial,
    a_trial,
    an_account,
    an_allocation,
    an_experiment,
    an_instance,
    moment,
)

OLDER_VERSIONS = [f"{number:04}" for number in range(1, int(schema.HEAD))]


def filled_at(url: str, version: str) -> None:
    """Creates the tables of that version, and stores rows with that version's statements."""

    def work(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(schema.MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        columns = (statement for since, statement in _COLUMNS if version >= since)
        for statement in (*_ROWS, *columns):
            connection.exec_driver_sql(statement)

    if not url.startswith("postgresql"):
        engine = create_engine(url)
        with engine.begin() as connection:
            work(connection)
        engine.dispose()
        return

    async def on_server() -> None:
        remote = create_async_engine(url)
        async with remote.begin() as connection:
            await connection.run_sync(work)
        await remote.dispose()

    with ThreadPoolExecutor(1) as elsewhere:  # a loop of its own: the test may run in one
        elsewhere.submit(lambda: asyncio.run(on_server())).result()


ENDED = an_allocation("1.r.1", state=AllocationState.TERMINATED, assigned_at=moment(0), ended_at=moment(10))
GONE = an_instance("i", observed=Observed.GONE, paid_from=moment(0), paid_until=moment(10))

SEARCH = {
    "requested": 3,
    "failed": 1,
    "canceled": 0,
    "invalid": 0,
    "open": {"b": 0.25, "c": 0.5},
    "over": False,
    "generator": [7, 12],
}
"""A search in the row of an experiment before version 0009, and its trials, of which the first has failed."""


EXHAUSTED = an_account("pool/default", wind_down=WindDown(reason="used up", since=moment(5), until=None))
REASON = "rank 3 of 3"
OLD_NAMES = {"wind_down": "landing", "last_report_at": "heard_at", "reason": "verdict"}
"""Fields of bodies before version 0013."""


def _before_0013(entity: Entity) -> str:
    """The body of the entity with the names of fields of then."""
    return json.dumps({OLD_NAMES.get(name, name): value for name, value in json.loads(encode_entity(entity)).items()})


def _searched(config: Mapping[str, Any]) -> tuple[str, ...]:
    experiment = json.loads(encode_entity(an_experiment(7, config=dict(config)))) | {"searcher": SEARCH}
    statements = [
        "INSERT INTO experiments (id, state, archived, owner, workspace_id, project_id, name, description, started_at, "
        f"progress, body) VALUES (7, 'ACTIVE', false, 1, 1, 1, 'e', '', 0, 0.5, '{json.dumps(experiment)}')"
    ]
    for number, request in enumerate("abc", start=11):
        trial = _before_0013(
            a_trial(number, experiment=7, request_id=request, task_id=f"7.{request}", last_report_at=moment(number))
        )
        statements.append(
            "INSERT INTO trials (id, experiment_id, task_id, state, started_at, steps_completed, restarts, body) VALUES "
            f"({number}, 7, '7.{request}', 'ACTIVE', 0, 0, 0, '{trial}')"
        )
    return tuple(statements)


def taken_over(reason: str = "") -> dict[str, Any]:
    """The present rows of that search, with why its first trial ended."""
    rows = [
        a_search_trial(7, "a", number=0, open=False, length=9, reason=reason),
        a_search_trial(7, "b", number=1, progress=250_000, length=9),
        a_search_trial(7, "c", number=2, progress=500_000, length=9),
    ]
    search = a_search(7, generator=(7, 12), requested=3, open=2, failed=1, progress=750_000)
    return {"search": [search], "trials": rows}


def _kept_searches() -> tuple[str, ...]:
    """The same search in the format since version 0009."""
    found = taken_over(REASON)
    (search,) = found["search"]
    return (
        f"INSERT INTO searches (id, body) VALUES (7, '{encode_entity(search).decode()}')",
        *(
            f"INSERT INTO search_trials (id, search, body) VALUES ('{each.id}', 7, '{_before_0013(each)}')"
            for each in found["trials"]
        ),
    )


_METRIC = (
    "INSERT INTO metrics (trial_id, run_id, metric_group, steps_completed, reported_at, archived, metrics) "
    "VALUES (1, 1, '{group}', {steps}, {at}, false, '{{\"loss\":{at}}}')"
)

_ROWS = (
    *_searched({"searcher": {"name": "random", "metric": "loss", "max_trials": 3, "max_length": {"batches": 9}}}),
    _METRIC.format(group="training", steps=1, at=10),
    _METRIC.format(group="training", steps=2, at=20),
    _METRIC.format(group="gpu", steps="NULL", at=30),
    "INSERT INTO logs (key, task_id, agent_id, container_id, at, level, stdtype, source, log) "
    "VALUES ('k', 'task', 'a', 'c', 40, 'INFO', 'stdout', 'task', 'a line')",
    "INSERT INTO settings (name, value) VALUES ('cluster_id', '\"an id\"')",
    "INSERT INTO allocations (id, task_id, attempt, ended, assigned_at, body) VALUES "
    f"('1.r.1', '1.r', 1, true, 0, '{encode_entity(ENDED).decode()}')",
    "INSERT INTO allocation_agents (agent_id, allocation_id) VALUES ('agent-1', '1.r.1')",
    f"INSERT INTO instances (id, over, requested_at, body) VALUES ('i', true, 0, '{encode_entity(GONE).decode()}')",
)

_COLUMNS = (
    ("0006", f"UPDATE allocations SET ended_at = {moment(10).timestamp() * 1_000_000:.0f}"),
    ("0007", "UPDATE allocations SET pool = 'default'"),
    ("0006", f"UPDATE instances SET paid_until = {moment(10).timestamp() * 1_000_000:.0f}"),
    ("0007", "UPDATE allocations SET pool = 'default'"),
    ("0006", f"INSERT INTO accounts (id, body) VALUES ('{EXHAUSTED.id}', '{_before_0013(EXHAUSTED)}')"),
    *(("0009", statement) for statement in _kept_searches()),
    (
        "0010",
        "INSERT INTO metric_chunks (trial_id, metric_group, first_step, last_step, reports, preceding, body) VALUES "
        """(1, 'training', 1, 2, 2, 0, '{"loss":["number",20,2,10.0,1,20.0,2,30.0]}')""",
    ),
    *(
        (
            "0011",
            "INSERT INTO hyperparameters (trial_id, name, experiment_id, number, text) VALUES "
            f"({trial}, 'lr', 7, 0.1, '0.1'), ({trial}, 'layers', 7, NULL, 'two')",
        )
        for trial in (11, 12, 13)
    ),
)
"""Versions that added a column, and the values of the new column."""


def filled_rows(version: str) -> dict[str, Any]:
    """The expected result of `migrated_rows` after an upgrade of the rows of `filled_at`."""
    return {
        "training": [(1, {"loss": 10}), (2, {"loss": 20})],
        "chunks": {(1, "training"): [(1, 2, 2, 30.0)]},
        "gpu": [{"loss": 30}],
        "logs": ["a line"],
        "id": "an id",
        "ended": ["1.r.1", None],
        "of_pool": ["1.r.1"],
        "gone": ["i", None],
        "hyperparameters": {"lr": True, "layers": False},
        "accounts": [EXHAUSTED] if version >= "0006" else [],
        "last_reports": [moment(number) for number in (11, 12, 13)],
        **taken_over(REASON if version >= "0009" else ""),
    }


async def migrated_rows(store: Store) -> dict[str, Any]:
    trial = TrialId(1)
    loaded = (await store.load()).entities
    return {
        "training": [(row.steps_completed, row.metrics) for row in await store.metrics(trial, "training")],
        "chunks": {
            key: [(each.first_step, each.last_step, each.reports, each.names["loss"].total) for each in chunks]
            for key, chunks in (await store.metric_chunks([trial])).items()
        },
        "gpu": [row.metrics for row in await store.metrics(trial, "gpu")],
        "logs": [line.log for line in await store.logs(LogQuery(task_ids=(TaskId("task"),)))],
        "id": await store.setting("cluster_id"),
        "ended": [
            next((each.id for each in await store.allocations_on_agents(["agent-1"], since=moment(at))), None)
            for at in (9, 10)
        ],
        "of_pool": [each.id for each in await store.ended_allocations(PoolName("default"), 9)],
        "search": [each for each in loaded if isinstance(each, Search)],
        "accounts": [each for each in loaded if isinstance(each, Account)],
        "last_reports": [each.last_report_at for each in loaded if isinstance(each, Trial)],
        "trials": list(await store.search_rows(ExperimentId(7))),
        "hyperparameters": dict(await store.hyperparameter_names(None)),
        "gone": [next((each.id for each in await store.instances(since=moment(at))), None) for at in (9, 10)],
    }
