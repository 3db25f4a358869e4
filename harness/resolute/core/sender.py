"""A background thread that posts reports to the master in order, so that training never waits for the network.

The queue is bounded: when the master is unavailable for long, reports block instead of filling the memory. An error of a report
that must arrive stops the sender and is raised to the user by the next call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from resolute.core.session import StaleRun
from resolute.errors import ResoluteError

logger = logging.getLogger("resolute.core.sender")

QUEUE_LIMIT = 1000
"""Reports in the queue: at one report per step, a minute or more of steps."""


class Poster(Protocol):
    """The part of a session that the sender needs."""

    def post(self, path: str, body: Any = None) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One POST. `body` is called when its turn comes, so that it may gather what has accumulated; None sends nothing.

    A report that is not `required` only warns when the master refuses it; a stale run is fatal for either.
    """

    path: str
    body: Callable[[], Any | None]
    required: bool = True


class Sender:
    """Start, put, flush, close. Thread-safe."""

    def __init__(self, poster: Poster, *, limit: int = QUEUE_LIMIT) -> None:
        self._poster = poster
        self._limit = limit
        self._waiting: deque[Report] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._stopping = False
        self._error: ResoluteError | None = None
        self._refused: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="resolute-sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, report: Report) -> None:
        """Queue a report; blocks while the queue is full. Raises the error of an earlier report, if there was one."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or len(self._waiting) < self._limit)
            self._raise_error()
            self._waiting.append(report)
            self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything put so far is stored by the master. Raises what went wrong, or `TimeoutError`."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._error is not None or (not self._waiting and not self._busy), timeout_s
            )
            self._raise_error()
            if not done:
                raise TimeoutError(f"{len(self._waiting)} reports were not taken by the master within {timeout_s} s")

    def close(self, *, drain: bool = True) -> None:
        """Send the queued reports (unless an error stopped the sender), then end the thread. Raises a pending error."""
        try:
            if drain:
                self.flush()
        finally:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            if self._thread.is_alive():
                self._thread.join(timeout=5.0)

    def check(self) -> None:
        """Raise the error of an earlier report, if there was one."""
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._stopping)
                if self._stopping:
                    return
                report = self._waiting.popleft()
                self._busy = True
            error = self._send(report)
            with self._changed:
                self._busy = False
                if error is not None:
                    self._error = error
                    self._stopping = True
                self._changed.notify_all()

    def _send(self, report: Report) -> ResoluteError | None:
        try:
            body = report.body()
            if body is not None:
                self._poster.post(report.path, body)
            return None
        except StaleRun as error:
            return StaleRun(f"this run of the trial has been superseded and must end: {error}")
        except ResoluteError as error:
            if report.required:
                return error
            self._warn_once(report.path, error)
            return None
        except Exception as error:  # a bug in a body must reach the user, not end the thread silently
            logger.exception("preparing a report for %s failed", report.path)
            return ResoluteError(f"preparing a report for {report.path} failed: {error!r}")

    def _warn_once(self, path: str, error: ResoluteError) -> None:
        if path not in self._refused:
            self._refused.add(path)
            logger.warning(
                "the master did not accept a report to %s (further ones only at level DEBUG): %s", path, error
            )
        else:
            logger.debug("the master did not accept a report to %s: %s", path, error)


class PendingFlag:
    """Whether a request to gather something is already queued; set and cleared from two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False

    def raise_once(self) -> bool:
        """True for the caller that must queue the request."""
        with self._lock:
            already, self._set = self._set, True
            return not already

    def lower(self) -> None:
        with self._lock:
            self._set = False


def monotonic() -> float:
    """Seconds for measuring durations inside this process."""
    return time.monotonic()
