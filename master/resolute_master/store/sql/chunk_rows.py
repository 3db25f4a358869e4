"""The rows of `metric_chunks`: kept beside those of `metrics`, in the same transaction, and read."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, select

from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.store import metric_chunks, metric_rows
from resolute_master.store.metric_chunks import Chunk
from resolute_master.store.sql import dialect, tables
from resolute_master.store.sql.metric_reads import report_of

Key = tuple[int, str]
"""Trial and group."""


def keep(
    connection: Connection,
    new: Sequence[MetricReport],
    changed: Sequence[MetricReport],
    rolled_back: Mapping[TrialId, int],
) -> None:
    """After rows were stored: `new` ones and `changed` ones that were there, and of some trials the step from which on rows of
    older runs are archived now."""
    for trial, step in sorted(rolled_back.items()):
        _cut(connection, trial, step, {report.group for report in new if report.trial_id == trial})
    touched: dict[Key, set[int]] = defaultdict(set)
    for report in changed:
        touched[report.trial_id, report.group].add(metric_chunks.step_of(report))
    for (number, group), reports in metric_chunks.by_group(new).items():
        if number in rolled_back or group in metric_rows.SYSTEM_GROUPS:
            continue
        if not touched.get((number, group)) and _extend(connection, (number, group), reports):
            continue
        touched[number, group].update(map(metric_chunks.step_of, reports))
    for (number, group), steps in touched.items():
        if number not in rolled_back and group not in metric_rows.SYSTEM_GROUPS:
            _repair(connection, (number, group), steps)


def _extend(connection: Connection, key: Key, reports: Sequence[MetricReport]) -> bool:
    """False where they do not follow what is there."""
    newest = select(tables.metric_chunks).where(*_of(key)).order_by(tables.metric_chunks.c.first_step.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    last = None if row is None else chunk_of(row)
    if not metric_chunks.in_order(last, reports):
        return False
    rows = [chunk_values(key, chunk) for chunk in metric_chunks.extended(last, reports)]
    connection.execute(dialect.upsert(connection, tables.metric_chunks), rows)
    return True


def _cut(connection: Connection, trial: TrialId, step: int, reported: Collection[str]) -> None:
    """Make again what reaches to that step or beyond, of every group; and the groups that have reported now."""
    column = tables.metric_chunks.c
    reaching = (
        select(column.metric_group, func.min(column.first_step))
        .where(column.trial_id == trial, column.last_step >= step)
        .group_by(column.metric_group)
    )
    first: dict[str, int] = dict(map(tuple, connection.execute(reaching)))
    for group in sorted({*first, *reported} - metric_rows.SYSTEM_GROUPS):
        _refold(connection, (trial, group), min(first.get(group, step), step), None)


def _repair(connection: Connection, key: Key, steps: Collection[int]) -> None:
    """Make again the chunks in which these steps are, or between which they come."""
    begin = select(tables.metric_chunks.c.first_step).where(*_of(key)).order_by(tables.metric_chunks.c.first_step)
    first = list(connection.execute(begin).scalars())
    for number in sorted({max(bisect_right(first, step) - 1, 0) for step in steps}):
        low = min(first[0], *steps) if number == 0 and first else first[number] if first else min(steps)
        _refold(connection, key, low, first[number + 1] if number + 1 < len(first) else None)


def _refold(connection: Connection, key: Key, low: int, before: int | None) -> None:
    """The chunks of the steps from `low` on, up to the one `before` which the next chunk begins."""
    column, row = tables.metric_chunks.c, tables.metrics.c
    range_: list[ColumnElement[bool]] = [column.first_step >= low]
    rows = select(tables.metrics).where(row.trial_id == key[0], row.metric_group == key[1], row.archived.is_(False))
    if low > metric_chunks.NO_STEP:
        rows = rows.where(row.steps_completed >= low)
    if before is not None:
        range_.append(column.first_step < before)
        rows = rows.where(func.coalesce(row.steps_completed, metric_chunks.NO_STEP) < before)
    connection.execute(delete(tables.metric_chunks).where(*_of(key), *range_))
    found = connection.execute(rows)
    reports = sorted((report_of(each) for each in found), key=metric_rows.listing_order)
    if not reports:
        return
    counted = select(func.coalesce(func.sum(column.reports), 0)).where(*_of(key), column.first_step < low)
    preceding = int(connection.execute(counted).scalar_one())
    made = metric_chunks.chunks_of(reports, preceding)
    connection.execute(insert(tables.metric_chunks), [chunk_values(key, chunk) for chunk in made])


# ------------------------------------------------------------------------------------------------------------- reads


def of_trials(
    connection: Connection,
    trials: Sequence[TrialId],
    groups: Sequence[str] = (),
    *,
    first: int | None = None,
    last: int | None = None,
) -> dict[Key, tuple[Chunk, ...]]:
    """By trial and group, each in the order of steps; those that reach from `first` to `last`. Without `groups` of all."""
    column = tables.metric_chunks.c
    where: list[ColumnElement[bool]] = []
    if groups:
        where.append(column.metric_group.in_(groups))
    if first is not None:
        where.append(column.last_step >= first)
    if last is not None:
        where.append(column.first_step <= last)
    found: dict[Key, list[Chunk]] = defaultdict(list)
    for some in dialect.batches(trials):
        wanted = select(tables.metric_chunks).where(column.trial_id.in_(some), *where)
        for row in connection.execute(wanted.order_by(column.trial_id, column.metric_group, column.first_step)):
            found[row.trial_id, row.metric_group].append(chunk_of(row))
    return {key: tuple(chunks) for key, chunks in found.items()}


def count(connection: Connection, trial: TrialId, groups: Sequence[str]) -> int:
    """Reports of these groups that count."""
    column = tables.metric_chunks.c
    where = and_(column.trial_id == trial, column.metric_group.in_(groups))
    return int(connection.execute(select(func.coalesce(func.sum(column.reports), 0)).where(where)).scalar_one())


# -------------------------------------------------------------------------------------------------------------- rows


def _of(key: Key) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    column = tables.metric_chunks.c
    return column.trial_id == key[0], column.metric_group == key[1]


def chunk_of(row: Row[Any]) -> Chunk:
    """The row of the table as a value."""
    return Chunk(
        first_step=row.first_step,
        last_step=row.last_step,
        reports=row.reports,
        preceding=row.preceding,
        names=metric_chunks.from_text(row.body),
    )


def chunk_values(key: Key, chunk: Chunk) -> dict[str, Any]:
    """The reverse."""
    return {
        "trial_id": key[0],
        "metric_group": key[1],
        "first_step": chunk.first_step,
        "last_step": chunk.last_step,
        "reports": chunk.reports,
        "preceding": chunk.preceding,
        "body": metric_chunks.to_text(chunk.names),
    }


def fill(connection: Connection) -> None:
    """Computes the chunks of all stored reports, for a database that had no chunks."""
    row = tables.metrics.c
    known = select(row.trial_id, row.metric_group).distinct()
    for key in connection.execute(known.where(row.metric_group.not_in(sorted(metric_rows.SYSTEM_GROUPS)))).fetchall():
        _fill(connection, (key.trial_id, key.metric_group))


def _fill(connection: Connection, key: Key) -> None:
    """A piece at a time, for a trial may have reported more than fits into memory."""
    row = tables.metrics.c
    of_key = (row.trial_id == key[0], row.metric_group == key[1], row.archived.is_(False))
    without_step = select(tables.metrics).where(*of_key, row.steps_completed.is_(None)).order_by(row.reported_at)
    reports = [report_of(each) for each in connection.execute(without_step)]
    after, last = metric_chunks.NO_STEP, None
    while True:
        piece = select(tables.metrics).where(*of_key, row.steps_completed > after)
        limited = piece.order_by(row.steps_completed, row.run_id).limit(metric_chunks.SMALLEST_CHUNK)
        found = [report_of(each) for each in connection.execute(limited)]
        if found:  # all of the last step
            edge = metric_chunks.step_of(found[-1])
            same = select(tables.metrics).where(*of_key, row.steps_completed == edge).order_by(row.run_id)
            found = [each for each in found if metric_chunks.step_of(each) != edge]
            found += [report_of(each) for each in connection.execute(same)]
        reports += found
        if not reports:
            return
        made = metric_chunks.extended(last, reports)
        connection.execute(dialect.upsert(connection, tables.metric_chunks), [chunk_values(key, one) for one in made])
        after, last, reports = made[-1].last_step, made[-1], []
        if not found:
            return
