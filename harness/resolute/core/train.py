"""Reporting of a training run: metrics, progress, status, early exit, and the step marks of the cost ledger."""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from resolute.clock import Clock
from resolute.core.sender import PendingFlag, Report, Sender, monotonic
from resolute.core.session import MissingAtMaster, Session
from resolute.core.values import encodable, encodable_metrics, rfc3339
from resolute.errors import InvalidInput
from resolute.task_info import TrialInfo

logger = logging.getLogger("resolute.core.train")

MARK_PERIOD_S = 0.5
"""Least time between two marks while stepping: short enough to book slot-seconds, long enough to cost nothing."""
MARKS_LIMIT = 20_000
"""Marks that are kept while the master is unavailable, about three hours; beyond this the oldest are dropped."""


class EarlyExitReason(Enum):
    """Why a trial ends before its length."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class TrainContext(Protocol):
    """The reports of user code. `steps_completed` always counts finished steps since the trial began."""

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None: ...

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]] | None = None
    ) -> None: ...

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None: ...

    def report_progress(self, progress: float) -> None: ...

    def report_early_exit(self, reason: EarlyExitReason) -> None: ...

    def set_status(self, status: str) -> None: ...

    def mark_step(self, steps_completed: int) -> None: ...

    def add_blocked_by_save(self, seconds: float) -> None: ...

    def get_experiment_best_validation(self) -> float | None: ...

    def flush(self, timeout_s: float | None = None) -> None: ...

    def close(self, *, failed: bool = False) -> None: ...


def check_group(group: str) -> None:
    if not group or "." in group:
        raise InvalidInput(f"the metric group {group!r} must be a non-empty text without '.'")


def check_progress(progress: float) -> float:
    if not 0.0 <= progress <= 1.0:
        raise InvalidInput(f"progress is {progress}; it must be between 0 and 1")
    return float(progress)


class StepMarks:
    """When which step was reached, and how long saves have blocked the step loop so far.

    The first mark reports that the first step is about to begin: from then on the slot does useful work. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._pending: deque[dict[str, Any]] = deque(maxlen=MARKS_LIMIT)
        self._last_at: float | None = None
        self._last_steps: int | None = None
        self._blocked_s = 0.0

    @property
    def started(self) -> bool:
        return self._last_steps is not None

    def step(self, steps: int, *, now: bool = False) -> bool:
        """Record that `steps` are completed. Returns whether a mark was made, which is to be sent."""
        with self._lock:
            first = self._last_steps is None
            self._last_steps = steps
            at = monotonic()
            if not (now or first or self._last_at is None or at - self._last_at >= MARK_PERIOD_S):
                return False
            self._last_at = at
            self._pending.append(self._mark(steps))
            return True

    def blocked(self, seconds: float) -> bool:
        """Record the end of a save. Returns whether a mark was made; before the first step a save is part of starting."""
        with self._lock:
            self._blocked_s += seconds
            if self._last_steps is None:
                return False
            self._last_at = monotonic()
            self._pending.append(self._mark(self._last_steps))
            return True

    def last(self) -> bool:
        """Record the end of the run."""
        return self._last_steps is not None and self.step(self._last_steps, now=True)

    def take(self) -> list[dict[str, Any]]:
        with self._lock:
            marks = list(self._pending)
            self._pending.clear()
            return marks

    def _mark(self, steps: int) -> dict[str, Any]:
        return {"steps": steps, "at": rfc3339(self._clock.now()), "checkpointingS": self._blocked_s}


