"""Who and what the paid time was for: the books by pool, machine, user, workspace, experiment or job, between two moments.

A slot's time costs the price that its machine had then, spread evenly over its slots. Time with a task is that of the task's
job; boots and idle time are nobody's but the pool's and the machine's, and stand under an empty key when asked for by anybody
else. So the lines of each grouping sum to the same total, which is what was paid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.lifecycle.ledger import Booking, Books, Span

ACCOUNTS = ("useful", "starting", "checkpointing", "lost", "idle")


class Grouping(StrEnum):
    """What the lines are of."""

    POOL = "pool"
    INSTANCE = "instance"
    USER = "user"
    WORKSPACE = "workspace"
    EXPERIMENT = "experiment"
    JOB = "job"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Slot-seconds and their price, by what they were spent on.

    `cost_unknown_s` is the part of the slot-seconds whose price is not known; no cost has it in it.
    """

    booking: Booking
    costs: Mapping[str, float]
    cost_unknown_s: float = 0.0

    @property
    def cost(self) -> float:
        return sum(self.costs.values())

    def __add__(self, other: Line) -> Line:
        return Line(
            booking=self.booking + other.booking,
            costs={account: self.costs[account] + other.costs[account] for account in ACCOUNTS},
            cost_unknown_s=self.cost_unknown_s + other.cost_unknown_s,
        )


NOTHING = Line(booking=Booking(), costs=dict.fromkeys(ACCOUNTS, 0.0))


def line_of_machine(instance: Instance, books: Books, *, now: datetime) -> Line:
    """All of its paid time until now."""
    booked: dict[float | None, Booking] = {}
    for _, part, price in _priced(instance, books, now, None, None):
        booked[price] = booked.get(price, Booking()) + part
    return total(_line(instance, booking, price) for price, booking in booked.items())


def _line(instance: Instance, booking: Booking, price_per_hour: float | None) -> Line:
    """The booking at one price of the whole machine; None is not known."""
    price = (price_per_hour or 0.0) / 3600.0 / max(1, instance.slots)
    return Line(
        booking=booking,
        costs={account: getattr(booking, f"{account}_s") * price for account in ACCOUNTS},
        cost_unknown_s=booking.paid_s if price_per_hour is None else 0.0,
    )


def _priced(
    instance: Instance, books: Books, now: datetime, since: datetime | None, until: datetime | None
) -> Iterator[tuple[Span, Booking, float | None]]:
    """What of each span lies between two moments, in parts that the whole machine had one price in."""
    for span in books.spans(instance, now):
        begin = span.begin if since is None else max(span.begin, since)
        end = span.end if until is None else min(span.end, until)
        for from_, to, price in instance.prices(begin, end):
            yield span, span.within(from_, to), price


def cost_by(
    grouping: Grouping,
    instances: Iterable[Instance],
    books: Books,
    jobs: Mapping[JobId, Job],
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> dict[str, Line]:
    """Lines by key, sorted; each key is an id in words. Nobody's time stands under "", and that of a job that is not known."""
    lines: dict[str, Line] = {}
    for instance in instances:
        booked: dict[tuple[str, float | None], Booking] = {}
        for span, part, price in _priced(instance, books, now, since, until):
            key = (_key(grouping, instance, span.allocation, jobs), price)
            booked[key] = booked.get(key, Booking()) + part
        for (name, price), booking in booked.items():
            lines[name] = lines.get(name, NOTHING) + _line(instance, booking, price)
    return dict(sorted(lines.items()))


def _key(grouping: Grouping, instance: Instance, allocation: Allocation | None, jobs: Mapping[JobId, Job]) -> str:
    match grouping:
        case Grouping.POOL:
            return instance.pool
        case Grouping.INSTANCE:
            return instance.id
        case Grouping.JOB:
            return "" if allocation is None else allocation.job_id
        case Grouping.TRIAL:
            return "" if allocation is None or allocation.trial_id is None else str(allocation.trial_id)
    job = None if allocation is None else jobs.get(allocation.job_id)
    if job is None:
        return ""
    match grouping:
        case Grouping.USER:
            return str(job.owner)
        case Grouping.WORKSPACE:
            return str(job.workspace_id)
        case Grouping.EXPERIMENT:
            return "" if job.experiment_id is None else str(job.experiment_id)


def total(lines: Iterable[Line]) -> Line:
    summed = NOTHING
    for line in lines:
        summed = summed + line
    return summed
