"""A trial's time from its submission to now or its end, in parts: where it waited, what ran, what was lost.

Made from its runs as the ledger books them, so that a picture and the books never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from resolute.wire.states import FailureKind
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.lifecycle.ledger import Run, run_spans


class Part(StrEnum):
    """What time was spent on; all but `queued` as the ledger calls it."""

    QUEUED = "queued"
    STARTING = "starting"
    USEFUL = "useful"
    CHECKPOINTING = "checkpointing"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of one run, of one kind."""

    part: Part
    begin: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment: a notice, a lost machine, a checkpoint."""

    kind: str
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One run: its number, on which agents, how it ended, and its time."""

    number: int
    agents: Sequence[str]
    slots: int
    begin: datetime
    end: datetime | None
    how: str
    segments: Sequence[Segment]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Lanes in order, and the seconds of all of them together by part."""

    begin: datetime
    end: datetime
    lanes: Sequence[Lane]

    @property
    def sums(self) -> dict[str, float]:
        found = dict.fromkeys((part.value for part in Part), 0.0)
        for lane in self.lanes:
            for segment in lane.segments:
                found[segment.part.value] += segment.seconds
        return found

    @property
    def goodput(self) -> float | None:
        """The share of the time with slots that was useful; None before there was any."""
        sums = self.sums
        held = sum(seconds for part, seconds in sums.items() if part != Part.QUEUED)
        return sums[Part.USEFUL] / held if held > 0 else None


def life_of(runs: Sequence[Run], checkpoints: Sequence[Checkpoint], now: datetime) -> Life | None:
    """None before anything was requested."""
    lanes = tuple(_lane(run, checkpoints, now) for run in runs)
    if not lanes:
        return None
    end = max(lane.end or now for lane in lanes)
    begin = lanes[0].begin
    return Life(begin=begin, end=max(end, begin + timedelta(seconds=1)), lanes=lanes)


def _lane(run: Run, checkpoints: Sequence[Checkpoint], now: datetime) -> Lane:
    allocation = run.allocation
    end = allocation.ended_at or now
    return Lane(
        number=allocation.run_id,
        agents=tuple(container.agent for container in sorted(allocation.containers, key=lambda c: c.rank)),
        slots=allocation.slots_needed,
        begin=allocation.requested_at,
        end=allocation.ended_at,
        how=allocation.exit.reason if allocation.exit is not None else "",
        segments=tuple(_segments(run, end)),
        marks=tuple(sorted(_marks(run, checkpoints), key=lambda mark: mark.at)),
    )


def _segments(run: Run, end: datetime) -> Iterator[Segment]:
    allocation = run.allocation
    given = min(allocation.assigned_at or end, end)
    if allocation.requested_at < given:
        yield Segment(part=Part.QUEUED, begin=allocation.requested_at, end=given)
    if allocation.assigned_at is None:
        return
    for span in run_spans(run, given, end):
        yield from _parts(span.begin, span.end, span.booking)


def _parts(begin: datetime, end: datetime, booking: object) -> Iterator[Segment]:
    """A span may hold saves among its steps: they are drawn after them, as long as they took together."""
    for part in (Part.STARTING, Part.USEFUL, Part.CHECKPOINTING, Part.LOST):
        seconds = getattr(booking, f"{part.value}_s")
        if seconds > 0:
            until = min(end, begin + timedelta(seconds=seconds))
            yield Segment(part=part, begin=begin, end=until)
            begin = until


def _marks(run: Run, checkpoints: Sequence[Checkpoint]) -> Iterator[Mark]:
    allocation = run.allocation
    request = allocation.preempt
    if request is not None:
        kind = "notice" if request.notice is not None else "preempted"
        yield Mark(kind=kind, at=request.requested_at, text=request.reason)
    exit_ = allocation.exit
    if exit_ is not None and exit_.failure is not None and allocation.ended_at is not None:
        kind = "lost" if exit_.failure is FailureKind.AGENT_FAILED else "failed"
        yield Mark(kind=kind, at=allocation.ended_at, text=exit_.reason)
    for each in checkpoints:
        if each.allocation_id == allocation.id:
            text = f"checkpoint at step {each.steps_completed}"
            yield Mark(kind="checkpoint", at=each.reported_at, text=text)
