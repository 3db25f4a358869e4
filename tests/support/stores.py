"""Builders of stored objects, stores for tests, and a hook that fails commits."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from resolute.wire.agent_link import Device
from resolute.wire.states import AllocationState, CheckpointState, ContainerState, ExperimentState, SlotKind, TaskType
from resolute_master.domain.account import Account, Limits, WindDown
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.change import Change, Counter, JournalEntry, PoolBelief
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import (
    AgentId,
    AllocationId,
    ContainerId,
    ExperimentId,
    InstanceId,
    JobId,
    PoolName,
    SessionId,
    TaskId,
    TrialId,
    UserId,
)
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.domain.usage import Usage
from resolute_master.domain.user import Session, User
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore, MemoryTables
from resolute_master.store.sql import SqlStore, open_store
from resolute_provisioner.model import Observed, OfferBelief
from support.postgres import PostgresServer

START = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    """A time in seconds after the start of the test's time."""
    return START + timedelta(seconds=seconds)


# ----------------------------------------------------------------------------------------------- stores to test with


class StoreHome:
    """A persistent place of a store, for closing and reopening."""

    async def open(self) -> Store:
        raise NotImplementedError


class MemoryHome(StoreHome):
    def __init__(self) -> None:
        self._tables = MemoryTables()

    async def open(self) -> Store:
        return MemoryStore(self._tables)


class SqliteHome(StoreHome):
    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self) -> Store:
        return await SqlStore.open(f"sqlite:///{self._path}")


class PostgresHome(StoreHome):
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> Store:
        return await open_store(self._url)


HomeFactory = Callable[[pytest.FixtureRequest], Awaitable[StoreHome]]


async def memory_home(_request: pytest.FixtureRequest) -> StoreHome:
    return MemoryHome()


async def sqlite_home(request: pytest.FixtureRequest) -> StoreHome:
    """A copy of a migrated database: a migration per test would take most of the time."""
    migrated = request.getfixturevalue("tmp_path_factory").getbasetemp() / "migrated.db"
    if not migrated.exists():
        await (await SqlStore.open(f"sqlite:///{migrated}")).close()
    path = request.getfixturevalue("tmp_path") / "master.db"
    shutil.copyfile(migrated, path)
    return SqliteHome(path)


async def postgres_home(request: pytest.FixtureRequest) -> StoreHome:
    """The same, with a template of the session's server."""
    server: PostgresServer = request.getfixturevalue("postgres")
    if not server.templates.get("migrated"):
        name = server.new_database()
        await (await open_store(server.url(name))).close()
        server.templates["migrated"] = name
    return PostgresHome(server.url(server.new_database(server.templates["migrated"])))


STORE_HOMES: dict[str, HomeFactory] = {"memory": memory_home, "postgres": postgres_home, "sqlite": sqlite_home}

STORES = [
    pytest.param("memory"),
    pytest.param("postgres", marks=pytest.mark.needs("postgres")),
    pytest.param("sqlite"),
]
"""Every implementation of the conformance suite, as parameters of a fixture."""


async def store_home(request: pytest.FixtureRequest) -> StoreHome:
    """The one that `request.param` names."""
    return await STORE_HOMES[request.param](request)


# ------------------------------------------------------------------------------------------------- failing on purpose


class CommitLost(Exception):
    """The error of a scripted commit."""


@dataclass
class CommitScript:
    """Fails commits of a `MemoryStore(hook=...)` by the sequence of the change.

    `fail_before` stores nothing. `fail_after` stores, but loses the response, as if the process was killed there.
    """

    fail_before: frozenset[int] = frozenset()
    fail_after: frozenset[int] = frozenset()

    def before_commit(self, change: Change) -> None:
        if change.journal.sequence in self.fail_before:
            raise CommitLost(f"before {change.journal.sequence}")

    def after_commit(self, change: Change) -> None:
        if change.journal.sequence in self.fail_after:
            raise CommitLost(f"after {change.journal.sequence}")


