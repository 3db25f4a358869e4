"""The use of the paid time: the ledger by pool, machine, user, workspace, experiment, job or day, between two times.

A slot's time costs the price of its machine at that time, divided evenly among its slots. Time with a task belongs to the task's
job. Boots and idle time belong only to the pool and the machine, and have an empty key in all other groupings. So the lines of
each grouping add up to the same total, which is the amount paid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.lifecycle.ledger import Booking, Books, Span
from resolute_provisioner.model import Market

ACCOUNTS = ("useful", "starting", "checkpointing", "lost", "idle")


class Grouping(StrEnum):
    """The key of the lines."""

    POOL = "pool"
    INSTANCE = "instance"
    USER = "user"
    WORKSPACE = "workspace"
    EXPERIMENT = "experiment"
    JOB = "job"
    DAY = "day"
    """A day in UTC, as in budgets."""
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
    """The line of all paid time of a machine until now."""
    booked: dict[float | None, Booking] = {}
    for span, begin, end, price in _priced(instance, books, now, None, None):
        booked[price] = booked.get(price, Booking()) + span.within(begin, end)
    return total(_line(instance, booking, price) for price, booking in booked.items())


def _line(instance: Instance, booking: Booking, price_per_hour: float | None) -> Line:
    """A line for a booking at one price of the whole machine; None: unknown."""
    price = (price_per_hour or 0.0) / 3600.0 / max(1, instance.slots)
    return Line(
        booking=booking,
        costs={account: getattr(booking, f"{account}_s") * price for account in ACCOUNTS},
        cost_unknown_s=booking.paid_s if price_per_hour is None else 0.0,
    )


def _priced(
    instance: Instance, books: Books, now: datetime, since: datetime | None, until: datetime | None
) -> Iterator[tuple[Span, datetime, datetime, float | None]]:
    """The part of each span between two moments, divided where the price of the machine changed."""
    for span in books.spans(instance, now):
        begin = span.begin if since is None else max(span.begin, since)
        end = span.end if until is None else min(span.end, until)
        for from_, to, price in instance.prices(begin, end):
            yield span, from_, to, price


def _days(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The stretch, divided at each midnight in UTC."""
    begin = begin.astimezone(UTC)
    while begin < end:
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield begin, min(midnight, end)
        begin = midnight


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
    """Lines by key, sorted; each key is an id as text. The key "" has time without an owner, and that of unknown jobs."""
    lines: dict[str, Line] = {}
    for instance in instances:
        booked: dict[tuple[str, float | None], Booking] = {}
        for span, from_, to, price in _priced(instance, books, now, since, until):
            days = _days(from_, to) if grouping is Grouping.DAY else ((from_, to),)
            for begin, end in days:
                name = _key(grouping, instance, span.allocation, jobs, begin)
                booked[name, price] = booked.get((name, price), Booking()) + span.within(begin, end)
        for (name, price), booking in booked.items():
            lines[name] = lines.get(name, NOTHING) + _line(instance, booking, price)
    return dict(sorted(lines.items()))


def _key(
    grouping: Grouping, instance: Instance, allocation: Allocation | None, jobs: Mapping[JobId, Job], begin: datetime
) -> str:
    match grouping:
        case Grouping.DAY:
            return str(begin.date())
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


# --------------------------------------------------------------------------------------------------------------- spot


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotSaving:
    """What machines on spot have cost, beside the price on demand of the same types for the same time.

    `not_compared_s` are seconds of machines on spot of which one of the two prices is not known: no sum has them in it.
    """

    spot_cost: float = 0.0
    on_demand_cost: float = 0.0
    not_compared_s: float = 0.0

    def __add__(self, other: SpotSaving) -> SpotSaving:
        return SpotSaving(
            spot_cost=self.spot_cost + other.spot_cost,
            on_demand_cost=self.on_demand_cost + other.on_demand_cost,
            not_compared_s=self.not_compared_s + other.not_compared_s,
        )


def spot_saving(
    instances: Iterable[Instance],
    on_demand: Callable[[Instance], float | None],
    *,
    now: datetime,
    since: datetime | None = None,
    until: datetime | None = None,
) -> SpotSaving:
    """`on_demand` gives the on-demand price per hour of such a machine, None if unknown."""
    found = SpotSaving()
    for instance in instances:
        if instance.offer is None or instance.offer.market is not Market.SPOT or instance.paid_from is None:
            continue
        begin = max(instance.paid_from, since) if since is not None else instance.paid_from
        end = min(instance.paid_until or now, until or now)
        other = on_demand(instance)
        for from_, to, price in instance.prices(begin, end):
            seconds = (to - from_).total_seconds()
            if price is None or other is None:
                found += SpotSaving(not_compared_s=seconds)
            else:
                hours = seconds / 3600.0
                found += SpotSaving(spot_cost=price * hours, on_demand_cost=other * hours)
    return found
