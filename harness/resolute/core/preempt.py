"""Detects that the run should stop, from the master's long poll and from the notice file of the machine.

Programs check at every step: a check reads a flag and one file's modification time, and a single process checks at most ten times
a second. A check that takes 8 µs when repeated takes 80 µs between steps, because the steps displace its data from the caches.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from resolute.clock import Clock
from resolute.core.distributed import DistributedContext
from resolute.core.session import Session
from resolute.core.values import parse_time, rfc3339
from resolute.errors import FailedPrecondition, PermissionDenied, ResoluteError, Unauthenticated, Unavailable
from resolute.grace_period import GracePeriod
from resolute.wire.states import NoticeKind

logger = logging.getLogger("resolute.core.preempt")

POLL_S = 60
"""Seconds for which the master holds one poll."""
FIRST_ANSWER_WAIT_S = 10.0
"""Time that the first check waits for the master's first answer before it continues without it."""
PAUSE_AFTER_ERROR_S = 2.0
LAST_WAIT_S = 2.0
"""Least time that `close` waits for an acknowledgement in progress, even if the notice's deadline has passed."""
LOOK_PERIOD_S = 0.1
"""Period of the checks of a single process, which gets the previous result in between. A notice leaves at least seconds."""
NOTICE_FILE = "notice.json"
PID_FILE = "notice.pid"


class PreemptMode(Enum):
    """The processes of a distributed job that check."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    """Every rank checks, in step; all get the chief's answer."""
    ChiefOnly = "CHIEF_ONLY"
    """Only rank 0 polls, and informs the others by its own means."""
    WorkersAskMaster = "WORKERS_ASK_MASTER"
    """Each rank checks for itself; answers may differ for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopSignal:
    """The current state: whether to stop, until when, why; and whether a checkpoint without a stop is requested."""

    preempt: bool = False
    """Stop now."""
    noticed: bool = False
    """The machine goes away at `deadline`: stop before."""
    checkpoint_wanted: bool = False
    deadline: datetime | None = None
    reason: str = ""

    def merged(self, other: StopSignal) -> StopSignal:
        """The combination of both signals: the earlier deadline, the first reason."""
        deadlines = [moment for moment in (self.deadline, other.deadline) if moment is not None]
        return StopSignal(
            preempt=self.preempt or other.preempt,
            noticed=self.noticed or other.noticed,
            checkpoint_wanted=self.checkpoint_wanted or other.checkpoint_wanted,
            deadline=min(deadlines, default=None),
            reason=self.reason or other.reason,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "preempt": self.preempt,
            "noticed": self.noticed,
            "checkpoint_wanted": self.checkpoint_wanted,
            "deadline": None if self.deadline is None else rfc3339(self.deadline),
            "reason": self.reason,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> StopSignal:
        return cls(
            preempt=bool(body["preempt"]),
            noticed=bool(body["noticed"]),
            checkpoint_wanted=bool(body["checkpoint_wanted"]),
            deadline=None if body["deadline"] is None else parse_time(body["deadline"]),
            reason=str(body["reason"]),
        )


def signal_of_notice(notice: dict[str, Any]) -> StopSignal:
    """The signal of a notice `{kind, deadline, reason}`. A rebalance requests a checkpoint only: the end is not certain. Without
    a deadline the machine may be taken away at any time."""
    kind = str(notice.get("kind") or "")
    deadline = notice.get("deadline")
    rebalance = kind == NoticeKind.REBALANCE
    return StopSignal(
        preempt=not rebalance and not deadline,
        noticed=not rebalance and bool(deadline),
        checkpoint_wanted=rebalance,
        deadline=parse_time(deadline) if deadline else None,
        reason=str(notice.get("reason") or kind),
    )


def signal_of_poll(answer: dict[str, Any]) -> StopSignal:
    """The signal of the master's answer: `preempt`, and the extensions `reason` and `notice`. The preemption of a task on a
    machine with a notice has the notice's deadline."""
    notice = answer.get("notice")
    given = signal_of_notice(notice) if isinstance(notice, dict) else StopSignal()
    preempt = bool(answer.get("preempt")) and not given.noticed
    return StopSignal(preempt=preempt, reason=str(answer.get("reason") or "")).merged(given)