# ---------------------------------------------------------------------------------------------------------- builders


def an_entry(sequence: int) -> JournalEntry:
    return JournalEntry(
        sequence=sequence,
        at=moment(sequence),
        entropy=f"{sequence:032x}",
        commands=b'[{"n":%d}]' % sequence,
        adopted=b"{}",
        digest=f"digest-{sequence}",
    )


def a_change(sequence: int, **parts: Any) -> Change:
    return Change(journal=an_entry(sequence), **parts)


def an_experiment(id_: int = 1, *, config: dict[str, Any] | None = None, **fields: Any) -> Experiment:
    return Experiment(
        **{
            "id": ExperimentId(id_),
            "job_id": JobId(f"job-{id_}"),
            "owner": UserId(1),
            "workspace_id": 1,
            "project_id": 1,
            "name": f"experiment {id_}",
            "configuration": written(
                {"searcher": {"name": "single", "metric": "loss"}, "labels": []} if config is None else config
            ),
            "original_config": "searcher: {name: single}\n",
            "context_hash": "0" * 64,
            "state": ExperimentState.ACTIVE,
            "started_at": moment(id_),
            **fields,
        }
    )


def a_trial(id_: int = 1, experiment: int = 1, **fields: Any) -> Trial:
    return Trial(
        **{
            "id": TrialId(id_),
            "experiment_id": ExperimentId(experiment),
            "job_id": JobId(f"job-{experiment}"),
            "task_id": TaskId(f"{experiment}.request-{id_}"),
            "request_id": f"request-{id_}",
            "state": ExperimentState.ACTIVE,
            "hparams": {"lr": 0.1, "layers": [1, 2]},
            "seed": 7,
            "started_at": moment(id_),
            **fields,
        }
    )


def a_search(id_: int = 1, **fields: Any) -> Search:
    return Search(**{"id": ExperimentId(id_), "generator": (7, 12), "requested": 2, "open": 1, **fields})


def a_search_trial(search: int = 1, request: str = "request-1", **fields: Any) -> SearchTrial:
    return SearchTrial(
        **{
            "id": TaskId(f"{search}.{request}"),
            "search": ExperimentId(search),
            "request_id": request,
            "number": 0,
            **fields,
        }
    )


def a_job(experiment: int | None = 1, **fields: Any) -> Job:
    return Job(
        **{
            "id": JobId(f"job-{experiment}"),
            "kind": "EXPERIMENT",
            "name": f"experiment {experiment}",
            "owner": UserId(1),
            "workspace_id": 1,
            "project_id": 1,
            "pool": PoolName("default"),
            "priority": 42,
            "weight": 1.0,
            "max_slots": None,
            "submitted_at": START,
            "queue_position": 1.5,
            "experiment_id": None if experiment is None else ExperimentId(experiment),
            **fields,
        }
    )


def a_container(agent: str, rank: int = 0, id_: str = "") -> Container:
    return Container(
        id=ContainerId(id_ or f"container-{agent}-{rank}"),
        rank=rank,
        agent=AgentId(agent),
        slots=(0, 1),
        state=ContainerState.RUNNING,
    )


def an_allocation(id_: str = "1.request-1.1", agents: tuple[str, ...] = (), **fields: Any) -> Allocation:
    return Allocation(
        **{
            "id": AllocationId(id_),
            "task_id": TaskId(id_.rpartition(".")[0]),
            "task_type": TaskType.TRIAL,
            "job_id": JobId("job-1"),
            "pool": PoolName("default"),
            "slots_needed": 2,
            "requested_at": START,
            "state": AllocationState.RUNNING if agents else AllocationState.PENDING,
            "containers": tuple(a_container(agent, rank, f"{id_}/{rank}") for rank, agent in enumerate(agents)),
            **fields,
        }
    )


