"""The machines of a pool over time: a lane a machine from its request to its end, and how many were wanted and there.

Pure: from what is recorded of machines and of what ran on them. Places are in per mille of the window, for a picture that is
stretched to its width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Intent

WIDTH = 1000
LINES_HEIGHT = 80
MOST_LANES = 80
"""The newest; a day of a busy spot pool may have more."""

SHORTEST = 1.5
"""Least width of a drawn segment, in per mille, so that a short segment is visible."""


class Stage(StrEnum):
    """What a machine is at."""

    REQUESTED = "requested"
    BOOTING = "booting"
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time that is drawn."""

    begin: datetime
    end: datetime

    def place(self, moment: datetime) -> float:
        """In per mille, within the picture."""
        whole = (self.end - self.begin).total_seconds()
        return round(min(1.0, max(0.0, (moment - self.begin).total_seconds() / whole)) * WIDTH, 2)

    @property
    def hours(self) -> float:
        return (self.end - self.begin).total_seconds() / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    stage: Stage
    begin: datetime
    end: datetime
    x: float
    width: float

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A refusal, a notice, a loss."""

    kind: str
    at: datetime
    x: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """`stages` are the seconds of each, within the window."""

    instance: Instance
    segments: Sequence[Segment]
    marks: Sequence[Mark]

    @property
    def stages(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for each in self.segments:
            found[each.stage.value] = found.get(each.stage.value, 0.0) + each.seconds
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A number over time as the points of a line, and its last and largest value."""

    points: str
    last: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`refused` are requests that no machine came of: marks of one lane, as there may be hundreds. `hidden` lanes are too many."""

    window: Window
    lanes: Sequence[Lane]
    refused: Sequence[Mark]
    wanted: Steps
    there: Steps
    ticks: Sequence[tuple[float, datetime]]
    limit_y: float
    top: int
    hidden: int
    height: int = LINES_HEIGHT


def timeline_of(
    instances: Sequence[Instance], allocations: Sequence[Allocation], window: Window, *, limit: int
) -> Timeline:
    """`limit` is how many machines the pool may have."""
    held = _by_agent(allocations)
    shown = [each for each in instances if each.requested_at < window.end and _end(each, window) >= window.begin]
    refused = [each for each in shown if each.refused]
    kept = sorted((each for each in shown if not each.refused), key=lambda each: (each.requested_at, each.id))
    lanes = [_lane(each, held.get(each.agent_id or AgentId(""), ()), window) for each in kept[-MOST_LANES:]]
    spans_wanted = [(each.requested_at, each.stopped_at or _end(each, window)) for each in kept]
    spans_there = [(each.joined_at, _end(each, window)) for each in kept if each.joined_at is not None]
    wanted, there = list(_counts(spans_wanted, window)), list(_counts(spans_there, window))
    top = max(limit, 1, *(count for _, count in (*wanted, *there)))
    return Timeline(
        window=window,
        lanes=lanes,
        refused=[_refusal(each, window) for each in refused],
        wanted=_steps(wanted, window, top),
        there=_steps(there, window, top),
        ticks=list(_ticks(window)),
        limit_y=_y(limit, top),
        top=top,
        hidden=max(0, len(kept) - MOST_LANES),
    )


def _by_agent(allocations: Iterable[Allocation]) -> Mapping[AgentId, Sequence[Allocation]]:
    found: dict[AgentId, list[Allocation]] = {}
    for allocation in allocations:
        for agent in {container.agent for container in allocation.containers}:
            found.setdefault(agent, []).append(allocation)
    return found


def _end(instance: Instance, window: Window) -> datetime:
    """End of the machine's bill, or of its life if it was never billed."""
    if instance.paid_until is not None:
        return instance.paid_until
    if instance.over or instance.refused:
        return instance.observed_at or instance.stopped_at or instance.requested_at
    return window.end


# -------------------------------------------------------------------------------------------------------------- lanes


def _lane(instance: Instance, ran: Sequence[Allocation], window: Window) -> Lane:
    return Lane(
        instance=instance,
        segments=[
            _segment(stage, max(begin, window.begin), min(end, window.end), window)
            for stage, begin, end in _stages(instance, ran, _end(instance, window))
            if end > window.begin and begin < window.end and end > begin
        ],
        marks=[mark for mark in _marks(instance, window) if window.begin <= mark.at <= window.end],
    )


