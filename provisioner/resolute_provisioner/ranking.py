"""The expected price of an offer: its price, raised by its history. Pure.

    expected price = price x (1 + interruptions per hour x (join + restart)
                                + (join + refusals per grant x delay + dead boots per join x boot timeout) / use)

All times in hours. An interruption costs the boot of another machine and the work and restore of a restart; a refusal costs the
wait for the next attempt; a machine that never joins is paid for until it is given up. The cost of getting a machine is spread
over its time of use (`USE_H`). An untried offer is assumed to have no failures, except that spot machines are interrupted
occasionally.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime

from resolute_provisioner import risk
from resolute_provisioner.model import Evidence, Market, Offer, OfferBelief, PoolScaling
from resolute_provisioner.offers import price_in_force, price_order

DEFAULT_JOIN_TIME_S = 120.0
"""Assumed time to join, for an offer of which no machine has joined yet."""
RESTART_S = 180.0
"""Time that an interruption loses besides the boot: the work since the last checkpoint, and the restore."""
REFUSAL_DELAY_S = 30.0
"""Time that work waits after a refused request until another offer is found or the next attempt succeeds."""
BOOT_TIMEOUT_S = 1200.0
"""Time for which a machine that never joins is paid."""
USE_H = 2.0
"""Typical time for which a machine is in use."""
TRUST = 2.0
"""Prior of an offer: this number of granted requests and joined machines."""
PRIOR_H = 20.0
"""Weight of the prior rate of interruptions, in observed hours."""
PRIOR_INTERRUPTIONS_PER_H: Mapping[Market, float] = {Market.SPOT: 0.05, Market.ON_DEMAND: 0.0}

_NOTHING = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expectation for one offer now."""

    offer: Offer
    price_per_hour: float | None
    """The price in force; None is unknown."""
    join_time_s: float
    """Time from the request to the agent."""
    interruptions_per_hour: float
    launch_success: float
    """Probability that a request is granted."""
    boot_success: float
    """Probability that a machine joins."""
    factor: float
    """Factor by which it costs more than its price; at least 1."""

    @property
    def expected_price(self) -> float | None:
        """Expected price per hour, including the history; None if the price is unknown."""
        return None if self.price_per_hour is None else self.price_per_hour * self.factor

    @property
    def order(self) -> tuple[bool, float, float, str]:
        """A sort key: in this order offers of one size are tried."""
        return (*price_order(self.expected_price), self.factor, self.offer.offer_id)


def forecast(offer: Offer, belief: OfferBelief | None, now: datetime) -> Forecast:
    seen = _NOTHING if belief is None else belief.seen
    weight = risk.weight_of(seen, now)
    join_s = DEFAULT_JOIN_TIME_S if belief is None or belief.join_time_s is None else belief.join_time_s
    prior = PRIOR_INTERRUPTIONS_PER_H[offer.market] * PRIOR_H
    rate = (seen.interruptions * weight + prior) / (seen.exposure_h * weight + PRIOR_H)
    granted = (seen.granted * weight + TRUST) / (seen.requests * weight + TRUST)
    joins = (seen.joins * weight + TRUST) / (seen.boots * weight + TRUST)
    once_s = join_s + (1 / granted - 1) * REFUSAL_DELAY_S + (1 / joins - 1) * BOOT_TIMEOUT_S
    return Forecast(
        offer=offer,
        price_per_hour=price_in_force(offer, belief),
        join_time_s=join_s,
        interruptions_per_hour=rate,
        launch_success=granted,
        boot_success=joins,
        factor=1.0 + rate * (join_s + RESTART_S) / 3600.0 + once_s / 3600.0 / USE_H,
    )


def forecasts(pool: PoolScaling, beliefs: Mapping[str, OfferBelief], now: datetime) -> list[Forecast]:
    """All offers of a pool, the best first; also those that may not be requested now (see `risk.blocks`)."""
    return sorted((forecast(offer, beliefs.get(offer.offer_id), now) for offer in pool.offers), key=lambda o: o.order)


def in_order(
    pool: PoolScaling, beliefs: Mapping[str, OfferBelief], blocked: Container[str], now: datetime
) -> list[Forecast]:
    """The offers in the order in which they are tried for work that fits on any of them: those that may be requested now, which
    are not `blocked` (by offer id), come first."""
    return sorted(forecasts(pool, beliefs, now), key=lambda each: (each.offer.offer_id in blocked, each.order))
