"""Metrics, logs and step marks by COPY.

A batch nearly always is news from its first row to its last, and COPY is the fastest way to store one. Whether it was news
the unique keys decide: a row that is there already fails the COPY as a whole, and the batch goes the careful way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import asyncpg
from sqlalchemy import Table

from resolute_master.domain.metrics import MetricReport, StepMark
from resolute_master.store import metric_rows
from resolute_master.store.base import keeping_values
from resolute_master.store.sql import tables
from resolute_master.store.sql.postgres_chunks import LastChunks, put_chunks
from resolute_master.store.sql.postgres_rows import array_type, as_arrays, columns_of
from resolute_master.store.sql.streams import mark_values

Item = TypeVar("Item")
Stored = TypeVar("Stored")

Rows = list[list[Any]]
"""A list of values for each column of the table."""

ROWS_A_TURN = 500
"""Rows that are made in one turn of the event loop: a third of a millisecond, after which short requests continue."""


class _RolledBack(Exception):
    """Rows of older runs no longer count: what they came to is made again by the careful way."""


REMEMBERED_TRIALS = 50_000
"""Past that the memory of what is archived starts again: it only saves work."""


class Bulk:
    """Rows are made while those before them are stored: both one after the other, in the order of the calls."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        self._storing = asyncio.Lock()

    async def append(self, make: Callable[[], Awaitable[Rows]], store: Callable[[Rows], Awaitable[Stored]]) -> Stored:
        async with AsyncExitStack() as stored:
            async with self._making:
                with keeping_values():
                    rows = await make()
                await stored.enter_async_context(self._storing)
            return await store(rows)


class MetricCopier:
    """Appends metric reports; remembers which older runs it has archived already, so that a report need not look again.

    The only writer of the table, besides the slow path, which must notify it.
    """

    def __init__(self) -> None:
        self._archived: dict[int, tuple[int, int]] = {}
        """trial -> (run, step): of older runs everything past that step is archived."""
        self._chunks = LastChunks()

    def forget(self, reports: Sequence[MetricReport]) -> None:
        """These reports were stored another way."""
        for report in reports:
            self._archived.pop(report.trial_id, None)
        self._chunks.forget(reports)

    async def copy(self, connection: asyncpg.Connection, reports: Sequence[MetricReport], rows: Rows) -> bool:
        """True when all reports were news and are stored; False when nothing is, because some were not. `rows` are theirs.

        Reports without a step count have no key that the database could check: such a batch is for the careful way, as is one whose
        steps do not follow what its trials have reported.
        """
        if not reports:
            return True
        series = _series(reports)
        if series is None or _several_runs(series):
            return False
        chunks = await self._chunks.after(connection, reports)
        if chunks is None:
            return False
        first = _first_steps(series)
        news = {trial: at for trial, at in first.items() if not self._is_archived(trial, *at)}
        try:
            async with connection.transaction():
                if news and await _archive(connection, _rollbacks(series, news)):
                    raise _RolledBack
                await _copy(connection, tables.metrics, rows)
                await put_chunks(connection, chunks)
        except (asyncpg.UniqueViolationError, _RolledBack):
            return False
        self._chunks.remember(chunks)
        self._remember(news)
        return True

    def _is_archived(self, trial: int, run: int, steps: int) -> bool:
        known_run, known_steps = self._archived.get(trial, (-1, 0))
        return known_run == run and steps > known_steps

    def _remember(self, archived: Mapping[int, tuple[int, int]]) -> None:
        if len(self._archived) + len(archived) > REMEMBERED_TRIALS:
            self._archived.clear()
        for trial, (run, steps) in archived.items():
            if run < self._archived.get(trial, (run, 0))[0]:
                # A late report of an older run: the newer one has to look again.
                del self._archived[trial]
            else:
                self._archived[trial] = (run, steps)


async def append_logs(connection: asyncpg.Connection, rows: Rows) -> None:
    """In order; records whose key is there already are left out."""
    await _append_new(connection, tables.logs, rows)


async def append_step_marks(connection: asyncpg.Connection, marks: Sequence[StepMark]) -> None:
    """Keyed by allocation and time; what is there stays."""
    await _append_new(
        connection, tables.step_marks, as_arrays(tables.step_marks, [mark_values(mark) for mark in marks])
    )


