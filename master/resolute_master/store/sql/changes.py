"""The engine's commit in few statements, and everything that it loads at boot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Delete, and_, bindparam, delete, func, insert, or_, select

from resolute.errors import Conflict
from resolute.wire.states import ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import ALWAYS_LOADED, Change, Entity, JournalEntry, Stored, key_of
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.trial import Trial
from resolute_master.store.base import Snapshot
from resolute_master.store.encoding import decode_effect, decode_entities, encode_effect, kind_of, with_bodies
from resolute_master.store.listing import sequence_conflict, snapshot_conflict
from resolute_master.store.sql import dialect, tables
from resolute_master.store.sql.streams import insert_logs

JOURNAL_PAGE = 200
"""Entries read at once by a replay."""

_HELD_STATES = [state.value for state in ExperimentState if not state.gone or state is ExperimentState.DELETING]
"""Experiments that the engine keeps in memory."""

# ------------------------------------------------------------------------------------------------------------ commit

# Made once: to make a statement, and the key under which its text is known, takes as long as SQLite takes to carry it out.
_LAST_SEQUENCE = select(func.max(tables.journal.c.sequence))
_INTO_JOURNAL, _INTO_DECISIONS, _INTO_LABELS = map(insert, (tables.journal, tables.decisions, tables.experiment_labels))


def commit(connection: Connection, change: Change) -> None:
    """Raises `Conflict` when the change does not follow the last one stored."""
    last = last_sequence(connection)
    if change.journal.sequence != last + 1:
        raise Conflict(sequence_conflict(change.journal.sequence, last))
    _upsert_entities(connection, change)
    _delete_entities(connection, change.deletes)
    if change.outbox_removed:
        _delete_by(connection, tables.outbox.c.key, change.outbox_removed)
    if change.outbox_added:
        rows = [{"key": effect.key, "body": encode_effect(effect).decode()} for effect in change.outbox_added]
        connection.execute(dialect.insert_new(connection, tables.outbox, "key"), rows)
    insert_logs(connection, change.logs)
    if change.decisions:
        connection.execute(
            _INTO_DECISIONS,
            [
                {"at": d.at, "pool": d.pool, "kind": d.kind, "subject": d.subject, "reason": d.reason}
                for d in change.decisions
            ],
        )
    entry = change.journal
    connection.execute(
        _INTO_JOURNAL,
        {
            "sequence": entry.sequence,
            "at": entry.at,
            "entropy": entry.entropy,
            "commands": entry.commands,
            "adopted": entry.adopted,
            "digest": entry.digest,
        },
    )


def last_sequence(connection: Connection) -> int:
    """0 in an empty store. Pruning never removes the last entry."""
    return connection.execute(_LAST_SEQUENCE).scalar() or 0


def _upsert_entities(connection: Connection, change: Change) -> None:
    rows: dict[str, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for entity, body in with_bodies(change):
        rows[kind_of(entity)][key_of(entity)] = tables.row_of(entity, body)
    for kind, by_key in rows.items():
        connection.execute(dialect.upsert(connection, tables.TABLES[kind]), list(by_key.values()))
    _store_labels(connection, [entity for entity in change.upserts if isinstance(entity, Experiment)])
    _store_hyperparameters(connection, [entity for entity in change.upserts if isinstance(entity, Trial)])
    _store_agents(connection, [entity for entity in change.upserts if isinstance(entity, Allocation)])


def _store_labels(connection: Connection, experiments: Sequence[Experiment]) -> None:
    if not experiments:
        return
    labels = {experiment.id: experiment.labels for experiment in experiments}
    _delete_by(connection, tables.experiment_labels.c.experiment_id, labels)
    rows = [{"experiment_id": id_, "label": label} for id_, names in labels.items() for label in dict.fromkeys(names)]
    if rows:
        connection.execute(_INTO_LABELS, rows)


def _store_hyperparameters(connection: Connection, trials: Sequence[Trial]) -> None:
    rows = [row for trial in trials for row in tables.hyperparameters_of(trial)]
    if rows:
        connection.execute(dialect.insert_new(connection, tables.hyperparameters, "trial_id", "name"), rows)


def _store_agents(connection: Connection, allocations: Sequence[Allocation]) -> None:
    """Only ever added to: an allocation stays known on every agent that it had a container on."""
    pairs = {(container.agent, allocation.id) for allocation in allocations for container in allocation.containers}
    if pairs:
        connection.execute(
            dialect.insert_new(connection, tables.allocation_agents, "agent_id", "allocation_id"),
            [{"agent_id": agent, "allocation_id": allocation} for agent, allocation in sorted(pairs)],
        )


def _delete_entities(connection: Connection, deletes: Sequence[tuple[str, Any]]) -> None:
    keys: dict[str, list[Any]] = defaultdict(list)
    for kind, key in deletes:
        keys[kind].append(key)
    for kind, forgotten in keys.items():
        if kind == "experiment":
            _delete_by(connection, tables.experiment_labels.c.experiment_id, forgotten)
        elif kind == "trial":
            _delete_streams_of_trials(connection, forgotten)
        elif kind == "allocation":
            _delete_by(connection, tables.allocation_agents.c.allocation_id, forgotten)
            _delete_by(connection, tables.step_marks.c.allocation_id, forgotten)
        _delete_by(connection, tables.key_column(kind), forgotten)


def _delete_streams_of_trials(connection: Connection, trials: Sequence[int]) -> None:
    _delete_by(connection, tables.metrics.c.trial_id, trials)
    _delete_by(connection, tables.metric_chunks.c.trial_id, trials)
    _delete_by(connection, tables.hyperparameters.c.trial_id, trials)
    task = select(tables.trials.c.task_id).where(tables.trials.c.id == bindparam("forgotten")).scalar_subquery()
    statement = delete(tables.logs).where(tables.logs.c.task_id == task)
    connection.execute(statement, [{"forgotten": trial} for trial in trials])


def _delete_by(connection: Connection, column: Column[Any], values: Iterable[Any]) -> None:
    """One statement, executed for each value: no limit on how many."""
    connection.execute(_deleting(column), [{"forgotten": value} for value in values])


@cache
def _deleting(column: Column[Any]) -> Delete:
    return delete(column.table).where(column == bindparam("forgotten"))


# -------------------------------------------------------------------------------------------------------------- load


def load(connection: Connection) -> Stored:
    """Everything that is not over, by kind and key."""
    held = select(tables.experiments.c.id).where(tables.experiments.c.state.in_(_HELD_STATES))
    jobs, instances, allocations = tables.jobs.c, tables.instances.c, tables.allocations.c
    job_counts = or_(jobs.experiment_id.in_(held), and_(jobs.experiment_id.is_(None), jobs.ended.is_(False)))
    entities = [
        *_entities(connection, "experiment", tables.experiments.c.state.in_(_HELD_STATES)),
        *_entities(connection, "trial", tables.trials.c.experiment_id.in_(held)),
        *_entities(connection, "job", job_counts),
        *_entities(connection, "allocation", allocations.ended.is_(False)),
        *_entities(connection, "agent"),
        *_entities(connection, "instance", instances.over.is_(False)),
        *_entities(connection, "checkpoint", tables.checkpoints.c.experiment_id.in_(held)),
        *_entities(connection, "search", tables.searches.c.id.in_(held)),
        *_entities(connection, "search_trial", tables.search_trials.c.search.in_(held)),
    ]
    for kind in ALWAYS_LOADED:
        entities.extend(_entities(connection, kind))
    box, entries = tables.outbox.c, tables.journal.c
    effects = connection.execute(select(box.body).order_by(box.id)).scalars()
    last = connection.execute(
        select(entries.sequence, entries.digest).order_by(entries.sequence.desc()).limit(1)
    ).one_or_none()
    return Stored(
        sequence=last.sequence if last else 0,
        digest=last.digest if last else "",
        entities=tuple(entities),
        outbox=tuple(decode_effect(body) for body in effects),
    )


def experiment_entities(connection: Connection, id_: ExperimentId) -> tuple[Entity, ...]:
    """The experiment, its trials, job and checkpoints; empty when unknown."""
    experiment = _entities(connection, "experiment", tables.experiments.c.id == id_)
    if not experiment:
        return ()
    return (
        *experiment,
        *_entities(connection, "trial", tables.trials.c.experiment_id == id_),
        *_entities(connection, "job", tables.jobs.c.experiment_id == id_),
        *_entities(connection, "checkpoint", tables.checkpoints.c.experiment_id == id_),
        *_entities(connection, "search", tables.searches.c.id == id_),
        *_entities(connection, "search_trial", tables.search_trials.c.search == id_),
    )


def _entities(connection: Connection, kind: str, *where: ColumnElement[bool]) -> list[Entity]:
    """By key. They are sorted here: a database that sorts carries all bodies along, which takes as long as reading them."""
    statement = select(tables.TABLES[kind].c.body).where(*where)
    entities = decode_entities(kind, connection.execute(statement).scalars())
    entities.sort(key=attrgetter(tables.key_column(kind).name))
    return entities


# --------------------------------------------------------------------------------------------- journal and snapshots


def save_snapshot(connection: Connection, snapshot: Snapshot, retain: int) -> None:
    """Raises `Conflict` for a snapshot of a change that is not stored."""
    last = last_sequence(connection)
    if snapshot.sequence > last:
        raise Conflict(snapshot_conflict(snapshot.sequence, last))
    kept = tables.snapshots.c
    connection.execute(
        dialect.upsert(connection, tables.snapshots),
        [{"sequence": snapshot.sequence, "digest": snapshot.digest, "body": snapshot.body}],
    )
    newest_first = select(kept.sequence).order_by(kept.sequence.desc())
    oldest = connection.execute(newest_first.limit(max(retain, 0) + 1)).scalars().all()[-1]
    connection.execute(delete(tables.snapshots).where(kept.sequence < oldest))
    connection.execute(delete(tables.journal).where(tables.journal.c.sequence < oldest))


def snapshots(connection: Connection) -> tuple[Snapshot, ...]:
    """Oldest first."""
    rows = connection.execute(select(tables.snapshots).order_by(tables.snapshots.c.sequence))
    return tuple(Snapshot(sequence=row.sequence, digest=row.digest, body=row.body) for row in rows)


def journal_page(connection: Connection, after: int) -> list[JournalEntry]:
    """At most `JOURNAL_PAGE` entries after that sequence."""
    entries = tables.journal
    statement = select(entries).where(entries.c.sequence > after).order_by(entries.c.sequence).limit(JOURNAL_PAGE)
    return [
        JournalEntry(
            sequence=row.sequence,
            at=row.at,
            entropy=row.entropy,
            commands=row.commands,
            adopted=row.adopted,
            digest=row.digest,
        )
        for row in connection.execute(statement)
    ]
