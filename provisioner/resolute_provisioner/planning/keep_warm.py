"""How long a machine without work is kept. Pure.

Ending a machine too early costs the next work a boot; keeping it costs its price. So a pool learns from its own gaps (`gaps`) how
long machines of a size are worth keeping, up to its idle period; where they work for hours at a time, `WARM_SHARE` of that is kept
warm in any case, because nobody would see it in the bill. A pool that shall not learn keeps each for the whole period. With
`max_idle_cost` each may idle until its idle time has cost so much, however soon work is expected: cheap machines longer than dear
ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from resolute_provisioner import gaps
from resolute_provisioner.model import OfferBelief, PoolScaling
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S

WARM_SHARE = 0.02
"""Of the time that machines live: what they may idle, and what a boot may take, before it matters beside the work."""
SHORTEST_S = 15.0
"""Never shorter: what ends is followed within seconds by what comes next of it."""


class IdlePeriods:
    """Of the machines of a pool, at one moment."""

    def __init__(self, pool: PoolScaling, beliefs: Mapping[str, OfferBelief]) -> None:
        self.pool, self._beliefs = pool, beliefs
        self._slots = {offer.offer_id: offer.slots for offer in pool.offers}
        self._of_size: dict[int, float] = {}
        self._of_offer: dict[tuple[str, float | None], float] = {}

    def of(self, offer_id: str, price_per_hour: float | None) -> float:
        """Seconds that a machine of the offer may be without work at that price. One that costs nothing more, because it is paid
        for anyway, is kept for the whole period, and so is one whose offer has left the configuration.

        What the price allows is in whole seconds: of a fraction below a microsecond the moment at which it is over would come too
        early to be that moment, and no other would follow.
        """
        key = (offer_id, price_per_hour)
        if key not in self._of_offer:
            self._of_offer[key] = self._period_s(offer_id, price_per_hour)
        return self._of_offer[key]

    def _period_s(self, offer_id: str, price_per_hour: float | None) -> float:
        pool = self.pool
        period_s = pool.idle_timeout_s
        slots = self._slots.get(offer_id)
        if pool.idle_learnt and slots is not None and price_per_hour != 0.0:
            period_s = min(period_s, self._learnt_s(slots))
        if pool.max_idle_cost is None or not price_per_hour:
            return period_s
        return max(period_s, float(ceil(pool.max_idle_cost / price_per_hour * 3600.0)))

    def boots_for_long(self, offer_id: str, booting_s: float) -> bool:
        """Whether a machine that has been starting for this long will join later than an idle one would be released. Never where
        the pool does not learn."""
        slots = self._slots.get(offer_id)
        if not self.pool.idle_learnt or slots is None:
            return False
        return self._boot_s(slots) - booting_s > min(self.pool.idle_timeout_s, self._learnt_s(slots))

    def boots_are_cheap(self, slots: int) -> bool:
        """Whether machines of the size live so long that one more boot does not matter."""
        return WARM_SHARE * self._life_s(slots) >= self._boot_s(slots)

    def _life_s(self, slots: int) -> float:
        """How long a machine of the size is there, on average; 0 before any has ended."""
        seen = [belief.seen for belief in self._known(slots)]
        joins = sum(each.joins for each in seen)
        return 3600.0 * sum(each.exposure_h for each in seen) / joins if joins > 0.0 else 0.0

    def _known(self, slots: int) -> list[OfferBelief]:
        return [
            belief
            for offer in self.pool.offers
            if offer.slots == slots and (belief := self._beliefs.get(offer.offer_id)) is not None
        ]

    def _boot_s(self, slots: int) -> float:
        joins = [belief.join_time_s for belief in self._known(slots) if belief.join_time_s is not None]
        return float(round(min(joins, default=DEFAULT_JOIN_TIME_S)))

    def _learnt_s(self, slots: int) -> float:
        """The same for all offers of one size: their machines serve the same work."""
        if slots not in self._of_size:
            seen = gaps.together(belief.gaps for belief in self._known(slots))
            found = gaps.idle_period_s(seen, self._boot_s(slots))
            # In whole seconds, for the same reason as above.
            self._of_size[slots] = max(SHORTEST_S, found, float(round(WARM_SHARE * self._life_s(slots))))
        return self._of_size[slots]
