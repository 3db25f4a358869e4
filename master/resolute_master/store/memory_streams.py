"""Metrics and logs in memory: the two streams that are long enough to need an index."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from resolute_master.domain.ids import TaskId, TrialId
from resolute_master.domain.metrics import LogRecord, MetricReport, StepReport
from resolute_master.store import metric_rows
from resolute_master.store.base import LogQuery, MetricOutcome, MetricQuery, keeping_values
from resolute_master.store.encoding import decode, encode
from resolute_master.store.listing import searcher, storable_lines
from resolute_master.store.metric_chunks import Chunk, by_group, chunks_of

METRIC_PAGE = 100
"""Reports of one page: few, so that what reads pages meets several."""


@dataclass(slots=True)
class _MetricRow:
    """A report without its values, and all of it as bytes: readers never share its maps."""

    head: MetricReport
    body: bytes

    @classmethod
    def of(cls, report: MetricReport) -> _MetricRow:
        return cls(head=replace(report, metrics={}, batch_metrics=None), body=encode(report))

    def read(self) -> MetricReport:
        return replace(decode(MetricReport, self.body), archived=self.head.archived)


class MetricTable:
    """All reports, by trial."""

    def __init__(self) -> None:
        self._rows: dict[TrialId, list[_MetricRow]] = defaultdict(list)
        self._keyed: dict[metric_rows.RowKey, _MetricRow] = {}
        self._at_step: dict[tuple[TrialId, int | None], list[_MetricRow]] = defaultdict(list)
        self._rolled_back: dict[TrialId, tuple[int, int]] = {}

    def append(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        # What cannot be written fails the batch here, before any of it is stored.
        with keeping_values():
            plain = [metric_rows.plain_report(report) for report in reports]
            for report in plain:
                encode(report)
        return tuple(self._append_one(report) for report in plain)

    def _append_one(self, report: MetricReport) -> MetricOutcome:
        row = self._find(report)
        if row is None:
            outcome, kept = MetricOutcome.STORED, report
        elif report.steps_completed is None:
            return MetricOutcome.REPEATED
        else:
            outcome, kept = metric_rows.merged(row.read(), report)
        if outcome is MetricOutcome.CONFLICT:
            return outcome
        self._roll_back(report)
        if row is None:
            row = _MetricRow.of(kept)
            self._rows[report.trial_id].append(row)
            self._at_step[report.trial_id, report.steps_completed].append(row)
            if (key := metric_rows.row_key(report)) is not None:
                self._keyed[key] = row
        elif outcome is MetricOutcome.MERGED:
            row.body = encode(kept)
        return outcome

    def _find(self, report: MetricReport) -> _MetricRow | None:
        key = metric_rows.row_key(report)
        if key is not None:
            return self._keyed.get(key)
        for row in self._rows[report.trial_id]:
            if row.head.reported_at == report.reported_at and metric_rows.same_moment(row.read(), report):
                return row
        return None

    def _roll_back(self, by: MetricReport) -> None:
        if by.steps_completed is None or not metric_rows.rolls_back(by):
            return
        run, floor = self._rolled_back.get(by.trial_id, (-1, 0))
        if by.run_id == run and by.steps_completed >= floor:
            # Everything of older runs after `floor` is archived: only rows at this very step can be news.
            candidates = self._at_step[by.trial_id, by.steps_completed]
        else:
            candidates = self._rows[by.trial_id]
            # A late report of an older run may add rows that the newer run's next report must look at: start over.
            self._rolled_back[by.trial_id] = (by.run_id, by.steps_completed) if by.run_id >= run else (-1, 0)
        for row in candidates:
            if not row.head.archived and metric_rows.is_rolled_back(row.head, by):
                row.head = replace(row.head, archived=True)

    def forget(self, trial: TrialId) -> None:
        for row in self._rows.pop(trial, ()):
            if (key := metric_rows.row_key(row.head)) is not None:
                del self._keyed[key]
            self._at_step.pop((trial, row.head.steps_completed), None)
        self._rolled_back.pop(trial, None)

    def outer(self, trial: TrialId, run: int) -> tuple[StepReport, ...]:
        """What the run reported of the fewest steps and of the most."""
        told = [
            StepReport(trial_id=trial, run_id=run, steps_completed=head.steps_completed, at=head.reported_at)
            for head in (row.head for row in self._rows.get(trial, ()))
            if head.run_id == run and head.steps_completed is not None and metric_rows.group_rolls_back(head.group)
        ]
        if not told:
            return ()
        first = min(told, key=lambda report: (report.steps_completed, report.at))
        last = min(told, key=lambda report: (-report.steps_completed, report.at))
        return (first,) if first == last else (first, last)

    def ordered(self, query: MetricQuery) -> tuple[MetricReport, ...]:
        """In the order of the query."""
        low = -1 if query.first_step is None else query.first_step
        rows = [
            row
            for row in self._rows.get(query.trial, ())
            if not row.head.archived and row.head.group in query.groups and _within(row.head, low, query.last_step)
        ]
        rows.sort(key=lambda row: metric_rows.listing_order(row.head), reverse=query.descending)
        return tuple(row.read() for row in rows[query.offset : query.offset + query.limit])

    def chunks(self, trial: TrialId) -> dict[tuple[int, str], tuple[Chunk, ...]]:
        """Chunks of all groups except the system metrics, by trial and group."""
        reports = self.select(trial, None, include_archived=False)
        return {key: tuple(chunks_of(of_key)) for key, of_key in by_group(reports).items()}

    def select(self, trial: TrialId, group: str | None, *, include_archived: bool) -> tuple[MetricReport, ...]:
        rows = [
            row
            for row in self._rows.get(trial, ())
            if (include_archived or not row.head.archived)
            and (row.head.group not in metric_rows.SYSTEM_GROUPS if group is None else row.head.group == group)
        ]
        rows.sort(key=lambda row: metric_rows.listing_order(row.head))
        return tuple(row.read() for row in rows)


def _within(head: MetricReport, low: int, high: int | None) -> bool:
    steps = head.steps_completed
    return steps is not None and steps >= low and (high is None or steps <= high)


class LogTable:
    """All log lines, in the order in which they came."""

    def __init__(self) -> None:
        self._lines: list[LogRecord | None] = []
        self._keys: set[str] = set()
        self._by_task: dict[TaskId, list[int]] = defaultdict(list)

    def append(self, records: Sequence[LogRecord]) -> None:
        for record in storable_lines(records):
            if record.key in self._keys:
                continue
            self._keys.add(record.key)
            self._by_task[record.task_id].append(len(self._lines))
            self._lines.append(replace(record, id=len(self._lines) + 1))

    def forget(self, task: TaskId) -> int:
        """How many lines there were."""
        forgotten = self._by_task.pop(task, [])
        for index in forgotten:
            line = self._lines[index]
            if line is not None:
                self._keys.discard(line.key)
            self._lines[index] = None  # its number is never given again
        return len(forgotten)

    def select(self, query: LogQuery) -> tuple[LogRecord, ...]:
        found_in = searcher(query.text) if query.regex else _holding(query.text)
        of_task = (self._by_task.get(task, ()) for task in dict.fromkeys(query.task_ids))
        lines = (self._lines[index] for index in heapq.merge(*of_task) if index >= query.after_id)
        found = [line for line in lines if line is not None and _line_matches(line, query, found_in)]
        if query.descending:
            found.reverse()
        return tuple(found if query.limit is None else found[: max(query.limit, 0)])


def _holding(text: str) -> Callable[[str], bool]:
    lowered = text.lower()
    return lambda line: lowered in line.lower()


def _line_matches(line: LogRecord, query: LogQuery, found_in: Callable[[str], bool]) -> bool:
    rank = -1 if line.rank is None else line.rank
    return (
        (not query.allocation_ids or line.allocation_id in query.allocation_ids)
        and (not query.agent_ids or line.agent_id in query.agent_ids)
        and (not query.container_ids or line.container_id in query.container_ids)
        and (not query.ranks or rank in query.ranks)
        and (not query.stdtypes or line.stdtype in query.stdtypes)
        and (not query.sources or line.source in query.sources)
        and (not query.levels or line.level in query.levels)
        and (query.before is None or line.at <= query.before)
        and (query.after is None or line.at > query.after)
        and found_in(line.log)
    )
