"""What every store promises of searches by the filter language: the same rows in the same order as any other."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.change import Entity
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, PoolName, TrialId, UserId
from resolute_master.domain.trial import Trial, Validation
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from resolute_master.store.search_filter import (
    FIELDS,
    Group,
    Kind,
    SearchQuery,
    Statistic,
    Table,
    parse_filter,
    parse_sort,
)
from support.stores import STORES, a_change, a_checkpoint, a_job, a_report, a_trial, an_experiment, moment, store_home

NAMES = {1: "ada", 2: "Grace"}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = await (await store_home(request)).open()
    yield store
    await store.close()


def _entities() -> list[Entity]:
    """Twelve experiments of one to three trials, with something missing here and there."""
    choice = random.Random(1)
    found: list[Entity] = []
    trial = 0
    for number in range(1, 13):
        trials = choice.randrange(1, 4) if number != 12 else 0
        best = trial + 1 if number % 3 and trials else None
        found.append(
            an_experiment(
                number,
                config={
                    "searcher": {"name": choice.choice(["single", "random"]), "metric": choice.choice(["loss", "f1"])},
                    "labels": [],
                },
                name=choice.choice(["Ångström", "alpha", "ALPHA 2", "50%_of"]),
                description=choice.choice(["", "why"]),
                labels=tuple(choice.sample(["red", "blue", "Green"], choice.randrange(3))),
                state=choice.choice([ExperimentState.ACTIVE, ExperimentState.COMPLETED, ExperimentState.PAUSED]),
                owner=UserId(choice.choice([1, 2, 3])),
                project_id=choice.choice([1, 2]),
                archived=number == 7,
                parent_id=ExperimentId(1) if number in (4, 5) else None,
                ended_at=moment(number * 10) if number % 2 else None,
                best_validation=choice.choice([0.5, 0.25, None, float("nan")]),
                best_trial=None if best is None else TrialId(best),
                external_id="ours" if number == 3 else None,
            )
        )
        found.append(a_job(number, pool=PoolName(choice.choice(["a", "b"]))))
        for _ in range(trials):
            trial += 1
            found.append(_trial(choice, trial, number))
            if choice.random() < 0.5:
                found.append(a_checkpoint(f"c{trial}", trial=trial, experiment=number))
    return found


def _trial(choice: random.Random, trial: int, experiment: int) -> Trial:
    hparams: dict[str, Any] = {"lr": choice.choice([0.1, 0.01, 1, "auto", True]), "opt": {"name": "adam", "b": [1, 2]}}
    if choice.random() < 0.5:
        hparams["layers"] = choice.randrange(4)
    best = Validation(steps_completed=1, metric=choice.random(), metrics={}, at=moment(1))
    return a_trial(
        trial,
        experiment=experiment,
        request_id=f"r{trial}",
        task_id=f"{experiment}.r{trial}",
        hparams=hparams,
        best_validation=best if choice.random() < 0.7 else None,
        ended_at=moment(trial * 7) if trial % 2 else None,
        external_id="run" if trial == 2 else None,
    )


async def _fill(store: Store) -> None:
    entities = _entities()
    await store.commit(a_change(1, upserts=tuple(entities)))
    choice = random.Random(2)
    values: list[Any] = [0.5, 0.25, 3, "NaN", "text", None, 7.5]
    for trial in (each for each in entities if isinstance(each, Trial)):
        for group in ("training", "validation"):
            steps = range(1, choice.randrange(2, 6))
            reports = [
                a_report(step, {"loss": choice.choice(values), "a b": choice.random()}, trial_id=trial.id, group=group)
                for step in steps
            ]
            await store.append_metrics(reports)


def _columns(table: Table) -> list[str]:
    return [
        *FIELDS[table],
        "hp.lr",
        "hp.opt.name",
        "hp.opt.b",
        "hp.layers",
        "hp.absent",
        *(f"validation.loss.{each}" for each in Statistic),
        "training.a b.mean",
        "training.absent.last",
    ]


def _field(choice: random.Random, table: Table) -> dict[str, Any]:
    name = choice.choice(_columns(table))
    kind = FIELDS[table].get(name, Kind.NUMBER)
    if name.startswith("hp."):
        kind = choice.choice([Kind.NUMBER, Kind.TEXT])
    operators = {
        Kind.NUMBER: ["=", "!=", "<", "<=", ">", ">=", "isEmpty", "notEmpty"],
        Kind.DATE: ["=", "!=", "<", "<=", ">", ">=", "isEmpty", "notEmpty"],
        Kind.TEXT: ["=", "!=", "contains", "notContains", "isEmpty", "notEmpty"],
        Kind.LABELS: ["=", "!=", "contains", "notContains", "isEmpty", "notEmpty"],
        Kind.STATE: ["=", "!="],
    }[kind]
    value: Any = {
        Kind.NUMBER: choice.choice([0, 0.1, 0.25, 1, 3, 10]),
        Kind.DATE: moment(choice.randrange(120)).isoformat(),
        Kind.TEXT: choice.choice(["a", "alpha", "ÅNG", "0.1", "adam", "%", "_", "loss", "ours", "true", "ada"]),
        Kind.LABELS: choice.choice(["red", "re", "green"]),
        Kind.STATE: choice.choice(["STATE_PAUSED", "RUNNING", "COMPLETED"]),
    }[kind]
    return {"kind": "field", "columnName": name, "operator": choice.choice(operators), "value": value}


def _group(choice: random.Random, table: Table, depth: int = 2) -> dict[str, Any]:
    children = [
        _group(choice, table, depth - 1) if depth and choice.random() < 0.3 else _field(choice, table)
        for _ in range(choice.randrange(3) if depth < 2 else choice.randrange(1, 3))
    ]
    return {"kind": "group", "conjunction": choice.choice(["and", "or"]), "children": children}


def _query(choice: random.Random, table: Table) -> SearchQuery:
    plain = {"filterGroup": _group(choice, table), "showArchived": choice.random() < 0.5}
    tree, archived = parse_filter(json.dumps(plain), table)
    names = choice.sample(_columns(table), choice.randrange(3))
    sort = ",".join(f"{name}={choice.choice(['asc', 'desc'])}" for name in names)
    return SearchQuery(
        filter=tree,
        sort=parse_sort(sort, table),
        archived=None if archived else False,
        project_id=choice.choice([None, None, 1]),
        offset=choice.choice([0, 0, 2]),
        limit=choice.choice([100, 3]),
        usernames=NAMES,
    )


async def test_every_store_finds_the_same(store: Store) -> None:
    memory = MemoryStore()
    for each in (store, memory):
        await _fill(each)
    choice, found = random.Random(3), 0
    for _ in range(100):
        query = _query(choice, Table.EXPERIMENTS)
        one, two = await store.search_experiments(query), await memory.search_experiments(query)
        assert ([e.id for e in one.rows], one.total) == ([e.id for e in two.rows], two.total), query
        query = _query(choice, Table.RUNS)
        runs, same = await store.search_trials(query), await memory.search_trials(query)
        assert ([t.id for t in runs.rows], runs.total) == ([t.id for t in same.rows], same.total), query
        found += 0 < one.total < 12
    assert found > 20, "the filters told rows apart"


async def _ids(store: Store, field: dict[str, Any] | None = None, sort: str = "") -> list[int]:
    children = [] if field is None else [{"kind": "field", **field}]
    tree, _ = parse_filter(json.dumps({"filterGroup": {"kind": "group", "children": children}}), Table.EXPERIMENTS)
    query = SearchQuery(filter=tree, sort=parse_sort(sort, Table.EXPERIMENTS), usernames=NAMES)
    return [each.id for each in (await store.search_experiments(query)).rows]


async def test_hyperparameters_and_metrics_are_searched_by_their_values(store: Store) -> None:
    for number, (lr, loss) in enumerate(((0.1, 3.0), (0.01, 1.0), (0.001, 2.0)), 1):
        trial = a_trial(number, experiment=number, hparams={"lr": lr}, request_id="r", task_id=f"{number}.r")
        experiment = an_experiment(number, best_trial=TrialId(number))
        await store.commit(a_change(number, upserts=(experiment, trial)))
        await store.append_metrics([a_report(1, {"loss": loss}, trial_id=trial.id, group="validation")])
    less = {"columnName": "hp.lr", "operator": "<", "value": 0.05}
    assert await _ids(store, less, "validation.loss.min=asc") == [2, 3]
    assert await _ids(store, less, "validation.loss.min=desc") == [3, 2]
    assert await _ids(store, {"columnName": "validation.loss.last", "operator": ">=", "value": 2}) == [1, 3]
    assert await _ids(store, None, "hp.lr=asc") == [3, 2, 1]
    await store.append_metrics([a_report(2, {"loss": 0.5}, trial_id=TrialId(1), group="validation")])
    assert await _ids(store, None, "validation.loss.min=asc") == [1, 2, 3]


async def test_what_a_project_has_to_search_by(store: Store) -> None:
    await _fill(store)
    names = await store.hyperparameter_names(None)
    assert (names["layers"], names["lr"], names["opt.name"]) == (True, False, False)
    assert set(await store.hyperparameter_names(1)) <= set(names)
    assert ("training", "a b", "number") in await store.metric_names(None)
    assert await store.metric_names(99) == () and await store.labels(99) == ()
    assert set(await store.labels(None)) == {"red", "blue", "Green"}


async def test_the_ranges_of_what_the_best_trials_of_a_project_reached(store: Store) -> None:
    memory = MemoryStore()
    for each in (store, memory):
        await _fill(each)
    found = await store.result_ranges(1)
    assert found == await memory.result_ranges(1) and len(found) > 8
    best = [e.best_validation for e in _entities() if isinstance(e, Experiment) and e.project_id == 1]
    told = [value for value in best if value is not None and value == value]
    assert found["searcherMetricsVal"] == (min(told), max(told))
    ends = (await _smallest_loss_of_first(store, "asc"), await _smallest_loss_of_first(store, "desc"))
    assert found["validation.loss.min"] == ends, "as a search orders them"
    assert await store.result_ranges(99) == {}


async def _smallest_loss_of_first(store: Store, direction: str) -> float:
    """Smallest loss of the experiment of project 1 that comes first in this direction."""
    everything, sort = Group(any=False, parts=()), parse_sort(f"validation.loss.min={direction}", Table.EXPERIMENTS)
    page = await store.search_experiments(SearchQuery(filter=everything, sort=sort, project_id=1, usernames={}))
    assert page.rows[0].best_trial is not None
    ((chunk,),) = (await store.metric_chunks([page.rows[0].best_trial], ["validation"])).values()
    return chunk.names["loss"].low


async def test_the_metadata_of_runs_of_a_project(store: Store) -> None:
    metadata: list[dict[str, Any]] = [{"a": "x", "b": 1}, {"a": None}, {"b": "y"}, {"a": {"c": ["z"]}}]
    trials = [a_trial(n, metadata=each, request_id=f"r{n}", task_id=f"1.r{n}") for n, each in enumerate(metadata, 1)]
    other = a_trial(9, experiment=2, metadata={"a": "elsewhere"}, request_id="r", task_id="2.r")
    entities = (an_experiment(1, project_id=1), an_experiment(2, project_id=2), *trials, other)
    await store.commit(a_change(1, upserts=entities))
    assert sorted(await store.run_metadata(1, "a"), key=str) == [metadata[3], metadata[0]][::-1]
    assert await store.run_metadata(1, "absent") == ()


async def test_the_hyperparameters_of_a_deleted_trial_are_forgotten(store: Store) -> None:
    await store.commit(a_change(1, upserts=(an_experiment(1), a_trial(1, hparams={"lr": 1}))))
    await store.commit(a_change(2, deletes=(("trial", 1),)))
    assert await store.hyperparameter_names(None) == {}


async def test_trials_and_experiments_are_found_by_their_ids(store: Store) -> None:
    await store.commit(a_change(1, upserts=(an_experiment(1), an_experiment(2), a_trial(1), a_trial(2))))
    assert [each.id for each in await store.trials([2, 1, 9])] == [1, 2]
    assert [each.id for each in await store.experiments([2, 9])] == [2]
