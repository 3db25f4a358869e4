"""Limits are kept and no money is lost, counted from the cloud's own bill and from what the tasks wrote down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute_master.domain.account import Account, Owner
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.cost import Line, total
from resolute_provisioner.clouds.fake import BillLine, FakeCloud
from resolute_sim.diary import Busy, Diary

ROUNDING = 1e-6
"""Of an amount, or of one unit of money."""

REACH = timedelta(seconds=60.0)
"""After a fault it may take so long until an order reaches a machine again, or what runs there has ended with its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No order could reach the machine, None every machine, from one moment to another."""

    machine: str | None
    begin: datetime
    end: datetime


class Limits:
    """No experiment has spent more than its limit while anybody could have stopped it."""

    def __init__(self, cloud: FakeCloud, diary: Diary) -> None:
        self._cloud = cloud
        self._diary = diary
        self._unreachable: list[Unreachable] = []

    def unreachable(self, machine: str | None, begin: datetime, end: datetime) -> None:
        self._unreachable.append(Unreachable(machine=machine, begin=begin, end=end + REACH))

    def check(self, experiment: Experiment, trials: Iterable[int]) -> Iterator[str]:
        limit = experiment.max_cost
        if limit is None:
            return
        prices = {
            line.instance_id: line.price_per_hour / self._cloud.machines[line.provider_id].request.offer.slots
            for line in self._cloud.bill.lines
        }
        mine = frozenset(trials)
        spent = sum(
            self._seconds(busy) / 3600.0 * busy.slots * prices.get(busy.machine, 0.0)
            for busy in self._diary.busy
            if busy.trial in mine
        )
        if spent > limit + ROUNDING:
            yield f"experiment {experiment.id} may cost {limit:g}, and its tasks have held slots for {spent:.6f}"

    def _seconds(self, busy: Busy) -> float:
        """That it ran, but for the times at which nobody could reach it."""
        seconds, cursor = 0.0, busy.start
        for each in sorted(self._unreachable, key=lambda each: each.begin):
            if each.machine not in (None, busy.machine):
                continue
            if each.begin > cursor:
                seconds += max(0.0, (min(each.begin, busy.end) - cursor).total_seconds())
            cursor = max(cursor, each.end)
        return seconds + max(0.0, (busy.end - cursor).total_seconds())


def ordered(cloud: FakeCloud, rows: Iterable[Instance]) -> list[BillLine]:
    """The bill but for what was never seen: a request that was refused, came to something after all, and ended before any list
    showed it."""
    refused = {row.token for row in rows if row.refused}
    return [line for line in cloud.bill.lines if line.token not in refused]


def accounts_equal_the_bill(
    cloud: FakeCloud, lines: Iterable[BillLine], state: ClusterState, now: datetime
) -> Iterator[str]:
    """What each pool has spent is what the cloud asks for its machines."""
    booked = {each.name: each.until(now).in_all for each in state.all(Account) if each.owner is Owner.POOL}
    billed: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        billed[cloud.machines[line.provider_id].request.pool] += line.cost(now)
    for pool, amount in sorted(billed.items()):
        if abs(booked.get(pool, 0.0) - amount) > ROUNDING * max(1.0, amount):
            yield f"the cloud asks {amount:.6f} for the machines of {pool}, on whose account are {booked.get(pool, 0.0):.6f}"


def books_equal_the_bill(
    lines: Iterable[BillLine], books: Sequence[tuple[str, dict[str, Line]]], now: datetime
) -> Iterator[str]:
    """Whatever the books are kept by, they sum to what the cloud asks."""
    amount = sum(line.cost(now) for line in lines)
    for grouping, booking in books:
        booked = total(booking.values()).cost
        if abs(booked - amount) > ROUNDING * max(1.0, amount):
            yield f"the cloud asks {amount:.6f}, and the books by {grouping} sum to {booked:.6f}"
