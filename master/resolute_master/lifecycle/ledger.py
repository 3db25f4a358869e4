"""The use of the paid time: every slot-second of every machine is booked once.

- *starting*: from the paid start of the machine to its agent's first message, and from each assignment to the first step; for work
  that finished without reporting steps, to the start of its program
- *useful*: time of steps whose result was kept
- *checkpointing*: time that a save blocked the step loop; after an acknowledged preemption, up to the exit
- *lost*: time of steps that were repeated later, and from the last kept step to an end without a notice
- *idle*: the rest: paid slot time without a task

Per slot, the five add up to the paid time: a slot's time is cut into spans without gaps, and each span into these parts. A query
between two times returns the parts of the spans in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute.wire.states import FailureKind
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark, StepReport


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

    def __mul__(self, share: float) -> Booking:
        return Booking(
            useful_s=self.useful_s * share,
            starting_s=self.starting_s * share,
            checkpointing_s=self.checkpointing_s * share,
            lost_s=self.lost_s * share,
            idle_s=self.idle_s * share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """An interrupted run: its machine went away. Its cost in steps."""

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
    """An allocation and its progress. `steps_kept`: the steps at which its successor resumed."""

    allocation: Allocation
    marks: tuple[StepMark, ...]
    steps_kept: int

    @property
    def steps_done(self) -> int:
        return max((m.steps_completed for m in self.marks), default=self.allocation.resumed_steps)


def kept_steps(attempts: Sequence[Allocation], saved: Mapping[TrialId, int]) -> dict[AllocationId, int]:
    """The kept steps of each attempt for which they are known: the steps at which the trial's next run resumed; for a last run
    that was interrupted, the trial's latest checkpoint (`saved`).

    Not known is that of a run that continues or has finished, and of one whose trial was deleted: it keeps all that it does.
    """
    next_run = {(a.trial_id, a.run_id): a for a in attempts}
    kept: dict[AllocationId, int] = {}
    for attempt in attempts:
        successor = next_run.get((attempt.trial_id, attempt.run_id + 1)) if attempt.trial_id is not None else None
        if successor is not None:
            kept[attempt.id] = successor.resumed_steps
        elif _cut_short(attempt) and attempt.trial_id is not None and attempt.trial_id in saved:
            kept[attempt.id] = saved[attempt.trial_id]
    return kept


def unfinished(attempts: Sequence[Allocation]) -> tuple[TrialId, ...]:
    """Trials whose last attempt was interrupted, by id."""
    last: dict[TrialId, Allocation] = {}
    for attempt in attempts:
        if attempt.trial_id is not None and attempt.run_id >= last.get(attempt.trial_id, attempt).run_id:
            last[attempt.trial_id] = attempt
    return tuple(sorted(id_ for id_, attempt in last.items() if _cut_short(attempt)))


def _cut_short(attempt: Allocation) -> bool:
    return attempt.ended and not (attempt.exit is not None and attempt.exit.finished)


def runs(
    allocations: Sequence[Allocation], marks: Sequence[StepMark], kept: Mapping[AllocationId, int]
) -> tuple[Run, ...]:
    """Each allocation with its marks and its kept steps; `kept` as from `kept_steps`."""
    marks_of: dict[AllocationId, list[StepMark]] = {}
    for mark in sorted(marks, key=lambda m: m.at):
        marks_of.setdefault(mark.allocation_id, []).append(mark)
    found = []
    for allocation in sorted(allocations, key=lambda a: (a.requested_at, a.id)):
        own = tuple(marks_of.get(allocation.id, ()))
        done = max((m.steps_completed for m in own), default=allocation.resumed_steps)
        found.append(Run(allocation=allocation, marks=own, steps_kept=min(kept.get(allocation.id, done), done)))
    return tuple(found)


def marks_of_reports(
    allocation: Allocation, marks: Sequence[StepMark], reports: Sequence[StepReport], kept: int | None
) -> tuple[StepMark, ...]:
    """The marks of a run, and those derived from its first and last report, by time; `kept` as from
    `kept_steps`, None when it is not known.

    Marks are periodic, and the newest ones are lost with their machine: a last report with more steps takes precedence. A harness
    may send no marks. Then an even pace is assumed: the pace between the two reports also applies from the checkpoint to the first
    and from the last to the kept step, but not before the program started, nor after its end. A run that reported a single step
    is assumed to have kept one pace since its program started.
    """
    if not reports:
        return ()
    first, last = reports[0], reports[-1]
    if marks:
        newest = max(marks, key=lambda mark: mark.at)
        if last.steps_completed <= newest.steps_completed or last.at <= newest.at:
            return ()
        return (replace(newest, steps_completed=last.steps_completed, at=last.at),)
    begun = min(_program_began(allocation) or first.at, first.at)
    before = max(0, first.steps_completed - allocation.resumed_steps)
    between = last.steps_completed - first.steps_completed
    step_s = _seconds(first.at, last.at) / between if between else _seconds(begun, first.at) / max(1, before)
    found = {first.steps_completed: first.at, last.steps_completed: last.at}
    if before:
        back_s = min(before * step_s, _seconds(begun, first.at))
        found[allocation.resumed_steps] = first.at - timedelta(seconds=back_s)
    if kept is not None and kept > last.steps_completed:
        ahead_s = min((kept - last.steps_completed) * step_s, _seconds(last.at, allocation.ended_at or last.at))
        found[kept] = last.at + timedelta(seconds=ahead_s)
    return tuple(
        StepMark(allocation_id=allocation.id, steps_completed=steps, at=moment, checkpointing_s=0.0)
        for steps, moment in sorted(found.items(), key=lambda each: (each[1], each[0]))
    )


def _program_began(allocation: Allocation) -> datetime | None:
    return allocation.ready_at or allocation.started_at or allocation.assigned_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of one slot's paid time, spent evenly as in `booking`; `allocation` None is time without a task."""

    begin: datetime
    end: datetime
    booking: Booking
    allocation: Allocation | None = None

    def within(self, since: datetime | None, until: datetime | None) -> Booking:
        """The part between two moments; None is no limit."""
        begin = self.begin if since is None else max(self.begin, since)
        end = self.end if until is None else min(self.end, until)
        if (begin, end) == (self.begin, self.end):
            return self.booking
        length = _seconds(self.begin, self.end)
        return self.booking * (_seconds(begin, end) / length) if length else Booking()


