"""Where the paid time went: every slot-second of every machine is booked once.

- *starting*: from the paid start of the machine to its agent's first word, and from each assignment to the first step
- *useful*: step time whose result was kept
- *checkpointing*: time the step loop stood still for a save; after an acknowledged preemption, up to the exit
- *lost*: step time that was done again later, and from the last kept step to an unnoticed end
- *idle*: the rest: paid slot time with no task

Per slot the five sum to the paid time, because idle is what the others leave over and they never overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from resolute.wire.states import FailureKind
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import MetricReport, StepMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Booking:
    """Slot-seconds by what they were spent on."""

    useful_s: float = 0.0
    starting_s: float = 0.0
    checkpointing_s: float = 0.0
    lost_s: float = 0.0
    idle_s: float = 0.0

    @property
    def paid_s(self) -> float:
        return self.useful_s + self.starting_s + self.checkpointing_s + self.lost_s + self.idle_s

    def __add__(self, other: Booking) -> Booking:
        return Booking(
            useful_s=self.useful_s + other.useful_s,
            starting_s=self.starting_s + other.starting_s,
            checkpointing_s=self.checkpointing_s + other.checkpointing_s,
            lost_s=self.lost_s + other.lost_s,
            idle_s=self.idle_s + other.idle_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A run that ended because its machine went away, and what that cost in steps."""

    at: datetime
    allocation: Allocation
    noticed: bool
    steps_done: int
    steps_kept: int

    @property
    def steps_lost(self) -> int:
        return max(0, self.steps_done - self.steps_kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An allocation with what is known of its progress. `steps_kept` is where its successor took over."""

    allocation: Allocation
    marks: tuple[StepMark, ...]
    steps_kept: int

    @property
    def steps_done(self) -> int:
        return max((m.steps_completed for m in self.marks), default=self.allocation.resumed_steps)


def runs(
    allocations: Sequence[Allocation],
    marks: Sequence[StepMark],
    trial_steps: Mapping[TrialId, int],
) -> tuple[Run, ...]:
    """Each allocation with its marks and the step count that survived it.

    That is the resume step of the trial's next run; for the last run all that it did if it finished or still runs, else the
    trial's latest checkpoint (`trial_steps`).
    """
    marks_of: dict[AllocationId, list[StepMark]] = {}
    for mark in sorted(marks, key=lambda m: m.at):
        marks_of.setdefault(mark.allocation_id, []).append(mark)
    next_run = {(a.trial_id, a.run_id): a for a in allocations}
    found = []
    for allocation in sorted(allocations, key=lambda a: (a.requested_at, a.id)):
        own = tuple(marks_of.get(allocation.id, ()))
        done = max((m.steps_completed for m in own), default=allocation.resumed_steps)
        successor = next_run.get((allocation.trial_id, allocation.run_id + 1))
        if successor is not None:
            kept = successor.resumed_steps
        elif not allocation.ended or (allocation.exit is not None and allocation.exit.finished):
            kept = done
        else:
            kept = trial_steps.get(allocation.trial_id, 0) if allocation.trial_id is not None else done
        found.append(Run(allocation=allocation, marks=own, steps_kept=min(kept, done)))
    return tuple(found)


def mark_of_report(allocation: AllocationId, report: MetricReport, marks: Sequence[StepMark]) -> tuple[StepMark, ...]:
    """The mark that a run's last report stands for, if it tells of more steps than the run's own marks.

    Marks are made from time to time only, and a machine that is lost takes the newest of them along. Other harnesses
    make none.
    """
    steps = report.steps_completed
    if steps is None:
        return ()
    own = [mark for mark in marks if mark.allocation_id == allocation]
    if not own:
        return (StepMark(allocation_id=allocation, steps_completed=steps, at=report.reported_at, checkpointing_s=0.0),)
    last = max(own, key=lambda mark: mark.at)
    if steps <= last.steps_completed or report.reported_at <= last.at:
        return ()
    return (replace(last, steps_completed=steps, at=report.reported_at),)


def book_instance(instance: Instance, runs_: Sequence[Run], now: datetime) -> Booking:
    """The machine's paid time, over all of its slots. Nothing was paid for a machine that was refused."""
    if instance.paid_from is None:
        return Booking()
    end = instance.paid_until or now
    total = Booking()
    for slot in range(instance.slots):
        total = total + _book_slot(instance, slot, runs_, instance.paid_from, max(end, instance.paid_from))
    return total


def _book_slot(instance: Instance, slot: int, runs_: Sequence[Run], start: datetime, end: datetime) -> Booking:
    joined = min(instance.joined_at or end, end)
    total = Booking(starting_s=_seconds(start, joined))
    cursor = max(start, joined)
    for run in runs_:
        if not _holds(run.allocation, instance, slot) or run.allocation.assigned_at is None:
            continue
        begin = max(run.allocation.assigned_at, cursor)
        until = min(run.allocation.ended_at or end, end)
        if until <= begin:
            continue
        total = total + book_run(run, begin, until)
        cursor = until
    return total + Booking(idle_s=_seconds(start, end) - total.paid_s)


def _holds(allocation: Allocation, instance: Instance, slot: int) -> bool:
    return any(c.agent == instance.agent_id and slot in c.slots for c in allocation.containers)


def book_run(run: Run, begin: datetime, until: datetime) -> Booking:
    """One slot of one run between two moments."""
    if not run.marks:
        return Booking(starting_s=_seconds(begin, until))
    first = min(max(run.marks[0].at, begin), until)
    kept_at, saved_before = _reached(run, first, until)
    last_save = run.marks[-1].checkpointing_s
    checkpointing = min(saved_before, _seconds(first, kept_at))
    after = _seconds(kept_at, until)
    saving_after = min(max(0.0, last_save - saved_before), after)
    rest = after - saving_after
    gracefully = _acknowledged(run.allocation) and run.steps_kept >= run.steps_done
    return Booking(
        starting_s=_seconds(begin, first),
        useful_s=_seconds(first, kept_at) - checkpointing + (rest if _all_kept(run) and not gracefully else 0.0),
        checkpointing_s=checkpointing + saving_after + (rest if gracefully else 0.0),
        lost_s=0.0 if _all_kept(run) else rest,
    )


def _all_kept(run: Run) -> bool:
    """Nothing had to be done again. After an unnoticed end, the time past the last kept step is lost all the same."""
    exit_ = run.allocation.exit
    failed = exit_ is not None and exit_.failure is not None
    return run.steps_kept >= run.steps_done and not failed


def _acknowledged(allocation: Allocation) -> bool:
    return allocation.preempt is not None and allocation.preempt.acknowledged_at is not None


def _reached(run: Run, first: datetime, until: datetime) -> tuple[datetime, float]:
    """When the last kept step was done, and the seconds of saving until then; between two marks steps are even."""
    before = run.marks[0]
    if run.steps_kept <= before.steps_completed:
        return first, 0.0
    for mark in run.marks[1:]:
        if mark.steps_completed >= run.steps_kept:
            share = (run.steps_kept - before.steps_completed) / max(1, mark.steps_completed - before.steps_completed)
            at = before.at + (mark.at - before.at) * share
            saved = before.checkpointing_s + (mark.checkpointing_s - before.checkpointing_s) * share
            return min(max(at, first), until), saved
        before = mark
    return min(max(before.at, first), until), before.checkpointing_s


def interruptions(runs_: Sequence[Run]) -> tuple[Interruption, ...]:
    """Runs that ended because their machine went away, in the order of their ends."""
    found = []
    for run in runs_:
        allocation = run.allocation
        if allocation.ended_at is None or allocation.exit is None:
            continue
        noticed = allocation.preempt is not None and allocation.preempt.notice is not None
        if noticed or allocation.exit.failure is FailureKind.AGENT_FAILED:
            found.append(
                Interruption(
                    at=allocation.ended_at,
                    allocation=allocation,
                    noticed=noticed,
                    steps_done=run.steps_done,
                    steps_kept=run.steps_kept,
                )
            )
    return tuple(sorted(found, key=lambda i: (i.at, i.allocation.id)))


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
