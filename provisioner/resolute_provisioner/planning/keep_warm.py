"""How long a machine without work is kept. Pure.

Ending a machine too early delays the next work by a boot; keeping it costs its price. So a pool learns from its own gaps
(`gaps`) how long to keep machines of a size, up to its idle period. Where machines run for hours, it keeps them for at least
`WARM_SHARE` of that time, which is negligible in the bill. A pool without a learnt period keeps each machine for the whole idle
period. With `max_idle_cost` a machine may be idle until its idle time has cost that sum, whatever work is expected: cheap
machines longer than expensive ones."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from resolute_provisioner import gaps
from resolute_provisioner.model import OfferBelief, PoolScaling
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S

WARM_SHARE = 0.02
"""Share of the mean lifetime of machines up to which idle time and boot time are negligible beside the work."""
SHORTEST_S = 15.0
"""Minimum idle period: the next run of ended work follows within seconds."""


class IdlePeriods:
    """The idle periods of the machines of a pool, at one moment."""

    def __init__(self, pool: PoolScaling, beliefs: Mapping[str, OfferBelief]) -> None:
        self.pool, self._beliefs = pool, beliefs
        self._slots = {offer.offer_id: offer.slots for offer in pool.offers}
        self._of_size: dict[int, float] = {}
        self._of_offer: dict[tuple[str, float | None], float] = {}

    def of(self, offer_id: str, price_per_hour: float | None) -> float:
        """Seconds that a machine of the offer may be idle at that price. A machine without extra cost, because it is paid for
        anyway, is kept for the whole period, and so is a machine whose offer was removed from the configuration.

        The result is in whole seconds: times are stored in microseconds, so with a fraction the stored end of the period would be
        before the computed one, and no later check would follow.
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
        """Whether a machine that has been starting for this long will join later than an idle one would be released. Always False
        for a pool without a learnt period."""
        slots = self._slots.get(offer_id)
        if not self.pool.idle_learnt or slots is None:
            return False
        return self._boot_s(slots) - booting_s > min(self.pool.idle_timeout_s, self._learnt_s(slots))

    def boots_are_cheap(self, slots: int) -> bool:
        """Whether machines of the size run so long that one more boot is negligible."""
        return WARM_SHARE * self._life_s(slots) >= self._boot_s(slots)

    def _life_s(self, slots: int) -> float:
        """The mean lifetime of machines of the size, in seconds; 0 before any has ended."""
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
        """The learnt period, equal for all offers of one size: their machines serve the same work."""
        if slots not in self._of_size:
            seen = gaps.together(belief.gaps for belief in self._known(slots))
            found = gaps.idle_period_s(seen, self._boot_s(slots))
            # In whole seconds, for the same reason as above.
            self._of_size[slots] = max(SHORTEST_S, found, float(round(WARM_SHARE * self._life_s(slots))))
        return self._of_size[slots]
