"""The tables. An entity is one row: the columns that queries need, and all of it as canonical JSON in `body`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Entity
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial, Validation
from resolute_master.store.encoding import kind_of
from resolute_master.store.listing import attempt_number, storable_text, with_nul_kept
from resolute_master.store.search_filter import flat_hyperparameters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Moment(TypeDecorator[datetime]):
    """An aware datetime as microseconds since 1970: exact, and in the same order, in every database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """A row of an older version may hold a moment that no time of ours can: it is read as the nearest that can."""
        if value is None:
            return None
        try:
            return EPOCH + timedelta(microseconds=value)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC) if value < 0 else datetime.max.replace(tzinfo=UTC)


class StoredText(TypeDecorator[str]):
    """Text without what a database refuses: an odd character in someone's label must not fail a commit."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable_text(value)


class NameText(StoredText):
    """Text that is compared and sorted by its code points, whatever the collation of the database server."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text(collation="C") if dialect.name == "postgresql" else Text())


class LogText(StoredText):
    """A line of a log, which is read with its original NULs."""

    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else super().process_bind_param(with_nul_kept(value), dialect)


RowNumber = BigInteger().with_variant(Integer(), "sqlite")
"""A number that the database gives; only the type INTEGER does so in SQLite."""

metadata = MetaData()

# --------------------------------------------------------------------------------------------------------- entities

