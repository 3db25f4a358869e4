"""Metrics, logs and step marks: appended in batches, paged by readers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    Update,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    union_all,
    update,
    values,
)

from resolute_master.domain.ids import AllocationId, TaskId, TrialId
from resolute_master.domain.json_text import encode_plain
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark, StepReport
from resolute_master.store import metric_rows
from resolute_master.store.base import LogFields, LogQuery, MetricOutcome
from resolute_master.store.listing import with_nul_again
from resolute_master.store.log_lines import fields_of
from resolute_master.store.sql import chunk_rows, dialect, tables
from resolute_master.store.sql.metric_reads import report_of
from resolute_master.store.sql.searching import searching

# ------------------------------------------------------------------------------------------------------------ metrics


@dataclass(slots=True)
class _Pending:
    """A row as it will be after the batch; `id` None means that it is new."""

    id: int | None
    report: MetricReport
    changed: bool


def append_metrics(connection: Connection, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
    """One outcome a report, as if they came one by one."""
    plain = [metric_rows.plain_report(report) for report in reports]
    batch = _MetricBatch(_stored_rows(connection, plain))
    outcomes = tuple(batch.add(report) for report in plain)
    rolled_back = _rolled_back(connection, batch)
    new = [metric_values(row.report) for row in batch.rows if row.id is None]
    if new:
        connection.execute(insert(tables.metrics), new)
    merged = [{**_metric_texts(row.report), "row": row.id} for row in batch.rows if row.id is not None and row.changed]
    if merged:
        connection.execute(update(tables.metrics).where(tables.metrics.c.id == bindparam("row")), merged)
    fresh = [row.report for row in batch.rows if row.id is None]
    changed = [row.report for row in batch.rows if row.id is not None and row.changed]
    chunk_rows.keep(connection, fresh, changed, rolled_back)
    return outcomes


def _rolled_back(connection: Connection, batch: _MetricBatch) -> dict[TrialId, int]:
    """Archives rows of older runs; of each trial that had some, the lowest step from which on."""
    found: dict[TrialId, int] = {}
    for (trial, run), newer in batch.newer.items():
        archived = connection.execute(_roll_back(trial, run, newer)).rowcount
        if archived or any(row.report.archived and row.report.trial_id == trial for row in batch.rows):
            step = min(report.steps_completed for report in newer if report.steps_completed is not None)
            found[trial] = min(step, found.get(trial, step))
    return found


class _MetricBatch:
    """The rows that a batch touches, changed in memory in the order of its reports."""

    def __init__(self, stored: Sequence[_Pending]) -> None:
        self.rows: list[_Pending] = []
        self.newer: dict[tuple[TrialId, int], list[MetricReport]] = defaultdict(list)
        """By trial and run: reports that may archive rows of older runs."""
        self._keyed: dict[metric_rows.RowKey, _Pending] = {}
        self._timed: dict[_TimeKey, list[_Pending]] = defaultdict(list)
        self._oldest_run: dict[TrialId, int] = {}
        for row in stored:
            self._keep(row)

    def add(self, report: MetricReport) -> MetricOutcome:
        row = self._find(report)
        if row is None:
            outcome = MetricOutcome.STORED
        elif report.steps_completed is None:
            return MetricOutcome.REPEATED
        else:
            outcome, merged = metric_rows.merged(row.report, report)
            if outcome is MetricOutcome.CONFLICT:
                return outcome
            row.changed = row.changed or outcome is MetricOutcome.MERGED
            row.report = merged
        if metric_rows.rolls_back(report):
            self.newer[report.trial_id, report.run_id].append(report)
            self._roll_back(report)
        if row is None:
            self._keep(_Pending(id=None, report=report, changed=True))
        return outcome

    def _roll_back(self, by: MetricReport) -> None:
        if self._oldest_run.get(by.trial_id, by.run_id) >= by.run_id:
            return
        for row in self.rows:
            if metric_rows.is_rolled_back(row.report, by):
                row.report = replace(row.report, archived=True)

    def _keep(self, row: _Pending) -> None:
        self.rows.append(row)
        report = row.report
        self._oldest_run[report.trial_id] = min(report.run_id, self._oldest_run.get(report.trial_id, report.run_id))
        key = metric_rows.row_key(report)
        if key is not None:
            self._keyed[key] = row
        else:
            self._timed[_time_key(report)].append(row)

    def _find(self, report: MetricReport) -> _Pending | None:
        key = metric_rows.row_key(report)
        if key is not None:
            return self._keyed.get(key)
        same_time = self._timed.get(_time_key(report), ())
        return next((row for row in same_time if metric_rows.same_moment(row.report, report)), None)


_TimeKey = tuple[TrialId, int, str, datetime]


def _time_key(report: MetricReport) -> _TimeKey:
    return (report.trial_id, report.run_id, report.group, report.reported_at)


def _stored_rows(connection: Connection, reports: Sequence[MetricReport]) -> list[_Pending]:
    """Rows that reports of the batch may meet: those at the same step, or without a step at the same time."""
    steps: dict[TrialId, set[int]] = defaultdict(set)
    times: dict[TrialId, set[datetime]] = defaultdict(set)
    for report in reports:
        if report.steps_completed is None:
            times[report.trial_id].add(report.reported_at)
        else:
            steps[report.trial_id].add(report.steps_completed)
    column = tables.metrics.c
    rows: list[Row[Any]] = []
    # One look-up a trial: lists of (trial, step) pairs are not looked up by index in SQLite.
    for trial, at_steps in steps.items():
        where = and_(column.trial_id == trial, column.steps_completed.in_(sorted(at_steps)))
        rows.extend(connection.execute(select(tables.metrics).where(where)))
    for trial, at_times in times.items():
        where = and_(
            column.trial_id == trial, column.steps_completed.is_(None), column.reported_at.in_(sorted(at_times))
        )
        rows.extend(connection.execute(select(tables.metrics).where(where)))
    return [_Pending(id=row.id, report=report_of(row), changed=False) for row in rows]


def _roll_back(trial: TrialId, run: int, newer: Sequence[MetricReport]) -> Update:
    """Archives what `metric_rows.is_rolled_back` names, for all reports of one run at once.

    The lowest step decides; the groups matter only for rows at exactly that step.
    """
    column = tables.metrics.c
    first = min(report.steps_completed for report in newer if report.steps_completed is not None)
    groups = sorted({metric_rows.rollback_group(r.group) for r in newer if r.steps_completed == first})
    same_group = [
        column.metric_group == group if group else column.metric_group.not_in(metric_rows.STEPPED_GROUPS)
        for group in groups
    ]
    return (
        update(tables.metrics)
        .where(
            column.trial_id == trial,
            column.steps_completed >= first,
            column.run_id < run,
            column.archived.is_(False),
            column.metric_group.not_in(sorted(metric_rows.SYSTEM_GROUPS)),
            or_(column.steps_completed > first, *same_group),
        )
        .values(archived=True)
    )


def metric_values(report: MetricReport) -> dict[str, Any]:
    """The report as a row of its table."""
    return {
        "trial_id": report.trial_id,
        "run_id": report.run_id,
        "metric_group": report.group,
        "steps_completed": report.steps_completed,
        "reported_at": report.reported_at,
        "archived": report.archived,
        **_metric_texts(report),
    }


def _metric_texts(report: MetricReport) -> dict[str, Any]:
    batches = report.batch_metrics
    return {
        "metrics": encode_plain(report.metrics).decode(),
        "batch_metrics": None if batches is None else encode_plain(batches).decode(),
    }


def outer_reports(connection: Connection, runs: Collection[tuple[TrialId, int]]) -> tuple[StepReport, ...]:
    """By trial, run and step."""
    asked = sorted(set(runs))
    return tuple(report for some in dialect.batches(asked) for report in _outer_reports(connection, some))


def _outer_reports(connection: Connection, runs: Sequence[tuple[TrialId, int]]) -> tuple[StepReport, ...]:
    """Two looks into the index a run, from the beginning and from the end of its trial to its first row there; the contents of
    reports are not read."""
    asked = values(Column("trial_id", BigInteger), Column("run_id", BigInteger)).data(list(runs)).cte("asked")
    column = tables.metrics.c
    counted = column.metric_group.not_in(sorted(metric_rows.SYSTEM_GROUPS))
    of_run = and_(column.trial_id == asked.c.trial_id, column.run_id == asked.c.run_id, counted)
    own = select(column.steps_completed).where(of_run, column.steps_completed.is_not(None)).correlate(asked).limit(1)
    looks = (own.order_by(column.steps_completed), own.order_by(column.steps_completed.desc()))
    steps = union_all(*(select(asked, look.scalar_subquery().label("steps")) for look in looks)).subquery()
    key = (column.trial_id, column.run_id, column.steps_completed)
    told = and_(key[0] == steps.c.trial_id, key[1] == steps.c.run_id, key[2] == steps.c.steps)
    found = select(*key, func.min(column.reported_at).label("at")).join(steps, told).where(counted)
    return tuple(
        StepReport(trial_id=row.trial_id, run_id=row.run_id, steps_completed=row.steps_completed, at=row.at)
        for row in connection.execute(found.group_by(*key).order_by(*key))
    )


# --------------------------------------------------------------------------------------------------------------- logs


def insert_logs(connection: Connection, records: Sequence[LogRecord]) -> None:
    """In order; records whose key is there already are left out."""
    if records:
        rows = [log_values(record) for record in records]
        connection.execute(dialect.insert_new(connection, tables.logs, "key"), rows)


def logs(connection: Connection, query: LogQuery) -> tuple[LogRecord, ...]:
    """Raises `InvalidInput` for a `text` that should be a regular expression and is none, or takes long to search for."""
    searched = searching(connection, tables.logs.c.log, query.text) if query.regex else nullcontext(_holding(query))
    with searched as found:
        return _logs(connection, query, found)


def _holding(query: LogQuery) -> tuple[ColumnElement[bool], ...]:
    return (dialect.contains(tables.logs.c.log, query.text),) if query.text else ()


def _logs(connection: Connection, query: LogQuery, found: Sequence[ColumnElement[bool]]) -> tuple[LogRecord, ...]:
    if not query.task_ids:
        return ()
    column = tables.logs.c
    statement = select(tables.logs).where(column.task_id.in_(query.task_ids), column.id > query.after_id)
    statement = statement.where(*_log_filters(query), *found)
    statement = statement.order_by(column.id.desc() if query.descending else column.id)
    if query.limit is not None:
        statement = statement.limit(max(query.limit, 0))
    return tuple(_log_record(row) for row in connection.execute(statement))


def log_fields(connection: Connection, task: TaskId, after_id: int) -> LogFields:
    """Distinguished by the database: of a hundred thousand lines it returns few rows."""
    column = tables.logs.c
    fields = (
        column.agent_id,
        column.allocation_id,
        column.container_id,
        func.coalesce(column.rank, -1),
        column.source,
        column.stdtype,
    )
    found = select(*fields, func.max(column.id)).where(column.task_id == task, column.id > after_id).group_by(*fields)
    return fields_of(tuple(row) for row in connection.execute(found))


def remove_logs(connection: Connection, tasks: Sequence[TaskId]) -> int:
    """How many lines were removed."""
    return connection.execute(delete(tables.logs).where(tables.logs.c.task_id.in_(tasks))).rowcount


def _log_filters(query: LogQuery) -> list[ColumnElement[bool]]:
    column = tables.logs.c
    alternatives = [
        (column.allocation_id, query.allocation_ids),
        (column.agent_id, query.agent_ids),
        (column.container_id, query.container_ids),
        (func.coalesce(column.rank, -1), query.ranks),
        (column.stdtype, query.stdtypes),
        (column.source, query.sources),
        (column.level, query.levels),
    ]
    filters: list[ColumnElement[bool]] = [name.in_(values) for name, values in alternatives if values]
    if query.before is not None:
        filters.append(column.at <= query.before)
    if query.after is not None:
        filters.append(column.at > query.after)
    return filters


def log_values(record: LogRecord) -> dict[str, Any]:
    """The line as a row of its table; the number is the database's to give."""
    return {
        "key": record.key,
        "task_id": record.task_id,
        "allocation_id": record.allocation_id,
        "agent_id": record.agent_id,
        "container_id": record.container_id,
        "rank": record.rank,
        "at": record.at,
        "level": record.level,
        "stdtype": record.stdtype,
        "source": record.source,
        "log": record.log,
    }


