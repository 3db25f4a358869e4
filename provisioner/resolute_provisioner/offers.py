"""What an offer costs now, and what that rests on. Pure.

A price is the operator's own, or else the cloud's word of the moment, or else the shipped table's. One that none of
them knows is unknown: it is never 0 and never ranked before a known one. A spot price is not assumed to be below the
on-demand price. Capacity that is reserved is paid for already, so that using it costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_provisioner.model import Offer, OfferBelief


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price in force of one offer."""

    per_hour: float | None
    """In the currency of the account; None is unknown."""
    source: str
    """For people: whose word it is."""
    as_of: datetime | None = None
    """Of when it is; None where nobody knows."""


def priced(offer: Offer, belief: OfferBelief | None) -> Price:
    """The price in force: the operator's, the cloud's of the moment, the table's, unknown."""
    live = None if belief is None else belief.price_per_hour
    if belief is None or live is None or offer.price_is_fixed:
        return Price(per_hour=offer.price_per_hour, source=offer.price_source)
    return Price(per_hour=live, source=belief.price_source, as_of=belief.price_as_of)


def price_order(price: float | None) -> tuple[bool, float]:
    """A sort key: cheapest first, what is unknown last."""
    return (price is None, price or 0.0)


def too_dear(offer: Offer, belief: OfferBelief | None) -> str:
    """Why the offer is not to be bought at its price of now; empty when it may be. An unknown price stops nothing: the
    cloud is told the limit, and refuses what is above it."""
    price, limit = priced(offer, belief).per_hour, offer.max_price_per_hour
    if price is None or limit is None or price <= limit:
        return ""
    return f"its price of {price:g} an hour is above its max_price of {limit:g}"