class PreemptContext(Protocol):
    """Checks whether to stop, and acknowledges that the run stops."""

    def should_preempt(self, auto_ack: bool = True) -> bool: ...

    def should_checkpoint(self) -> bool: ...

    def acknowledge_preemption_signal(self) -> None: ...

    @property
    def noticed(self) -> bool: ...

    @property
    def deadline(self) -> datetime | None: ...

    @property
    def reason(self) -> str: ...

    def start(self) -> None: ...

    def close(self, *, failed: bool = False) -> None: ...


class NoticeFileReader:
    """Reads `notice.json` when it has changed; a check costs one `stat`."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._seen: tuple[int, int] | None = None
        self._signal = StopSignal()

    def read(self) -> StopSignal:
        try:
            found = os.stat(self._path)
        except OSError:
            return self._signal
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp != self._seen:
            try:
                with open(self._path, encoding="utf-8") as file:
                    self._signal = self._signal.merged(signal_of_notice(json.load(file)))
                self._seen = stamp
            except (OSError, ValueError, AttributeError, TypeError) as error:
                # Leave `_seen` alone, so that a file that was caught half written is read again.
                logger.warning("the notice file %s cannot be read: %s", self._path, error)
        return self._signal


class PreemptWatcher:
    """Long-polls the master in a thread and keeps the answer."""

    def __init__(self, session: Session, allocation_id: str) -> None:
        self._session = session
        self._path = f"/api/v1/allocations/{allocation_id}/signals/preemption"
        self._signal = StopSignal()
        self._answered = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resolute-preemption", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def read(self, *, wait: bool = True) -> StopSignal:
        """The master's last answer. With `wait`, the first call waits for the first answer."""
        if wait and not self._answered.is_set():
            self._answered.wait(FIRST_ANSWER_WAIT_S)
            self._answered.set()
        return self._signal

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        hold_s = 0
        while not self._closed.is_set() and not (self._signal.preempt or self._signal.noticed):
            try:
                answer = self._session.get(self._path, {"timeout_seconds": hold_s}, timeout_s=hold_s + 10.0)
                self._signal = self._signal.merged(signal_of_poll(answer))
                hold_s = POLL_S
                # A rebalance notice stays in the master's answers, which then come at once: do not spin on it.
                pause_s = PAUSE_AFTER_ERROR_S if self._signal.checkpoint_wanted else 0.0
            except (Unauthenticated, PermissionDenied) as error:
                logger.error("the task is unknown to the master; preemption is no longer polled: %s", error)
                return
            except ResoluteError as error:
                if self._closed.is_set():
                    return
                logger.warning("asking the master about preemption failed: %s", error)
                pause_s = PAUSE_AFTER_ERROR_S
            finally:
                self._answered.set()
            if pause_s:
                self._closed.wait(pause_s)