async def in_turns(items: Sequence[Item], arrays_of: Callable[[Sequence[Item]], Rows]) -> Rows:
    """What `arrays_of` makes of all items, a few in each turn."""
    arrays = arrays_of(items[:ROWS_A_TURN])
    for start in range(ROWS_A_TURN, len(items), ROWS_A_TURN):
        await asyncio.sleep(0)
        for array, more in zip(arrays, arrays_of(items[start : start + ROWS_A_TURN]), strict=True):
            array += more
    return arrays


async def _append_new(connection: asyncpg.Connection, table: Table, arrays: Sequence[Sequence[Any]]) -> None:
    if not arrays[0]:
        return
    try:
        await _copy(connection, table, arrays)
    except asyncpg.UniqueViolationError:
        await connection.execute(_insert_new(table), *arrays)


async def _copy(connection: asyncpg.Connection, table: Table, arrays: Sequence[Sequence[Any]]) -> None:
    names = [column.name for column in columns_of(table)]
    await connection.copy_records_to_table(table.name, records=zip(*arrays, strict=True), columns=names)


def _insert_new(table: Table) -> str:
    columns = columns_of(table)
    names = ", ".join(f'"{column.name}"' for column in columns)
    arrays = ", ".join(f"${number}::{array_type(column)}" for number, column in enumerate(columns, 1))
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"


# ------------------------------------------------------------------------------------- rows of older runs that do not count


class _Series(NamedTuple):
    """Reports of one run and group that follow each other in a batch."""

    trial: int
    run: int
    group: str
    first: int
    """The lowest step."""


def _series(reports: Sequence[MetricReport]) -> list[_Series] | None:
    """All of a batch: mostly one, or one a request. None when a report has no step."""
    found: list[_Series] = []
    for key, following in groupby(reports, attrgetter("trial_id", "run_id", "group")):
        steps = [report.steps_completed for report in following]
        if None in steps:
            return None
        found.append(_Series(*key, first=min(step for step in steps if step is not None)))
    return found


def _several_runs(series: Sequence[_Series]) -> bool:
    """Whether the batch holds reports of several runs of one trial, which may archive each other."""
    runs: dict[int, int] = {}
    return any(runs.setdefault(one.trial, one.run) != one.run for one in series)


def _first_steps(series: Sequence[_Series]) -> dict[int, tuple[int, int]]:
    """trial -> (run, lowest step) of the reports that can archive anything."""
    first: dict[int, tuple[int, int]] = {}
    for one in series:
        if metric_rows.group_rolls_back(one.group):
            first[one.trial] = (one.run, min(one.first, first.get(one.trial, (0, one.first))[1]))
    return first


def _rollbacks(series: Sequence[_Series], first: Mapping[int, tuple[int, int]]) -> list[tuple[int, int, int, str]]:
    """(trial, run, lowest step, group at that step)."""
    return sorted(
        {
            (one.trial, *first[one.trial], metric_rows.rollback_group(one.group))
            for one in series
            if metric_rows.group_rolls_back(one.group) and one.trial in first and one.first == first[one.trial][1]
        }
    )


async def _archive(connection: asyncpg.Connection, rollbacks: Sequence[tuple[int, int, int, str]]) -> bool:
    """Whether any row was."""
    done: str = await connection.execute(_ROLL_BACK, *map(list, zip(*rollbacks, strict=True)))
    return done.rpartition(" ")[2] != "0"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


_GROUP = f"CASE WHEN m.metric_group IN ({_quoted(metric_rows.STEPPED_GROUPS)}) THEN m.metric_group ELSE '' END"

_ROLL_BACK = f"""
UPDATE metrics m SET archived = true
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[]) AS n(trial, run, steps, rollback_group)
WHERE m.trial_id = n.trial AND m.steps_completed >= n.steps AND m.run_id < n.run AND NOT m.archived
AND m.metric_group NOT IN ({_quoted(sorted(metric_rows.SYSTEM_GROUPS))})
AND (m.steps_completed > n.steps OR {_GROUP} = n.rollback_group)
"""
"""Archives what `metric_rows.is_rolled_back` names. The lowest step of a run decides; groups matter at that step only."""
