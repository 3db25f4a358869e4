"""Metrics, logs and step marks: batched to the store, acknowledged when they are durable, then submitted to the rules."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from resolute.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from resolute.wire.times import FIRST_YEAR, is_settled
from resolute_master.domain.commands import RecordLogMatches, RecordReports, StoredReport
from resolute_master.domain.ids import TaskId, TrialId
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark
from resolute_master.domain.trial import Trial
from resolute_master.engine.cycle import RuleFault
from resolute_master.engine.engine import Engine, Watch
from resolute_master.engine.log_matching import Hit, LogMatching, by_task
from resolute_master.store.base import MetricOutcome, Store, Unstorable
from resolute_master.store.writers import BatchedWriter

log = logging.getLogger(__name__)

VALIDATION_GROUP = "validation"

_RUN_AND_GROUP = attrgetter("trial_id", "run_id", "group")
_STEPS = attrgetter("steps_completed")

CLOSE_S = 5.0
"""Time to store accepted items when the master stops."""

LOG_ROW_BYTES = 200
"""Approximate bytes of a log line besides its text."""


KNOWN_TOGETHER = 2
"""Consecutive batches of reports that are submitted to the rules at once: a cycle and its commit cost as much as 200 rows."""

_NO_TIME = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
"""Time of a line whose own time cannot be stored."""

FULL_INBOX_S = 0.5
"""Delay before matches of log policies are submitted again when the engine's inbox is full."""