def _log_record(row: Row[Any]) -> LogRecord:
    return LogRecord(
        id=row.id,
        key=row.key,
        task_id=TaskId(row.task_id),
        allocation_id=row.allocation_id,
        agent_id=row.agent_id,
        container_id=row.container_id,
        rank=row.rank,
        at=row.at,
        level=row.level,
        stdtype=row.stdtype,
        source=row.source,
        log=with_nul_again(row.log),
    )


# --------------------------------------------------------------------------------------------------------- step marks


def append_step_marks(connection: Connection, marks: Sequence[StepMark]) -> None:
    """Keyed by allocation and time; what is there stays."""
    if not marks:
        return
    rows = [mark_values(mark) for mark in marks]
    connection.execute(dialect.insert_new(connection, tables.step_marks, "allocation_id", "at"), rows)


def mark_values(mark: StepMark) -> dict[str, Any]:
    """The mark as a row of its table."""
    return {
        "allocation_id": mark.allocation_id,
        "at": mark.at,
        "steps_completed": mark.steps_completed,
        "checkpointing_s": mark.checkpointing_s,
    }


def step_marks(connection: Connection, allocations: Sequence[AllocationId]) -> tuple[StepMark, ...]:
    """By allocation, then time."""
    column = tables.step_marks.c
    found = select(tables.step_marks).where(column.allocation_id.in_(allocations))
    return _marks(connection, found)


