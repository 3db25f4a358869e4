"""The engine's commit as one statement: one round trip, one flush of the server's log.

Every part of the statement is a branch that does nothing unless the journal entry was new and next; a change is stored
whole or not at all. Which branches a change needs differs; the text of each combination is made once and stays prepared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import asyncpg
from sqlalchemy import Column, Table

from resolute.errors import Conflict
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KINDS, Change, EntityKey, key_of
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from resolute_master.store.encoding import encode_effect, kind_of, with_bodies
from resolute_master.store.listing import sequence_conflict
from resolute_master.store.sql import tables
from resolute_master.store.sql.postgres_rows import array_type, as_arrays, columns_of, stored
from resolute_master.store.sql.streams import log_values

_Branch = Callable[["_Text"], str]


async def commit(connection: asyncpg.Connection, change: Change) -> None:
    """Raises `Conflict` when the change does not follow the last one stored."""
    names, arguments = _Parts(change).collected()
    try:
        last: int | None = await connection.fetchval(_statement(names), *arguments)
    except asyncpg.UniqueViolationError as error:
        if error.table_name != tables.journal.name:
            raise
        # Another master commits at this very moment.
        raise Conflict(sequence_conflict(change.journal.sequence, change.journal.sequence)) from error
    if last is not None:
        raise Conflict(sequence_conflict(change.journal.sequence, last))


async def is_stored(connection: asyncpg.Connection, change: Change) -> bool:
    """Whether a commit whose answer was lost has been carried out."""
    found = await connection.fetchval("SELECT digest FROM journal WHERE sequence = $1", change.journal.sequence)
    return bool(found == change.journal.digest)


class _Parts:
    """The statements of a change: the names of its branches in order, and the arguments of each."""

    def __init__(self, change: Change) -> None:
        self._names: list[str] = []
        self._arguments: list[Any] = []
        entry = change.journal
        self._arguments += [stored(column, getattr(entry, column.name)) for column in columns_of(tables.journal)]
        self._forgotten: dict[str, list[EntityKey]] = defaultdict(list)
        for kind, key in change.deletes:
            self._forgotten[kind].append(key)
        if unknown := sorted(self._forgotten.keys() - KINDS.keys()):
            raise KeyError(f"there is no kind of entity named {unknown[0]}")
        self._entities(change)
        self._deletes(change)
        self._effects(change)
        if change.logs:
            self._rows("logs", tables.logs, [log_values(record) for record in change.logs])
        if change.decisions:
            rows = [
                {"at": d.at, "pool": d.pool, "kind": d.kind, "subject": d.subject, "reason": d.reason}
                for d in change.decisions
            ]
            self._rows("decisions", tables.decisions, rows)

    def collected(self) -> tuple[tuple[str, ...], list[Any]]:
        return tuple(self._names), self._arguments

    def _branch(self, name: str, *arguments: Any) -> None:
        self._names.append(name)
        self._arguments += arguments

    def _rows(self, name: str, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        self._branch(name, *as_arrays(table, rows))

    def _entities(self, change: Change) -> None:
        """One statement changes a row once: the last of several, and none that is forgotten in the same change."""
        forgotten = set(change.deletes)
        bodies = {(kind_of(entity), key_of(entity)): body for entity, body in with_bodies(change)}
        latest = {(kind_of(e), key_of(e)): e for e in change.upserts}
        kept = {place: entity for place, entity in latest.items() if place not in forgotten}
        by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for place, entity in kept.items():
            by_kind[place[0]].append(tables.row_of(entity, bodies[place]))
        for kind in sorted(by_kind):
            self._rows(f"upsert {kind}", tables.TABLES[kind], by_kind[kind])
        experiments = [e for e in kept.values() if isinstance(e, Experiment)]
        if experiments:
            pairs = dict.fromkeys((e.id, label) for e in experiments for label in e.labels)
            labels = [stored(tables.experiment_labels.c.label, label) for _, label in pairs]
            self._branch("labels", [e.id for e in experiments], [id_ for id_, _ in pairs], labels)
        named = {
            (r["trial_id"], r["name"]): r
            for e in kept.values()
            if isinstance(e, Trial)
            for r in tables.hyperparameters_of(e)
        }
        if named:
            self._rows("hyperparameters of trials", tables.hyperparameters, list(named.values()))
        held = {(c.agent, e.id) for e in kept.values() if isinstance(e, Allocation) for c in e.containers}
        if held:
            rows = [{"agent_id": agent, "allocation_id": allocation} for agent, allocation in sorted(held)]
            self._rows("agents of allocations", tables.allocation_agents, rows)

    def _deletes(self, change: Change) -> None:
        for kind in sorted(self._forgotten):
            keys = [stored(tables.key_column(kind), key) for key in self._forgotten[kind]]
            if kind == "trial":
                # Their tasks: of those that are stored, and of those that come and go in this very change.
                tasks = [e.task_id for e in change.upserts if isinstance(e, Trial) and e.id in self._forgotten[kind]]
                self._branch("delete trial", keys, tasks)
            else:
                self._branch(f"delete {kind}", keys)

    def _effects(self, change: Change) -> None:
        """One that is both removed and added is a new one: it goes to the end of the outbox."""
        added = {effect.key: effect for effect in change.outbox_added}
        renewed = [effect for key, effect in added.items() if key in change.outbox_removed]
        fresh = [effect for key, effect in added.items() if key not in change.outbox_removed]
        removed = [key for key in change.outbox_removed if key not in added]
        if removed:
            self._branch("effects removed", removed)
        for name, effects in (("effects renewed", renewed), ("effects added", fresh)):
            if effects:
                rows = [{"key": effect.key, "body": encode_effect(effect).decode()} for effect in effects]
                self._rows(name, tables.outbox, rows)


# ------------------------------------------------------------------------------------------------- the statement's text

_GO_ON = "EXISTS (SELECT FROM entered)"
"""True once the journal has taken the entry; every branch depends on it."""


class _Text:
    """Numbers the parameters of a statement."""

    def __init__(self) -> None:
        self._used = 0

    def parameter(self, type_: str) -> str:
        self._used += 1
        return f"${self._used}::{type_}"

    def array(self, column: Column[Any]) -> str:
        return self.parameter(array_type(column))


@cache
def _statement(names: tuple[str, ...]) -> str:
    """Returns the last sequence stored when the change does not follow it, null when all is done."""
    text = _Text()
    journal = columns_of(tables.journal)
    values = ", ".join(text.parameter(array_type(column).removesuffix("[]")) for column in journal)
    branches = [
        f"last AS (SELECT coalesce(max({tables.journal.c.sequence.name}), 0) AS sequence FROM journal)",
        f"entered AS (INSERT INTO journal ({_names(journal)}) SELECT {values} FROM last "
        "WHERE last.sequence = $1 - 1 RETURNING 1)",
    ]
    for number, name in enumerate(names):
        branches += [f"b{number}_{index} AS ({part})" for index, part in enumerate(_branch(text, name))]
    return f"WITH {', '.join(branches)} SELECT sequence FROM last WHERE NOT {_GO_ON}"


def _branch(text: _Text, name: str) -> list[str]:
    """The statements of one branch. A later one does not see what an earlier one did."""
    action, _, kind = name.partition(" ")
    if action == "upsert":
        return [_insert(text, tables.TABLES[kind], _replacing(tables.TABLES[kind]))]
    if action == "delete":
        return _delete(text, kind)
    if name == "labels":
        return _labels(text)
    if name == "effects removed":
        return [f"DELETE FROM outbox WHERE key = ANY({text.array(tables.outbox.c.key)}) AND {_GO_ON}"]
    table, conflict = _INSERTS[name]
    return [_insert(text, table, conflict)]


_INSERTS: dict[str, tuple[Table, str]] = {
    "hyperparameters of trials": (tables.hyperparameters, " ON CONFLICT DO NOTHING"),
    "agents of allocations": (tables.allocation_agents, " ON CONFLICT DO NOTHING"),
    "effects added": (tables.outbox, " ON CONFLICT (key) DO NOTHING"),
    "effects renewed": (tables.outbox, " ON CONFLICT (key) DO UPDATE SET id = excluded.id, body = excluded.body"),
    "logs": (tables.logs, " ON CONFLICT (key) DO NOTHING"),
    "decisions": (tables.decisions, ""),
}


def _insert(text: _Text, table: Table, conflict: str) -> str:
    columns = columns_of(table)
    arrays = ", ".join(text.array(column) for column in columns)
    return f"INSERT INTO {table.name} ({_names(columns)}) SELECT * FROM unnest({arrays}) WHERE {_GO_ON}{conflict}"


def _replacing(table: Table) -> str:
    keys = [column.name for column in table.primary_key]
    rest = ", ".join(f'"{c.name}" = excluded."{c.name}"' for c in table.columns if c.name not in keys)
    return f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {rest}"


def _delete(text: _Text, kind: str) -> list[str]:
    key = tables.key_column(kind)
    keys = text.array(key)

    def of(table: Table, column: str) -> str:
        return f"DELETE FROM {table.name} WHERE {column} = ANY({keys}) AND {_GO_ON}"

    parts = [of(tables.TABLES[kind], key.name)]
    if kind == "experiment":
        parts.append(of(tables.experiment_labels, "experiment_id"))
    elif kind == "allocation":
        parts += [of(tables.allocation_agents, "allocation_id"), of(tables.step_marks, "allocation_id")]
    elif kind == "trial":
        tasks = text.array(tables.trials.c.task_id)
        of_trials = f"SELECT task_id FROM trials WHERE id = ANY({keys})"
        parts += [of(tables.metrics, "trial_id"), of(tables.metric_chunks, "trial_id")]
        parts.append(of(tables.hyperparameters, "trial_id"))
        parts.append(f"DELETE FROM logs WHERE (task_id IN ({of_trials}) OR task_id = ANY({tasks})) AND {_GO_ON}")
    return parts


def _labels(text: _Text) -> list[str]:
    """Those of the named experiments become exactly the given pairs."""
    column = tables.experiment_labels.c
    experiments, ids, labels = (
        text.array(column.experiment_id),
        text.array(column.experiment_id),
        text.array(column.label),
    )
    pairs = f"SELECT * FROM unnest({ids}, {labels})"
    return [
        f"DELETE FROM experiment_labels WHERE experiment_id = ANY({experiments}) "
        f"AND (experiment_id, label) NOT IN ({pairs}) AND {_GO_ON}",
        f"INSERT INTO experiment_labels (experiment_id, label) {pairs} WHERE {_GO_ON} ON CONFLICT DO NOTHING",
    ]


def _names(columns: Sequence[Column[Any]]) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)