def an_account(id_: str = "pool/default", **fields: Any) -> Account:
    given: dict[str, Any] = {
        "at": START,
        "rate_per_hour": 1.25,
        "in_all": 0.1 + 0.2,
        "limits": Limits(per_day=10.0),
        "save_s": 12.5,
        "wind_down": WindDown(reason="used up", since=START, until=None),
    }
    return Account(id=id_, **{**given, **fields})


def an_agent(id_: str = "agent-1", **fields: Any) -> Agent:
    return Agent(
        **{
            "id": AgentId(id_),
            "pool": PoolName("default"),
            "slots": (Slot(device=Device(index=0, kind=SlotKind.CPU, brand="a brand", uuid="u-0")),),
            "incarnation": "first",
            "address": "10.0.0.1",
            "version": "0.1.0",
            "registered_at": START,
            "connected_at": START,
            **fields,
        }
    )


def an_instance(id_: str = "instance-1", **fields: Any) -> Instance:
    return Instance(
        **{
            "id": InstanceId(id_),
            "pool": PoolName("default"),
            "token": f"token-{id_}",
            "offer_id": "local",
            "slots": 2,
            "price_per_hour": 1.25,
            "requested_at": START,
            "observed": Observed.RUNNING,
            **fields,
        }
    )


def a_checkpoint(uuid: str = "uuid-1", trial: int = 1, experiment: int = 1, **fields: Any) -> Checkpoint:
    return Checkpoint(
        **{
            "uuid": uuid,
            "task_id": TaskId(f"{experiment}.request-{trial}"),
            "allocation_id": AllocationId(f"{experiment}.request-{trial}.1"),
            "trial_id": TrialId(trial),
            "experiment_id": ExperimentId(experiment),
            "run_id": 1,
            "state": CheckpointState.COMPLETED,
            "steps_completed": 10,
            "reported_at": START,
            "resources": {"state/": 0, "state/weights.pt": 100},
            "metadata": {"steps_completed": 10},
            **fields,
        }
    )


def a_user(id_: int = 1) -> User:
    return User(id=UserId(id_), username=f"user-{id_}", password_hash="scrypt$", modified_at=START)


def a_session(id_: str = "session-1") -> Session:
    return Session(id=SessionId(id_), user_id=UserId(1), created_at=START, expires_at=moment(3600))


def a_counter(id_: str = "experiment", value: int = 1) -> Counter:
    return Counter(id=id_, value=value)


def a_belief(id_: str = "default/local") -> PoolBelief:
    return PoolBelief(id=id_, pool="default", belief=OfferBelief(offer_id="local", launches=2, join_time_s=3))


def a_usage(owner: int = 1) -> Usage:
    fresh = Usage.none_yet(PoolName("default"), 1, UserId(owner), now=START)
    return replace(fresh, held=3, average=1 / 3, charged=0.3125, measured_at=moment(10))


def a_report(steps: int | None, metrics: dict[str, Any] | None = None, **fields: Any) -> MetricReport:
    return MetricReport(
        **{
            "trial_id": TrialId(1),
            "run_id": 1,
            "group": "training",
            "steps_completed": steps,
            "reported_at": moment(steps or 0),
            "metrics": {"loss": 0.5} if metrics is None else metrics,
            **fields,
        }
    )


def a_line(key: str, **fields: Any) -> LogRecord:
    return LogRecord(
        **{
            "key": key,
            "task_id": TaskId("task"),
            "allocation_id": AllocationId("task.1"),
            "agent_id": "agent-1",
            "container_id": "container-1",
            "rank": 0,
            "at": START,
            "level": "INFO",
            "stdtype": "stdout",
            "source": "task",
            "log": f"line {key}",
            **fields,
        }
    )


def a_mark(seconds: float, steps: int = 1, allocation: str = "1.request-1.1") -> StepMark:
    return StepMark(
        allocation_id=AllocationId(allocation), steps_completed=steps, at=moment(seconds), checkpointing_s=0.25
    )
