"""The offers of a pool, made from types, zones and markets; their current prices, and the sources of these. Pure.

An offer's id contains everything that distinguishes it from others, and nothing that changes: `aws/us-east-1a/g5.xlarge/spot`,
`gcp/us-central1-b/n1-standard-8+1x-nvidia-tesla-t4/on_demand`, `aws/us-east-1a/p5.48xlarge/reserved/cr-0abc`. The history of an
offer is stored under its id, whatever its price becomes.

A price is the operator's own, or else the cloud's current one, or else that of the shipped table. If none of them has one, the
price is unknown: it is never 0 and never ranked before a known one. A spot price is not assumed to be below the on-demand price.
Reserved capacity is already paid for, so using it has no extra cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from resolute_provisioner.catalogue.accelerators import slot_type
from resolute_provisioner.catalogue.rules import TypeRules
from resolute_provisioner.catalogue.shapes import Catalogue, Shape
from resolute_provisioner.model import Market, Offer, OfferBelief

OPERATOR = "set by the operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """One machine type that a pool may have, in each of these zones and on each of these markets."""

    shape: Shape
    """Shape of the machine, including attached accelerators."""
    attached: bool = False
    """Whether the accelerators are not part of the type and have to be named."""
    region: str = ""
    """Region of zones whose name does not contain it."""
    zones: tuple[str, ...] = ("",)
    """Zones; an empty one leaves the choice to the cloud."""
    markets: tuple[Market, ...] = (Market.ON_DEMAND,)
    slots: int
    slot_type: str
    price: float | None = None
    """The operator's price per hour on demand; for reserved capacity the price of its use, which is 0 unless it is set."""
    spot_price: float | None = None
    """The operator's own price per hour on the spot market."""
    max_price: float | None = None
    reservation: str = ""


def slots_of(shape: Shape, *, cpu_slots_allowed: bool) -> tuple[int, str]:
    """Number of slots of a machine of the type, and their type (as in `Offer.slot_type`)."""
    if shape.accelerators:
        return shape.accelerators, slot_type(shape.accelerator, shape.manufacturer)
    return (1, "cpu") if cpu_slots_allowed else (0, "none")


def expanded(purchases: Iterable[Purchase], catalogue: Catalogue, rules: TypeRules) -> tuple[Offer, ...]:
    """Every offer of the purchases at one cloud, by id. It may contain duplicates, which the reader of the configuration
    refuses."""
    found = (offer for purchase in purchases for offer in _offers(purchase, catalogue, rules))
    return tuple(sorted(found, key=lambda offer: offer.offer_id))


def _offers(purchase: Purchase, catalogue: Catalogue, rules: TypeRules) -> Iterator[Offer]:
    shape = purchase.shape
    for zone in purchase.zones:
        region = rules.region_of(zone) or purchase.region
        for market in purchase.markets:
            listed = catalogue if rules.has_list_price(zone) else None
            price, source, fixed = _configured_price(purchase, listed, region, market)
            yield Offer(
                offer_id=f"{rules.cloud}/{_name(purchase, zone, region, market)}",
                instance_type=shape.instance_type,
                zone=zone,
                market=market,
                slots=purchase.slots,
                price_per_hour=price,
                price_source=source,
                price_is_fixed=fixed,
                max_price_per_hour=purchase.max_price,
                region=region,
                family=_family(purchase, rules, region, market),
                reservation=purchase.reservation,
                slot_type=purchase.slot_type,
                accelerator=shape.accelerator,
                accelerators=shape.accelerators,
                vcpus=shape.vcpus,
                memory_gib=shape.memory_gib,
            )


def _name(purchase: Purchase, zone: str, region: str, market: Market) -> str:
    shape = purchase.shape
    extra = f"+{shape.accelerators}x-{shape.accelerator}" if purchase.attached else ""
    how = f"reserved/{purchase.reservation}" if purchase.reservation else market.value
    return f"{zone or region or 'default'}/{shape.instance_type}{extra}/{how}"


def _configured_price(
    purchase: Purchase, listed: Catalogue | None, region: str, market: Market
) -> tuple[float | None, str, bool]:
    """(price, its source, whether it takes precedence over the cloud's current price)."""
    own = purchase.spot_price if market is Market.SPOT else purchase.price
    if own is not None:
        return own, OPERATOR, True
    if purchase.reservation:
        return 0.0, f"paid for already, as reservation {purchase.reservation}", True
    if market is Market.SPOT:  # it moves by the hour: no table can know it
        return None, "", False
    price = None if listed is None else listed.price(purchase.shape, region)
    return price, "" if price is None or listed is None else listed.source, False


def _family(purchase: Purchase, rules: TypeRules, region: str, market: Market) -> str:
    """Name of the quota of the account that the offers share."""
    counted = rules.quota_of(purchase.shape, spot=market is Market.SPOT)
    return f"{rules.cloud}/{region or 'default'}/{market.value}/{counted}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price in force of one offer."""

    per_hour: float | None
    """In the currency of the account; None is unknown."""
    source: str
    """For display: its source."""
    as_of: datetime | None = None
    """Its time; None if unknown."""


def priced(offer: Offer, belief: OfferBelief | None) -> Price:
    """The price in force: the operator's, the cloud's of the moment, the table's, unknown."""
    if belief is None or not _is_live(offer, belief):
        return Price(per_hour=offer.price_per_hour, source=offer.price_source)
    return Price(per_hour=belief.price_per_hour, source=belief.price_source, as_of=belief.price_as_of)


def price_in_force(offer: Offer, belief: OfferBelief | None) -> float | None:
    """The price of `priced` alone: decisions use it for every offer."""
    return offer.price_per_hour if belief is None or not _is_live(offer, belief) else belief.price_per_hour


def _is_live(offer: Offer, belief: OfferBelief) -> bool:
    """Whether the cloud's price of the moment is the one in force."""
    return belief.price_per_hour is not None and not offer.price_is_fixed


def price_order(price: float | None) -> tuple[bool, float]:
    """A sort key: cheapest first, unknown prices last."""
    return (price is None, price or 0.0)


def too_dear(offer: Offer, belief: OfferBelief | None) -> str:
    """Why the offer must not be used at its present price; "" if it may be. For an unknown price on the spot market the cloud
    receives the limit, and refuses prices above it; on demand it would not."""
    limit = offer.max_price_per_hour
    if limit is None:
        return ""
    price = price_in_force(offer, belief)
    if price is not None and price <= limit:
        return ""
    if price is None:
        spot = offer.market is Market.SPOT
        return "" if spot else f"its price is unknown, and may be above its max_price of {limit:g}"
    return f"its price of {price:g} an hour is above its max_price of {limit:g}"
