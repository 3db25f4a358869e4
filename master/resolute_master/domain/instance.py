"""Our request for a machine, recorded before any cloud is called."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.agent import MachineNotice
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_provisioner.model import Intent, Observed, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPrice:
    """What a machine cost an hour until the market moved; None was not known."""

    per_hour: float | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Three facts are kept apart: what we intend, what the cloud reports, and whether its agent is connected.

    `token` is the idempotency token of the launch: the cloud gives at most one machine for it. `gangs` are the waiting
    allocations that the machine was launched for. `paid_from`/`paid_until` are the cloud's bill.
    """

    id: InstanceId
    pool: PoolName
    token: str
    offer_id: str
    slots: int
    price_per_hour: float | None
    """In force since the last of `earlier_prices` ended, as far as the price is known; None when it never was."""
    requested_at: datetime
    reason: str = ""
    gangs: tuple[str, ...] = ()
    intent: Intent = Intent.RUN
    observed: Observed = Observed.UNKNOWN
    observed_at: datetime | None = None
    provider_id: str = ""
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    agent_id: AgentId | None = None
    joined_at: datetime | None = None
    idle_since: datetime | None = None
    unreachable_since: datetime | None = None
    """Since when its agent is out of contact, once the agent has been given up; it may still reconnect."""
    notice: MachineNotice | None = None
    launched_at: datetime | None = None
    """When the cloud confirmed it."""
    refused: str = ""
    """The cloud's message for a refused machine, which cost nothing."""
    stop_reason: str = ""
    stopped_at: datetime | None = None
    found_again_at: datetime | None = None
    """When its machine was last found as a stray, after the row had counted as over: since then it ends, and nothing else."""
    draining_since: datetime | None = None
    join_token_spent_at: datetime | None = None
    """Since when its machine has a secret of its own, so that the token of its boot configuration is refused."""
    offer: Offer | None = None
    """As it was when the machine was requested: a repeated request is the same request, whatever the configuration has
    become. None for machines from before it was kept."""
    earlier_prices: tuple[EarlierPrice, ...] = ()
    """By their ends, the first one in force from the beginning: of a machine whose price moves."""

    @property
    def over(self) -> bool:
        """Nothing is left of it and nothing will be paid any more."""
        return self.observed is Observed.GONE

    @property
    def price_moves(self) -> bool:
        """It pays what the market asks at the moment, and not what it was launched at."""
        return self.offer is not None and self.offer.price_moves

    def at_price(self, per_hour: float, now: datetime) -> Instance:
        """With a price from now on. Unchanged if the price is the same; a clock that goes back changes nothing."""
        if per_hour == self.price_per_hour:
            return self
        since = self.earlier_prices[-1].until if self.earlier_prices else self.requested_at
        past = (EarlierPrice(per_hour=self.price_per_hour, until=now),) if since < now else ()
        return replace(self, price_per_hour=per_hour, earlier_prices=(*self.earlier_prices, *past))

    def prices(self, begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, float | None]]:
        """The stretches of this time and what an hour of each cost, in order and without gaps."""
        first = bisect_right(self.earlier_prices, begin, key=lambda each: each.until)
        for each in self.earlier_prices[first:]:
            if begin >= end:
                return
            yield begin, min(each.until, end), each.per_hour
            begin = each.until
        if begin < end:
            yield begin, end, self.price_per_hour

    def cost(self, begin: datetime, end: datetime) -> float:
        """The cost of this time; time with an unknown price counts 0."""
        stretches = self.prices(begin, end)
        return sum((price or 0.0) * (until - since).total_seconds() / 3600.0 for since, until, price in stretches)
