"""Metric reports as they are read: whole, by page, at some steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select, tuple_

from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.store import metric_rows
from resolute_master.store.base import MetricQuery
from resolute_master.store.encoding import decode_plain
from resolute_master.store.sql import dialect, tables

PAGE = 1000
"""Reports of one page: some milliseconds of work, which delay all other requests."""


def report_of(row: Row[Any]) -> MetricReport:
    """The row of the table as a value."""
    return MetricReport(
        trial_id=row.trial_id,
        run_id=row.run_id,
        group=row.metric_group,
        steps_completed=row.steps_completed,
        reported_at=row.reported_at,
        metrics=decode_plain(row.metrics),
        batch_metrics=None if row.batch_metrics is None else tuple(decode_plain(row.batch_metrics)),
        archived=row.archived,
    )


def metrics(
    connection: Connection, trial: TrialId, group: str | None, *, include_archived: bool
) -> tuple[MetricReport, ...]:
    """In `metric_rows.listing_order`."""
    column = tables.metrics.c
    statement = select(tables.metrics).where(column.trial_id == trial)
    if group is None:
        statement = statement.where(column.metric_group.not_in(sorted(metric_rows.SYSTEM_GROUPS)))
    else:
        statement = statement.where(column.metric_group == group)
    if not include_archived:
        statement = statement.where(column.archived.is_(False))
    order = (func.coalesce(column.steps_completed, -1), column.run_id, column.metric_group, column.reported_at)
    return tuple(report_of(row) for row in connection.execute(statement.order_by(*order, column.id)))


def ordered(connection: Connection, query: MetricQuery) -> tuple[MetricReport, ...]:
    """In the order of the query."""
    column = tables.metrics.c
    # PostgreSQL reads an index in order only where a list of values is no condition on the index itself.
    in_groups = func.coalesce(column.metric_group, "").in_(query.groups)
    statement = select(tables.metrics).where(column.trial_id == query.trial, in_groups)
    statement = statement.where(column.archived.is_(False), column.steps_completed.is_not(None))
    if query.first_step is not None:
        statement = statement.where(column.steps_completed >= query.first_step)
    if query.last_step is not None:
        statement = statement.where(column.steps_completed <= query.last_step)
    # Exactly the order of the index.
    dialect.read_in_order(connection)
    order = (column.steps_completed, column.run_id, column.metric_group)
    statement = statement.order_by(*(each.desc() if query.descending else each for each in order))
    rows = connection.execute(statement.offset(query.offset).limit(query.limit))
    return tuple(report_of(row) for row in rows)


Place = tuple[Any, ...]
"""Where a page ended: time and number of a row without a step, or step and run of one with a step."""


def page(
    connection: Connection, trial: TrialId, group: str, after: Place | None, *, include_archived: bool
) -> tuple[tuple[MetricReport, ...], Place | None]:
    """At most `PAGE` reports of a group in `metric_rows.listing_order`, and where they end; None when nothing follows."""
    column = tables.metrics.c
    dialect.read_in_order(connection)
    of_group = select(tables.metrics).where(column.trial_id == trial, column.metric_group == group)
    if not include_archived:
        of_group = of_group.where(column.archived.is_(False))
    if after is None or len(after) == 3:
        first = of_group.where(column.steps_completed.is_(None))
        if after is not None:
            run, at, number = after
            same_run = and_(column.run_id == run, or_(column.reported_at > at, _same(column, at, number)))
            first = first.where(or_(column.run_id > run, same_run))
        rows = connection.execute(first.order_by(column.run_id, column.reported_at, column.id).limit(PAGE)).fetchall()
        if rows:
            return tuple(map(report_of, rows)), (rows[-1].run_id, rows[-1].reported_at, rows[-1].id)
        after = None
    stepped = of_group.where(column.steps_completed.is_not(None))
    if after is not None:
        stepped = stepped.where(tuple_(column.steps_completed, column.run_id) > after)
    rows = connection.execute(stepped.order_by(column.steps_completed, column.run_id).limit(PAGE)).fetchall()
    if not rows:
        return (), None
    return tuple(map(report_of, rows)), (rows[-1].steps_completed, rows[-1].run_id)


def _same(column: Any, at: datetime, number: int) -> ColumnElement[bool]:
    return and_(column.reported_at == at, column.id > number)


def at_steps(connection: Connection, trial: TrialId, group: str, steps: Collection[int]) -> tuple[MetricReport, ...]:
    """What counts, in `metric_rows.listing_order`."""
    column, found = tables.metrics.c, list[MetricReport]()
    for some in dialect.batches(sorted(set(steps))):
        statement = select(tables.metrics).where(
            column.trial_id == trial, column.metric_group == group, column.steps_completed.in_(some)
        )
        found += [report_of(row) for row in connection.execute(statement.where(column.archived.is_(False)))]
    return tuple(sorted(found, key=metric_rows.listing_order))


def between(
    connection: Connection, trials: Sequence[TrialId], group: str, first_step: int, last_step: int
) -> tuple[MetricReport, ...]:
    """By trial, then step."""
    column, found = tables.metrics.c, list[MetricReport]()
    for some in dialect.batches(sorted(set(trials))):
        statement = select(tables.metrics).where(
            column.trial_id.in_(some),
            column.metric_group == group,
            column.steps_completed.between(first_step, last_step),
            column.archived.is_(False),
        )
        order = (column.trial_id, column.steps_completed, column.run_id)
        found += [report_of(row) for row in connection.execute(statement.order_by(*order))]
    return tuple(found)
