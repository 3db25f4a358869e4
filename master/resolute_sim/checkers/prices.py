"""The market's prices as the master receives them: machines are booked by them, and each change arrives in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, PoolBelief
from resolute_master.domain.instance import Instance
from resolute_master.engine.price_watch import JITTER
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.clouds.fake import BillLine, FakeCloud

ANSWER = timedelta(seconds=120.0)
"""Maximum time of a query with its consequences: the cloud's answer, the queue of the engine, a commit."""

EVEN = 1e-9
"""An hour: what rounding may make of a sum of prices."""


class ReportedPrices:
    """The price of each offer that the master knows, over time.

    A machine's bill and its booked cost differ by the market's changes between a change and its report: that is at most the
    size of the move for `asked_every_s`, lengthened by the watch's jitter, plus `ANSWER`, plus the time that the master was away.
    So two things are checked: each move is reported within that time (`late`), and what is booked is, to the rounding, the
    cost of the machines at the reported prices (`cost`)."""

    def __init__(self, cloud: FakeCloud, asked_every_s: float) -> None:
        self._cloud = cloud
        self._delay = timedelta(seconds=asked_every_s * (1.0 + JITTER)) + ANSWER
        self._reported: defaultdict[str, list[tuple[datetime, float]]] = defaultdict(list)
        """By the offer, whose name contains the pool."""
        self._away: list[tuple[datetime, datetime]] = []

    def note(self, change: Change) -> None:
        for entity in change.upserts:
            price = entity.belief.price_per_hour if isinstance(entity, PoolBelief) else None
            if isinstance(entity, PoolBelief) and price is not None:
                told = self._reported[entity.belief.offer_id]
                if not told or told[-1][1] != price:
                    told.append((change.journal.at, price))

    def away(self, begin: datetime, end: datetime) -> None:
        """There was no master."""
        self._away.append((begin, end))

    def cost(self, line: BillLine, begin: datetime, end: datetime) -> float:
        """Cost of the machine in this period, at the price that was reported for its offer at each moment."""
        offer = self._cloud.machines[line.provider_id].request.offer
        cursor, price, amount = begin, offer.price_per_hour or 0.0, 0.0
        for at, then in self._reported.get(line.offer_id, ()):
            if cursor < at < end:
                amount += price * (at - cursor).total_seconds() / 3600.0
                cursor = at
            if at < end:
                price = then
        return amount + price * max(0.0, (end - cursor).total_seconds()) / 3600.0

    def unfollowed(self, lines: Iterable[BillLine], rows: Iterable[Instance]) -> float:
        """The allowed difference for machines that counted as ended for a time: their prices were not followed then."""
        again = {row.token: row.found_again_at for row in rows if row.found_again_at is not None}
        amount = 0.0
        for line in lines:
            prices = [price for _, price in self._reported.get(line.offer_id, ())]
            if line.token in again and prices:
                first = self._cloud.machines[line.provider_id].request.offer.price_per_hour or 0.0
                spread = max(*prices, first) - min(*prices, first)
                amount += spread * max(0.0, (again[line.token] - line.paid_from).total_seconds()) / 3600.0
        return amount

    def late(self, now: datetime) -> Iterator[str]:
        """Changes that lasted long enough and were not reported."""
        for offer_id, moves in sorted(self._cloud.market.items()):
            ends = [*(move.as_of for move in moves[1:]), now]
            for move, end in zip(moves, ends, strict=True):
                due = self._due(move.as_of)
                if due < end and self._believed(offer_id, due) != move.per_hour:
                    yield f"{offer_id} cost {move.per_hour} from {move.as_of} on, which was not reported to the master until {due}"

    def _due(self, moved: datetime) -> datetime:
        due = moved + self._delay
        for begin, end in sorted(self._away):
            if begin < due and end > moved:
                due = max(due, end + self._delay)
        return due

    def _believed(self, offer_id: str, moment: datetime) -> float | None:
        return next((price for at, price in reversed(self._reported[offer_id]) if at <= moment), None)


def work_pays_what_its_machines_cost(state: ClusterState) -> Iterator[str]:
    """At each moment, as long as all of its machines have an agent."""
    machines = {agent.id: agent.instance_id for agent in state.all(Agent)}
    for allocation in state.all(Allocation):
        held = [(machines.get(each.agent, ""), len(each.slots)) for each in allocation.containers]
        if allocation.ended or "" in dict(held):
            continue
        rows = [(state.get(Instance, id_), slots) for id_, slots in held if id_ is not None and slots]
        shares = [
            None if row is None or row.price_per_hour is None else row.price_per_hour * slots / row.slots
            for row, slots in rows
        ]
        cost = None if None in shares or not held else sum(share or 0.0 for share in shares)
        if (cost is None) != (allocation.price_per_hour is None) or abs(
            (allocation.price_per_hour or 0.0) - (cost or 0.0)
        ) > EVEN:
            yield f"{allocation.id} pays {allocation.price_per_hour} an hour, and its slots cost {cost}"
