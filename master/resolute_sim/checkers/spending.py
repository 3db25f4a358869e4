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
from resolute_sim.checkers.prices import ReportedPrices
from resolute_sim.event_log import Busy, EventLog

ROUNDING = 1e-6
"""Tolerance of an amount, or of one unit of money."""

REACH = timedelta(seconds=60.0)
"""Time after a fault until an order reaches a machine again, or its work has ended with its lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No order could reach the machine, None every machine, from one moment to another."""

    machine: str | None
    begin: datetime
    end: datetime


class Limits:
    """No experiment has spent more than its limit while it could have been stopped."""

    def __init__(self, cloud: FakeCloud, event_log: EventLog, told: ReportedPrices) -> None:
        self._cloud = cloud
        self._event_log = event_log
        self._reported = told
        self._unreachable: list[Unreachable] = []

    def unreachable(self, machine: str | None, begin: datetime, end: datetime) -> None:
        self._unreachable.append(Unreachable(machine=machine, begin=begin, end=end + REACH))

    def check(self, experiment: Experiment, trials: Iterable[int]) -> Iterator[str]:
        limit = experiment.max_cost
        if limit is None:
            return
        lines = {line.instance_id: line for line in self._cloud.bill.lines}
        mine = frozenset(trials)
        spent = sum(
            self._cost(busy, lines[busy.machine])
            for busy in self._event_log.busy
            if busy.trial in mine and busy.machine in lines
        )
        if spent > limit + ROUNDING:
            yield f"experiment {experiment.id} may cost {limit:g}, and its tasks have held slots for {spent:.6f}"

    def _cost(self, busy: Busy, line: BillLine) -> float:
        """Cost of the task's slots while it ran, without the periods in which the machine was unreachable. It uses the reported
        prices, because the master had no others."""
        slots = self._cloud.machines[line.provider_id].request.offer.slots
        amount, cursor = 0.0, busy.start
        for each in sorted(self._unreachable, key=lambda each: each.begin):
            if each.machine not in (None, busy.machine):
                continue
            amount += self._reported.cost(line, cursor, max(cursor, min(each.begin, busy.end)))
            cursor = max(cursor, each.end)
        return (amount + self._reported.cost(line, cursor, max(cursor, busy.end))) / slots * busy.slots


def ordered(cloud: FakeCloud, rows: Iterable[Instance]) -> list[BillLine]:
    """The bill but for what was never seen: a request that was refused, came to something after all, and ended before any list
    showed it."""
    refused = {row.token for row in rows if row.refused}
    return [line for line in cloud.bill.lines if line.token not in refused]


class Asked:
    """The cost of these lines of the cloud's bill, at the prices that the master knows."""

    def __init__(
        self, cloud: FakeCloud, told: ReportedPrices, lines: Sequence[BillLine], rows: Sequence[Instance], now: datetime
    ) -> None:
        self._of_pool: defaultdict[str, float] = defaultdict(float)
        for line in lines:
            pool = cloud.machines[line.provider_id].request.pool
            self._of_pool[pool] += told.cost(line, line.paid_from, line.paid_until or now)
        self._now = now
        self._unfollowed = told.unfollowed(lines, rows)

    def of_accounts(self, state: ClusterState) -> Iterator[str]:
        """What each pool has spent is that."""
        spent = {each.name: each.until(self._now).in_all for each in state.all(Account) if each.owner is Owner.POOL}
        for pool, amount in sorted(self._of_pool.items()):
            if self._differs(spent.get(pool, 0.0), amount):
                yield f"the cloud asks {amount:.6f} for the machines of {pool}, on whose account are {spent.get(pool, 0.0):.6f}"

    def of_books(self, books: Sequence[tuple[str, dict[str, Line]]]) -> Iterator[str]:
        """Whatever the books are kept by, they sum to that."""
        amount = sum(self._of_pool.values())
        for grouping, booking in books:
            booked = total(booking.values()).cost
            if self._differs(booked, amount):
                yield f"the cloud asks {amount:.6f}, and the books by {grouping} sum to {booked:.6f}"

    def _differs(self, booked: float, amount: float) -> bool:
        return abs(booked - amount) > ROUNDING * max(1.0, amount) + self._unfollowed