class ManagedTrain:
    """Reports of a trial to its master. Metrics and marks go through the sender, in the order of the calls."""

    def __init__(
        self, *, session: Session, sender: Sender, trial: TrialInfo, allocation_id: str, clock: Clock, marking: bool
    ) -> None:
        self._session = session
        self._sender = sender
        self._trial = trial
        self._clock = clock
        self._marks = StepMarks(clock)
        self._marks_path = f"/api/v1/allocations/{allocation_id}/step_marks"
        self._marks_queued = PendingFlag()
        self._marking = marking

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        """Queue one report. Same group and step merge at the master, so keys must not repeat with other values."""
        self._report(group, steps_completed, metrics, None)

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """`batch_metrics`, when given, has one entry for each of the last steps, the newest last."""
        self._report("training", steps_completed, metrics, batch_metrics)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        self._report("validation", steps_completed, metrics, None)

    def report_progress(self, progress: float) -> None:
        """Reports the share of the whole training that is done, 0 to 1."""
        body = {"progress": check_progress(progress), "is_raw": True}
        path = f"/api/v1/trials/{self._trial.trial_id}/progress"
        self._sender.put(Report(path=path, body=lambda: body, required=False))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        self._sender.flush()
        try:
            self._session.post(f"/api/v1/trials/{self._trial.trial_id}/early_exit", {"reason": reason.value})
        except InvalidInput as error:
            logger.info("the early exit is already known: %s", error)

    def set_status(self, status: str) -> None:
        """Sets a text that is shown beside the trial."""
        path = f"/api/v1/trials/{self._trial.trial_id}/runner/metadata"
        self._sender.put(Report(path=path, body=lambda: {"state": status}, required=False))

    def mark_step(self, steps_completed: int) -> None:
        """Call before the first step with the steps done so far, and after each step. Cheap: mostly a comparison."""
        if self._marks.step(steps_completed):
            self._queue_marks()

    def add_blocked_by_save(self, seconds: float) -> None:
        """Reports how long a save has just blocked the step loop."""
        if self._marks.blocked(seconds):
            self._queue_marks()

    def get_experiment_best_validation(self) -> float | None:
        """The best searcher metric of the whole experiment; None when nothing was validated yet."""
        path = f"/api/v1/experiments/{self._trial.experiment_id}/searcher/best_searcher_validation_metric"
        try:
            value = self._session.get(path)["metric"]
        except MissingAtMaster:
            return None
        return None if value is None else float(value)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all reports are stored. Raises what the master refused."""
        self._sender.flush(timeout_s)

    def close(self, *, failed: bool = False) -> None:
        """Send the last mark and all queued reports. After a failure of the user's code, errors are only logged."""
        try:
            if self._marks.last():
                self._queue_marks()
            self._sender.close()
        except Exception as error:
            if not failed:
                raise
            logger.error("reports were lost at the end: %s", error)

    def _report(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        check_group(group)
        values: dict[str, Any] = {"avgMetrics": encodable_metrics(group, metrics)}
        if batch_metrics is not None:
            values["batchMetrics"] = [encodable(dict(entry), "batch_metrics") for entry in batch_metrics]
        body = {
            "group": group,
            "metrics": {
                "trialId": self._trial.trial_id,
                "trialRunId": self._trial.trial_run_id,
                "stepsCompleted": int(steps_completed),
                "reportTime": rfc3339(self._clock.now()),
                "metrics": values,
            },
        }
        path = f"/api/v1/trials/{self._trial.trial_id}/metrics"
        self._sender.put(Report(path=path, body=lambda: body))
        if group == "training":
            self.mark_step(int(steps_completed))

    def _queue_marks(self) -> None:
        if self._marking and self._marks_queued.raise_once():
            self._sender.put(Report(path=self._marks_path, body=self._marks_body, required=False))

    def _marks_body(self) -> dict[str, Any] | None:
        self._marks_queued.lower()
        marks = self._marks.take()
        return {"marks": marks} if marks else None


class LocalTrain:
    """The variant without a master: it makes the same checks and, given a file, appends each report to it as JSON."""

    def __init__(self, *, clock: Clock, path: Path | None = None) -> None:
        self._clock = clock
        self._path = path
        self._best: float | None = None

    def report_metrics(self, group: str, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        check_group(group)
        self._write(group=group, steps_completed=int(steps_completed), metrics=encodable_metrics(group, metrics))

    def report_training_metrics(
        self, steps_completed: int, metrics: Mapping[str, Any], batch_metrics: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        extra = {} if batch_metrics is None else {"batch_metrics": encodable(list(batch_metrics), "batch_metrics")}
        kept = encodable_metrics("training", metrics)
        self._write(group="training", steps_completed=int(steps_completed), metrics=kept, **extra)

    def report_validation_metrics(self, steps_completed: int, metrics: Mapping[str, Any]) -> None:
        self.report_metrics("validation", steps_completed, metrics)

    def report_progress(self, progress: float) -> None:
        self._write(progress=check_progress(progress))

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        self._write(early_exit=reason.value)

    def set_status(self, status: str) -> None:
        self._write(status=status)

    def mark_step(self, steps_completed: int) -> None:
        """There is no ledger off-cluster."""

    def add_blocked_by_save(self, seconds: float) -> None:
        """There is no ledger off-cluster."""

    def get_experiment_best_validation(self) -> float | None:
        return None

    def flush(self, timeout_s: float | None = None) -> None:
        """Nothing to do: each report is written at once."""

    def close(self, *, failed: bool = False) -> None:
        """Nothing to do: no file stays open."""

    def _write(self, **fields: Any) -> None:
        line = json.dumps({"at": rfc3339(self._clock.now()), **fields})
        logger.info("%s", line)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + os.linesep)