_BEFORE_ALL = datetime.min.replace(tzinfo=UTC)


def relevant_marks(connection: Connection, steps: Mapping[AllocationId, int]) -> tuple[StepMark, ...]:
    """By allocation, then time."""
    asked = sorted(steps.items())
    return tuple(mark for some in dialect.batches(asked) for mark in _relevant_marks(connection, some))


def _relevant_marks(connection: Connection, steps: Sequence[tuple[AllocationId, int]]) -> tuple[StepMark, ...]:
    """Four looks into the index an allocation, whatever it holds: from its beginning, from its end, and from its end back to
    where it had done fewer steps, which is as far as what was lost."""
    asked = values(Column("id", tables.NameText), Column("steps", BigInteger)).data(list(steps)).cte("asked")
    mark = tables.step_marks.c
    own = select(mark.at).where(mark.allocation_id == asked.c.id).limit(1)
    below = own.where(mark.steps_completed < asked.c.steps).order_by(mark.at.desc())
    after = tables.step_marks.alias("after")
    following = (
        select(after.c.at)
        .where(after.c.allocation_id == asked.c.id)
        .where(after.c.at > func.coalesce(below.scalar_subquery(), literal(_BEFORE_ALL, tables.Moment)))
        .order_by(after.c.at)
        .limit(1)
    )
    looks = (own.order_by(mark.at), own.order_by(mark.at.desc()), below, following)
    moments = union_all(*(select(asked.c.id, look.scalar_subquery().label("at")) for look in looks)).subquery()
    told = and_(mark.allocation_id == moments.c.id, mark.at == moments.c.at)
    return _marks(connection, select(tables.step_marks).join(moments, told).distinct())


def _marks(connection: Connection, found: Select[Any]) -> tuple[StepMark, ...]:
    column = tables.step_marks.c
    return tuple(
        StepMark(
            allocation_id=row.allocation_id,
            steps_completed=row.steps_completed,
            at=row.at,
            checkpointing_s=row.checkpointing_s,
        )
        for row in connection.execute(found.order_by(column.allocation_id, column.at))
    )