class Books:
    """Runs by the slots that they held, so that the booking of a machine costs in proportion to the runs on it."""

    def __init__(self, runs_: Iterable[Run]) -> None:
        self._on: dict[tuple[AgentId, int], list[Run]] = {}
        for run in runs_:
            if run.allocation.assigned_at is not None:
                for slot in {(c.agent, index) for c in run.allocation.containers for index in c.slots}:
                    self._on.setdefault(slot, []).append(run)
        for held in self._on.values():
            held.sort(key=lambda run: (run.allocation.assigned_at, run.allocation.id))

    def spans(self, instance: Instance, now: datetime) -> Iterator[Span]:
        """The machine's paid time until `now`, slot by slot in the order of time, without gaps. Nothing was paid for a machine
        that was refused."""
        if instance.paid_from is None:
            return
        start = instance.paid_from
        end = max(start, instance.paid_until or now)
        for slot in range(instance.slots):
            yield from self._of_slot(instance, slot, start, end)

    def _of_slot(self, instance: Instance, slot: int, start: datetime, end: datetime) -> Iterator[Span]:
        joined = max(start, min(instance.joined_at or end, end))
        if start < joined:
            yield Span(begin=start, end=joined, booking=Booking(starting_s=_seconds(start, joined)))
        cursor = joined
        for run in self._on.get((instance.agent_id, slot), ()) if instance.agent_id is not None else ():
            begin = max(run.allocation.assigned_at or end, cursor)
            until = min(run.allocation.ended_at or end, end)
            if until <= begin:
                continue
            if cursor < begin:
                yield Span(begin=cursor, end=begin, booking=Booking(idle_s=_seconds(cursor, begin)))
            yield from run_spans(run, begin, until)
            cursor = until
        if cursor < end:
            yield Span(begin=cursor, end=end, booking=Booking(idle_s=_seconds(cursor, end)))


def run_spans(run: Run, begin: datetime, until: datetime) -> Iterator[Span]:
    """The spans of one slot of one run: its start, its kept steps, and the time after them."""
    if not run.marks:
        yield from _spans_without_steps(run.allocation, begin, until)
        return
    first = min(max(run.marks[0].at, begin), until)
    kept_at, saved_before = _reached(run, first, until)
    kept_s, after_s = _seconds(first, kept_at), _seconds(kept_at, until)
    checkpointing = min(saved_before, kept_s)
    saving_after = min(max(0.0, run.marks[-1].checkpointing_s - saved_before), after_s)
    rest = after_s - saving_after
    gracefully = _acknowledged(run.allocation) and run.steps_kept >= run.steps_done
    stretches = (
        (begin, first, Booking(starting_s=_seconds(begin, first))),
        (first, kept_at, Booking(useful_s=kept_s - checkpointing, checkpointing_s=checkpointing)),
        (
            kept_at,
            until,
            Booking(
                useful_s=rest if _all_kept(run) and not gracefully else 0.0,
                checkpointing_s=saving_after + (rest if gracefully else 0.0),
                lost_s=0.0 if _all_kept(run) or gracefully else rest,
            ),
        ),
    )
    for from_, to, booking in stretches:
        if from_ < to:
            yield Span(begin=from_, end=to, booking=booking, allocation=run.allocation)


def _spans_without_steps(allocation: Allocation, begin: datetime, until: datetime) -> Iterator[Span]:
    """The spans of a run without reported steps: it was *starting*. If the run finished, all time of its program is *useful*."""
    finished = allocation.exit is not None and allocation.exit.finished
    began = min(max(_program_began(allocation) or begin, begin), until) if finished else until
    if begin < began:
        yield Span(begin=begin, end=began, booking=Booking(starting_s=_seconds(begin, began)), allocation=allocation)
    if began < until:
        yield Span(begin=began, end=until, booking=Booking(useful_s=_seconds(began, until)), allocation=allocation)


def _all_kept(run: Run) -> bool:
    """Whether no step had to be repeated. After an end without a notice, the time past the last kept step is lost all the same."""
    exit_ = run.allocation.exit
    failed = exit_ is not None and exit_.failure is not None
    return run.steps_kept >= run.steps_done and not failed


def _acknowledged(allocation: Allocation) -> bool:
    return allocation.preempt is not None and allocation.preempt.acknowledged_at is not None


def _reached(run: Run, first: datetime, until: datetime) -> tuple[datetime, float]:
    """When the last kept step was completed, and the seconds of saves until then. Between two marks, an even pace is assumed."""
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