class Reporting:
    """One batched writer per stream. It runs inside `run`; every method returns when its rows are durable."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._metrics: BatchedWriter[MetricReport, MetricOutcome] = BatchedWriter(
            store.append_metrics, publish=self._submit_to_rules, known_together=KNOWN_TOGETHER
        )
        self._logs: BatchedWriter[LogRecord, None] = BatchedWriter(
            self._store_logs,
            size_of=lambda record: len(record.log) + LOG_ROW_BYTES,
            publish=self._apply_policies,
        )
        self._matching = LogMatching(engine)
        self._applying: list[asyncio.Event] = []
        """One event for each batch of lines in progress, in order; set when its matches are submitted."""
        self._marks: BatchedWriter[StepMark, None] = BatchedWriter(store.append_step_marks)
        self._log_watchers: dict[Any, set[Watch]] = {}
        engine.on_commit(lambda change: self._wake(record.task_id for record in change.logs))

    async def close(self) -> None:
        """Stores accepted rows first, unless the store is unavailable. Rows that are not stored were not acknowledged."""
        try:
            async with asyncio.timeout(CLOSE_S):
                for writer in (self._metrics, self._logs, self._marks):
                    await writer.close()
        except TimeoutError:
            log.warning(
                "the store does not accept the remaining reports, so their senders get no confirmation: %s",
                self.unstored(),
            )

    def unstored(self) -> Mapping[str, int]:
        """Number of accepted rows that are not durable yet, by stream."""
        return {
            "metrics": self._metrics.unstored,
            "logs": self._logs.unstored,
            "step_marks": self._marks.unstored,
        }

    # -- for the doors -----------------------------------------------------------------------------------------

    async def metrics(self, report: MetricReport) -> MetricOutcome:
        """Stores a report. Raises `NotFound` for an unknown trial and `Conflict` for a run that a newer one has replaced."""
        self.check_run(report)
        (outcome,) = await self._metrics.append([report])
        return outcome

    async def metric_batch(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        """Stores reports of one run of one trial; returns the outcome of each. Raises the errors of `metrics`."""
        self.check_run(reports[0])
        return await self._metrics.append(reports)

    async def logs(self, records: Sequence[LogRecord]) -> None:
        """Stores lines of one or several tasks. Each task has its own turn, so that a task that writes much delays no other.

        When the lines of one task are not stored, those of the others may be: a repeat is harmless, for lines have keys.
        """
        stored = [self._logs.append(lines, share=task) for task, lines in by_task(records).items()]
        if len(stored) == 1:
            await stored[0]
            return
        for outcome in await asyncio.gather(*stored, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def step_marks(self, marks: Sequence[StepMark]) -> None:
        await self._marks.append(marks)

    def check_run(self, report: MetricReport) -> None:
        """Checks that the report comes from the newest run of its trial."""
        trial = self._engine.state.get(Trial, report.trial_id)
        if trial is None:
            raise NotFound("trial", report.trial_id)
        if report.run_id < trial.run_id:
            raise Conflict(
                f"run {report.run_id} of trial {trial.id} is over: run {trial.run_id} has begun; its reports are refused"
            )

    def watch_logs(self, task_ids: Sequence[TaskId]) -> Watch:
        """A watch of stored lines of these tasks."""
        return Watch(self._log_watchers, task_ids)

    # -- flushes -----------------------------------------------------------------------------------------------

    async def _submit_to_rules(self, reports: Sequence[MetricReport], outcomes: Sequence[MetricOutcome] | None) -> None:
        """The rules receive a report before its sender gets the answer, so a repeat recovers from any crash.

        Of the reports without a validation, only the latest of each run is needed.
        """
        stored: Iterable[MetricReport] = reports
        if outcomes is not None and MetricOutcome.CONFLICT in outcomes:
            paired = zip(reports, outcomes, strict=True)
            stored = [report for report, outcome in paired if outcome is not MetricOutcome.CONFLICT]
        furthest: dict[tuple[TrialId, int], MetricReport] = {}
        validations: list[MetricReport] = []
        # What came in one request is of one run and group: there is one look at each report, and few at anything else.
        for (trial, run, group), following in groupby(stored, _RUN_AND_GROUP):
            stepped = [report for report in following if report.steps_completed is not None]
            if group == VALIDATION_GROUP:
                validations += stepped
            elif stepped:
                known = furthest.get((trial, run))
                furthest[trial, run] = max(stepped if known is None else [known, *stepped], key=_STEPS)
        told = [*furthest.values(), *validations]
        if told:
            await self._publish(tuple(map(_stored, told)))

    async def _publish(self, reports: tuple[StoredReport, ...]) -> None:
        """Reports that the rules cannot process together are submitted one by one, so that one does not block the others."""
        try:
            await self._engine.submit(RecordReports(reports=reports))
        except (InvalidInput, RuleFault) as error:
            if len(reports) > 1:
                for report in reports:
                    await self._publish((report,))
                return
            for report in reports:
                log.error("a metric report of trial %d is stored, but refused by the rules: %s", report.trial, error)

    async def _store_logs(self, records: Sequence[LogRecord]) -> None:
        await self._store_lines(records)
        self._wake(record.task_id for record in records)

    async def _store_lines(self, records: Sequence[LogRecord]) -> None:
        """A line that cannot be stored is replaced by a message about it: an agent would otherwise send it, and all lines after
        it, for ever."""
        try:
            await self._store.append_logs(records)
        except Unstorable as error:
            if len(records) > 1:
                half = len(records) // 2
                await self._store_lines(records[:half])
                await self._store_lines(records[half:])
            else:
                await self._store_notice(records[0], error)

    async def _store_notice(self, record: LogRecord, error: Unstorable) -> None:
        log.warning("a line of task %s is not stored as it is: %s", record.task_id, error)
        try:
            await self._store.append_logs([_notice_of(record, error)])
        except Unstorable as again:
            log.warning("nor is a notice in its place: %s", again)

    async def _apply_policies(self, records: Sequence[LogRecord], outcomes: object) -> None:
        """Matches of log policies are durable before the sender of the lines gets the answer.

        Of two batches the later may be matched first. Their matches are submitted in order, because the last
        match is the one that labels the trial; a batch without matches waits for none.
        """
        earlier, told = tuple(self._applying), asyncio.Event()
        self._applying.append(told)
        try:
            hits = await self._matching.hits(records)
            if hits:
                for batch in earlier:
                    await batch.wait()
                await self._submit_matches(hits)
        finally:
            told.set()
            self._applying.remove(told)

    async def _submit_matches(self, hits: Mapping[TaskId, Sequence[Hit]]) -> None:
        while matches := self._matching.news(hits):
            try:
                await self._engine.submit(RecordLogMatches(matches=matches))
                return
            except LimitExceeded as full:
                await asyncio.sleep(full.retry_after_s or FULL_INBOX_S)

    def _wake(self, tasks: Iterable[TaskId]) -> None:
        for task in set(tasks):
            for watch in tuple(self._log_watchers.get(task, ())):
                watch.wake()


def _notice_of(record: LogRecord, error: Unstorable) -> LogRecord:
    """The line in place of one that cannot be stored. It has the same key, or one derived from it, so that a repeat is still
    skipped."""
    key = hashlib.sha256(record.key.encode(errors="replace")).hexdigest()
    at = record.at if is_settled(record.at) else _NO_TIME
    return replace(record, key=key, rank=None, at=at, log=f"[a line of the output is not shown: {error}]\n")


def _stored(report: MetricReport) -> StoredReport:
    assert report.steps_completed is not None
    return StoredReport(
        trial=report.trial_id,
        run_id=report.run_id,
        steps_completed=report.steps_completed,
        validation=report.metrics if report.group == VALIDATION_GROUP else None,
        reported_at=report.reported_at,
    )