experiments = Table(
    "experiments",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("state", StoredText, nullable=False, index=True),
    Column("archived", Boolean, nullable=False),
    Column("owner", BigInteger, nullable=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("project_id", BigInteger, nullable=False),
    Column("name", NameText, nullable=False),
    Column("description", NameText, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("progress", Float, nullable=False),
    Column("parent_id", BigInteger),
    Column("best_validation", Float),
    Column("best_trial_id", BigInteger),
    Column("body", StoredText, nullable=False),
    Index("ix_experiments_project_id_state_started_at_id", "project_id", "state", "started_at", "id"),
)

experiment_labels = Table(
    "experiment_labels",
    metadata,
    Column("experiment_id", BigInteger, primary_key=True, autoincrement=False),
    Column("label", NameText, primary_key=True),
)

trials = Table(
    "trials",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("experiment_id", BigInteger, nullable=False, index=True),
    Column("task_id", NameText, nullable=False),
    Column("state", StoredText, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("steps_completed", BigInteger, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("best_validation", Float),
    Column("latest_validation", Float),
    Column("body", StoredText, nullable=False),
)

hyperparameters = Table(
    "hyperparameters",
    metadata,
    Column("trial_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", NameText, primary_key=True),
    Column("experiment_id", BigInteger, nullable=False),
    Column("number", Float),
    Column("text", NameText, nullable=False),
    Index("ix_hyperparameters_name_number", "name", "number", "experiment_id", "trial_id"),
    Index("ix_hyperparameters_experiment_id_name_number", "experiment_id", "name", "number"),
)
"""By which trials are searched: each of a trial's, nested ones by all their names."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("experiment_id", BigInteger, index=True),
    Column("pool", NameText, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("body", StoredText, nullable=False),
)

allocations = Table(
    "allocations",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("task_id", NameText, nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("ended", Boolean, nullable=False, index=True),
    Column("assigned_at", Moment),
    Column("ended_at", Moment, index=True),
    Column("pool", NameText),
    Column("body", StoredText, nullable=False),
    Index("ix_allocations_pool_ended_at", "pool", "ended_at"),
)

allocation_agents = Table(
    "allocation_agents",
    metadata,
    Column("agent_id", NameText, primary_key=True),
    Column("allocation_id", NameText, primary_key=True),
)

agents = Table(
    "agents",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

instances = Table(
    "instances",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("over", Boolean, nullable=False, index=True),
    Column("requested_at", Moment, nullable=False),
    Column("paid_until", Moment, index=True),
    Column("body", StoredText, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("uuid", NameText, primary_key=True),
    Column("experiment_id", BigInteger, nullable=False, index=True),
    Column("trial_id", BigInteger, nullable=False, index=True),
    Column("state", StoredText, nullable=False),
    Column("steps_completed", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("body", StoredText, nullable=False),
)

users = Table(
    "users",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("body", StoredText, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

beliefs = Table(
    "beliefs",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

templates = Table(
    "templates",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

external_experiments = Table(
    "external_experiments",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

usages = Table(
    "usages",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("body", StoredText, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("body", StoredText, nullable=False),
)

pool_bindings = Table(
    "pool_bindings",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

accounts = Table(
    "accounts",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

searches = Table(
    "searches",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("body", StoredText, nullable=False),
)

search_trials = Table(
    "search_trials",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("search", BigInteger, nullable=False, index=True),
    Column("body", StoredText, nullable=False),
)

# ------------------------------------------------------------------------------------------------------ the engine's

outbox = Table(
    "outbox",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("key", NameText, nullable=False, unique=True),
    Column("body", StoredText, nullable=False),
    sqlite_autoincrement=True,
)

journal = Table(
    "journal",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("entropy", StoredText, nullable=False),
    Column("commands", LargeBinary, nullable=False),
    Column("adopted", LargeBinary, nullable=False),
    Column("digest", StoredText, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", StoredText, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("pool", StoredText, nullable=False),
    Column("kind", StoredText, nullable=False),
    Column("subject", StoredText, nullable=False),
    Column("reason", StoredText, nullable=False),
    sqlite_autoincrement=True,
)

# ---------------------------------------------------------------------------------------------------------- streams

metrics = Table(
    "metrics",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("trial_id", BigInteger, nullable=False),
    Column("run_id", Integer, nullable=False),
    Column("metric_group", NameText, nullable=False),
    Column("steps_completed", BigInteger),
    Column("reported_at", Moment, nullable=False),
    Column("archived", Boolean, nullable=False),
    Column("metrics", StoredText, nullable=False),
    Column("batch_metrics", StoredText),
    # Rows without a step count are distinct to both databases: an empty value equals nothing.
    UniqueConstraint("trial_id", "steps_completed", "run_id", "metric_group"),
    # Of rows without a step count alone, as its migration says; to name a database's own clause here imports its dialect.
    Index("ix_metrics_without_step", "trial_id", "reported_at"),
    sqlite_autoincrement=True,
)

metric_chunks = Table(
    "metric_chunks",
    metadata,
    Column("trial_id", BigInteger, primary_key=True, autoincrement=False),
    Column("metric_group", NameText, primary_key=True),
    Column("first_step", BigInteger, primary_key=True, autoincrement=False),
    Column("last_step", BigInteger, nullable=False),
    Column("reports", BigInteger, nullable=False),
    Column("preceding", BigInteger, nullable=False),
    Column("body", StoredText, nullable=False),
)
"""What `store.metric_chunks` keeps of `metrics`: it contains nothing beyond its rows."""

logs = Table(
    "logs",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("key", NameText, nullable=False, unique=True),
    Column("task_id", NameText, nullable=False),
    Column("allocation_id", StoredText),
    Column("agent_id", StoredText, nullable=False),
    Column("container_id", StoredText, nullable=False),
    Column("rank", Integer),
    Column("at", Moment, nullable=False),
    Column("level", StoredText, nullable=False),
    Column("stdtype", StoredText, nullable=False),
    Column("source", StoredText, nullable=False),
    Column("log", LogText, nullable=False),
    Index("ix_logs_task_id_id", "task_id", "id"),
    sqlite_autoincrement=True,
)

step_marks = Table(
    "step_marks",
    metadata,
    Column("allocation_id", NameText, primary_key=True),
    Column("at", Moment, primary_key=True),
    Column("steps_completed", BigInteger, nullable=False),
    Column("checkpointing_s", Float, nullable=False),
)

# -------------------------------------------------------------------------------------------- contexts and settings

contexts = Table(
    "contexts",
    metadata,
    Column("digest", StoredText, primary_key=True),
    Column("archive", LargeBinary, nullable=False),
)

agent_keys = Table(
    "agent_keys",
    metadata,
    Column("id", NameText, primary_key=True),
    Column("body", StoredText, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("name", StoredText, primary_key=True),
    Column("value", StoredText, nullable=False),
)

TABLES: Mapping[str, Table] = {
    "experiment": experiments,
    "trial": trials,
    "job": jobs,
    "allocation": allocations,
    "agent": agents,
    "instance": instances,
    "checkpoint": checkpoints,
    "user": users,
    "session": sessions,
    "counter": counters,
    "belief": beliefs,
    "template": templates,
    "external_experiment": external_experiments,
    "usage": usages,
    "workspace": workspaces,
    "project": projects,
    "pool_binding": pool_bindings,
    "account": accounts,
    "agent_key": agent_keys,
    "search": searches,
    "search_trial": search_trials,
}
"""Where each kind of entity is kept."""


def key_column(kind: str) -> Column[Any]:
    """The column that identifies an entity of that kind."""
    columns: list[Column[Any]] = list(TABLES[kind].primary_key)
    return columns[0]


# ------------------------------------------------------------------------------------------------- entities as rows


def row_of(entity: Entity, body: bytes) -> dict[str, Any]:
    """The entity as a row of its table; `body` is its canonical JSON object."""
    columns = _COLUMNS[kind_of(entity)](entity)
    columns["body"] = body.decode()
    return columns


def _sortable(number: float | None) -> float | None:
    """NaN is no value to sort by."""
    return None if number is None or math.isnan(number) else number


def _metric(validation: Validation | None) -> float | None:
    return None if validation is None else _sortable(validation.metric)


def _experiment(e: Experiment) -> dict[str, Any]:
    return {
        "id": e.id,
        "state": e.state.value,
        "archived": e.archived,
        "owner": e.owner,
        "workspace_id": e.workspace_id,
        "project_id": e.project_id,
        "name": e.name,
        "description": e.description,
        "started_at": e.started_at,
        "ended_at": e.ended_at,
        "progress": e.progress,
        "parent_id": e.parent_id,
        "best_validation": _sortable(e.best_validation),
        "best_trial_id": e.best_trial,
    }


def _trial(t: Trial) -> dict[str, Any]:
    return {
        "id": t.id,
        "experiment_id": t.experiment_id,
        "task_id": t.task_id,
        "state": t.state.value,
        "started_at": t.started_at,
        "ended_at": t.ended_at,
        "steps_completed": t.steps_completed,
        "restarts": t.restarts,
        "best_validation": _metric(t.best_validation),
        "latest_validation": _metric(t.latest_validation),
    }


def hyperparameters_of(t: Trial) -> list[dict[str, Any]]:
    """Rows of a trial that has not reported yet; they never change, so that later it needs none."""
    if t.run_id > 1 or t.steps_completed:
        return []
    return [
        {
            "trial_id": t.id,
            "name": storable_text(name),
            "experiment_id": t.experiment_id,
            "number": number,
            "text": text,
        }
        for name, (number, text) in sorted(flat_hyperparameters(t.hparams).items())
    ]


def _job(j: Job) -> dict[str, Any]:
    return {"id": j.id, "experiment_id": j.experiment_id, "pool": j.pool, "ended": j.ended}


def _allocation(a: Allocation) -> dict[str, Any]:
    return {
        "id": a.id,
        "task_id": a.task_id,
        "attempt": attempt_number(a.id),
        "ended": a.ended,
        "assigned_at": a.assigned_at,
        "ended_at": a.ended_at,
        "pool": a.pool,
    }


def _instance(i: Instance) -> dict[str, Any]:
    return {"id": i.id, "over": i.over, "requested_at": i.requested_at, "paid_until": i.paid_until}


def _checkpoint(c: Checkpoint) -> dict[str, Any]:
    return {
        "uuid": c.uuid,
        "experiment_id": c.experiment_id,
        "trial_id": c.trial_id,
        "state": c.state.value,
        "steps_completed": c.steps_completed,
        "size": c.size,
    }


class _HasId(Protocol):
    @property
    def id(self) -> int | str: ...


def _by_id(entity: _HasId) -> dict[str, Any]:
    return {"id": entity.id}


_COLUMNS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "experiment": _experiment,
    "trial": _trial,
    "job": _job,
    "allocation": _allocation,
    "agent": _by_id,
    "instance": _instance,
    "checkpoint": _checkpoint,
    "user": _by_id,
    "session": _by_id,
    "counter": _by_id,
    "belief": _by_id,
    "template": _by_id,
    "external_experiment": _by_id,
    "usage": _by_id,
    "workspace": _by_id,
    "project": _by_id,
    "pool_binding": _by_id,
    "account": _by_id,
    "agent_key": _by_id,
    "search": _by_id,
    "search_trial": lambda t: {"id": t.id, "search": t.search},
}