class Acknowledgement:
    """Reports to the master in a thread that this process ends because of the preemption, so that no step waits for the master.

    It retries until it gets an answer, until the master refuses, or until the attempt that was in progress at `finish` is over.
    """

    def __init__(self, session: Session, path: str, allocation_id: str) -> None:
        self._session = session
        self._path = path
        self._body = {"allocationId": allocation_id}
        self._notified = threading.Event()
        self._last = threading.Event()
        """Set: the attempt in progress, or the next one, is the last."""
        self._problem: ResoluteError | None = None
        self._thread: threading.Thread | None = None

    def send(self) -> None:
        """Sends in this thread, and retries for as long as the session does."""
        if not self._notified.is_set():
            self._session.post(self._path, self._body)
            self._notified.set()

    def send_aside(self) -> None:
        """Begin to send in a thread, once; returns at once."""
        if self._thread is None and not self._notified.is_set():
            self._thread = threading.Thread(target=self._run, name="resolute-acknowledgement", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Retry no more after the attempt in progress, without waiting for it."""
        self._last.set()

    def finish(self, wait_s: float | None) -> None:
        """Wait for the request of `send_aside`: `wait_s` at most, or, with None, for as long as the session retries.

        Raises the master's refusal, or `Unavailable` without an answer.
        """
        self.stop()
        if self._thread is None or self._notified.is_set():
            return
        self._thread.join(wait_s)
        if not self._notified.is_set():
            raise self._problem or Unavailable(
                f"the master did not answer POST {self._path} in time: the preemption of this process is not acknowledged"
            )

    def _run(self) -> None:
        while not self._notified.is_set():
            try:
                self.send()
            except Unavailable as error:
                logger.warning("the preemption is not acknowledged yet: %s", error)
                self._problem = error
                if self._last.is_set():
                    return
                self._last.wait(PAUSE_AFTER_ERROR_S)
            except ResoluteError as error:
                logger.error("the master refused the acknowledgement of the preemption: %s", error)
                self._problem = error
                return


class ManagedPreempt:
    """Preemption of a task that a master runs."""

    def __init__(
        self,
        *,
        session: Session,
        allocation_id: str,
        run_dir: Path,
        distributed: DistributedContext,
        mode: PreemptMode,
        clock: Clock,
        sigterm_on_notice: bool = False,
    ) -> None:
        path = f"/api/v1/allocations/{allocation_id}/signals/ack_preemption"
        self._acknowledgement = Acknowledgement(session, path, allocation_id)
        self._distributed = distributed
        self._mode = mode
        watching = mode is PreemptMode.WorkersAskMaster or distributed.rank == 0
        self._watcher = PreemptWatcher(session, allocation_id) if watching else None
        self._notice = NoticeFileReader(run_dir / NOTICE_FILE)
        self._pid_file = run_dir / PID_FILE if sigterm_on_notice else None
        self._terminated = False
        self._started = False
        self._saved_for: set[str] = set()
        self._grace_period = GracePeriod()
        self._now = clock.now
        self._monotonic = clock.monotonic
        self._quiet_until = float("-inf")
        self._known = StopSignal()

    def start(self) -> None:
        if self._watcher is not None:
            self._watcher.start()
        if self._pid_file is not None:
            self._register_for_sigterm(self._pid_file)
        self._started = True

    def close(self, *, failed: bool = False) -> None:
        """Watch no more; unless `failed`, wait until the acknowledgement that `should_preempt` began has reached the master.

        A clean exit without it would be read as completion. So this waits as long as there is a chance: until the notice's
        deadline, when the machine goes away, and at most as long as the session tries. Then it raises, so that the
        process ends with another code than 0 and the trial resumes from its checkpoint. A failed process needs none of it.
        """
        if self._watcher is not None:
            self._watcher.close()
        if self._pid_file is not None:
            self._pid_file.unlink(missing_ok=True)
        if failed:
            self._acknowledgement.stop()
        else:
            self._acknowledgement.finish(self._left_s())

    def should_preempt(self, auto_ack: bool = True) -> bool:
        """Whether to save and end now. With `auto_ack` the first True is acknowledged to the master.

        A program that also calls `should_checkpoint` uses the time between a notice of its machine's end and that end: it is asked
        to save at once, and to end when the time suffices for one more save. Any other ends when the notice arrives.

        The acknowledgement is sent by a thread of its own, so that an unavailable master delays neither the step nor the
        save; `close` waits for it. Without `auto_ack`, call `acknowledge_preemption_signal` before exiting with code 0: an
        unacknowledged clean exit means that the trial is complete.
        """
        now = self._monotonic()
        if now < self._quiet_until:
            return False
        if not self._started:
            raise FailedPrecondition("should_preempt() works inside `with resolute.core.init() as context:` only")
        self._known = self._ask()
        if not self._known.preempt:
            # Ranks that check together must all check: for one of them the period may be over sooner than for another.
            self._quiet_until = now if self._asks_together() else now + LOOK_PERIOD_S
            return False
        if auto_ack and self._acknowledges_for_all():
            self._acknowledgement.send_aside()
        return True

    def should_checkpoint(self) -> bool:
        """Whether to save now and continue: True once after a notice. It uses the state of the last `should_preempt`; call it
        after that."""
        self._grace_period.asked_whether_to_save()
        known = self._known
        cause = "notice" if known.noticed else "rebalance"
        if known.preempt or not (known.noticed or known.checkpoint_wanted) or cause in self._saved_for:
            return False
        self._saved_for.add(cause)
        if known.noticed:
            logger.info("the machine goes away at %s: saving, then training on while there is time", known.deadline)
            self._grace_period.save_requested(self._monotonic())
            self._quiet_until = float("-inf")  # the next look ends the save
        return True

    def acknowledge_preemption_signal(self) -> None:
        """Acknowledges that the run ends because of the preemption. Sent once, by one process of the job; returns when the
        master knows.

        Raises `Unavailable` when the master does not answer for as long as the session tries.
        """
        if self._acknowledges_for_all():
            self._acknowledgement.send()

    @property
    def noticed(self) -> bool:
        """Whether the end of the machine was announced: `should_preempt` will be True before the deadline. Begin nothing long."""
        return self._known.noticed

    @property
    def deadline(self) -> datetime | None:
        """Time of the end of the machine; None if unknown."""
        return self._known.deadline

    @property
    def reason(self) -> str:
        return self._known.reason

    def _left_s(self) -> float | None:
        """Seconds until the deadline; None without one."""
        deadline = self._known.deadline
        return None if deadline is None else max((deadline - self._now()).total_seconds(), LAST_WAIT_S)

    def _acknowledges_for_all(self) -> bool:
        return self._distributed.rank == 0 or self._mode is PreemptMode.WorkersAskMaster

    def _asks_together(self) -> bool:
        return self._distributed.size > 1 and self._mode is PreemptMode.WorkersAskChief

    def _ask(self) -> StopSignal:
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
            raise FailedPrecondition("with PreemptMode.ChiefOnly only the chief (rank 0) calls should_preempt()")
        if not self._asks_together():
            return self._look()
        # A notice reaches the one machine that goes away, which need not be the chief's: every rank reports its own signal.
        answers = self._distributed.allgather(self._look().to_json())
        merged = StopSignal()
        for answer in answers:
            merged = merged.merged(StopSignal.from_json(answer))
        return merged

    def _look(self) -> StopSignal:
        found = self._notice.read()
        if self._watcher is not None:
            # A process that its machine has notified does not wait for the master, which may be unavailable.
            found = found.merged(self._watcher.read(wait=not (found.preempt or found.noticed or self._terminated)))
        if self._terminated:
            found = found.merged(StopSignal(preempt=True, reason="the agent sent SIGTERM after a notice"))
        # Another rank's machine may be the one that goes away.
        return replace(found, preempt=True) if self._leaves(found.merged(self._known)) else found

    def _leaves(self, known: StopSignal) -> bool:
        """Whether the time after a notice is used up, from the data of this process."""
        if known.preempt or not known.noticed or known.deadline is None:
            return known.preempt
        if self._distributed.size > 1 and self._mode is PreemptMode.WorkersAskMaster:
            return True  # each rank would save for itself, at a step of its own
        return self._grace_period.over(self._monotonic(), (known.deadline - self._now()).total_seconds())

    def _register_for_sigterm(self, pid_file: Path) -> None:
        previous = signal.getsignal(signal.SIGTERM)

        def remember(number: int, frame: Any) -> None:
            self._terminated = True
            self._quiet_until = float("-inf")
            if callable(previous):
                previous(number, frame)

        signal.signal(signal.SIGTERM, remember)
        pid_file.write_text(f"{os.getpid()}\n")


class LocalPreempt:
    """The variant without a master: it never preempts, but keeps the collective so that mismatched calls are detected."""

    def __init__(self, distributed: DistributedContext, mode: PreemptMode = PreemptMode.WorkersAskChief) -> None:
        self._distributed = distributed
        self._mode = mode

    def start(self) -> None:
        """Nothing to watch."""

    def close(self, *, failed: bool = False) -> None:
        """Nothing to stop."""

    def should_preempt(self, auto_ack: bool = True) -> bool:
        if self._mode is PreemptMode.ChiefOnly and self._distributed.rank != 0:
            raise FailedPrecondition("with PreemptMode.ChiefOnly only the chief (rank 0) calls should_preempt()")
        if self._mode is PreemptMode.WorkersAskChief:
            self._distributed.broadcast(False)
        return False

    def should_checkpoint(self) -> bool:
        return False

    def acknowledge_preemption_signal(self) -> None:
        """No master to notify."""

    @property
    def noticed(self) -> bool:
        return False

    @property
    def deadline(self) -> datetime | None:
        return None

    @property
    def reason(self) -> str:
        return ""