def _segment(stage: Stage, begin: datetime, end: datetime, window: Window) -> Segment:
    x = window.place(begin)
    width = max(SHORTEST, window.place(end) - x)
    return Segment(stage=stage, begin=begin, end=end, x=x, width=round(width, 2))


def _stages(instance: Instance, ran: Sequence[Allocation], end: datetime) -> Iterator[tuple[Stage, datetime, datetime]]:
    launched = min(instance.launched_at or end, end)
    yield Stage.REQUESTED, instance.requested_at, launched
    if instance.launched_at is None:
        return
    stopped = min(instance.stopped_at or end, end) if instance.intent is Intent.STOP else end
    joined = min(instance.joined_at or stopped, stopped)
    yield Stage.BOOTING, launched, max(joined, launched)
    if instance.joined_at is not None:
        yield from _work(ran, joined, stopped)
    if stopped < end:
        yield Stage.ENDING, max(stopped, launched), end


def _work(ran: Sequence[Allocation], begin: datetime, end: datetime) -> Iterator[tuple[Stage, datetime, datetime]]:
    """Busy while anything holds slots of it, idle between."""
    cursor = begin
    for allocation in sorted(ran, key=lambda each: (each.assigned_at or end, each.id)):
        if allocation.assigned_at is None:
            continue
        since = max(cursor, min(allocation.assigned_at, end))
        until = min(allocation.ended_at or end, end)
        if until <= since:
            continue
        if cursor < since:
            yield Stage.IDLE, cursor, since
        yield Stage.BUSY, since, until
        cursor = until
    if cursor < end:
        yield Stage.IDLE, cursor, end


def _marks(instance: Instance, window: Window) -> Iterator[Mark]:
    notice = instance.notice
    if notice is not None:
        yield Mark(kind="notice", at=notice.received_at, x=window.place(notice.received_at), text=notice.reason)
    ended = instance.paid_until or instance.observed_at
    if instance.over and instance.stopped_at is None and ended is not None:
        text = instance.stop_reason or "it ended by itself"
        yield Mark(kind="lost", at=ended, x=window.place(ended), text=text)


def _refusal(instance: Instance, window: Window) -> Mark:
    at = instance.observed_at or instance.stopped_at or instance.requested_at
    return Mark(kind="refused", at=at, x=window.place(at), text=f"{instance.offer_id}: {instance.refused}")


# -------------------------------------------------------------------------------------------------------------- lines


def _counts(spans: Sequence[tuple[datetime, datetime]], window: Window) -> Iterator[tuple[datetime, int]]:
    """How many spans there are, from each moment at which that changes."""
    changes: dict[datetime, int] = {window.begin: 0}
    for begin, end in spans:
        if end <= begin:
            continue
        begin = max(begin, window.begin)
        changes[begin] = changes.get(begin, 0) + 1
        if end < window.end:
            changes[max(end, window.begin)] = changes.get(max(end, window.begin), 0) - 1
    count = 0
    for moment in sorted(changes):
        count += changes[moment]
        yield moment, count


def _y(count: float, top: int) -> float:
    return round(LINES_HEIGHT - 4 - (LINES_HEIGHT - 8) * count / top, 2)


def _steps(counts: Sequence[tuple[datetime, int]], window: Window, top: int) -> Steps:
    points: list[str] = []
    before: float | None = None
    for moment, count in counts:
        x, y = window.place(moment), _y(count, top)
        if before is not None:
            points.append(f"{x},{before}")
        points.append(f"{x},{y}")
        before = y
    if before is not None:
        points.append(f"{WIDTH},{before}")
    values = [count for _, count in counts]
    return Steps(points=" ".join(points), last=values[-1] if values else 0, most=max(values, default=0))


_STEPS_H = (1 / 12, 1 / 6, 1 / 4, 1 / 2, 1, 2, 3, 6, 12, 24, 48, 168)


def _ticks(window: Window) -> Iterator[tuple[float, datetime]]:
    """About six, at round times."""
    hours = next((each for each in _STEPS_H if window.hours / each <= 7), _STEPS_H[-1])
    step = timedelta(hours=hours)
    first = window.begin.replace(hour=0, minute=0, second=0, microsecond=0)
    moment = first + step * (int((window.begin - first) / step) + 1)
    while moment < window.end:
        yield window.place(moment), moment
        moment += step
