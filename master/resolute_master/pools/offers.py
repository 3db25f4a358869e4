"""From the configuration of a provider to the offers of its pool, with every mistake that only the catalogue can find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from resolute.config.errors import InvalidConfig, Location, Problem, nearest, quoted
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider, CloudOffer, GcpOffer, GcpProvider, LocalProvider, TypePrices
from resolute_master.domain.copies import replace
from resolute_provisioner.catalogue import Catalogue, Shape, gcp, shipped
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.offers import OPERATOR, Purchase, expanded, slots_of

LOCAL_OFFER = Offer(
    offer_id="local",
    instance_type="local",
    zone="this-machine",
    market=Market.ON_DEMAND,
    slots=1,
    price_source=OPERATOR,
    price_is_fixed=True,
    slot_type="artificial",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One type as some key of the configuration names it."""

    at: Location
    """Where the type is written."""
    instance_type: str
    accelerator: str = ""
    accelerators: int = 0
    """Attached to it, where that is possible."""
    slots_at: Location
    """Where its slots may be said; empty where the provider has no such key."""
    slots: int | None
    zones: tuple[str, ...]
    markets: tuple[Market, ...]
    max_price: float | None = None
    reservation: str = ""
    price: float | None = None
    spot_price: float | None = None


def offers_of(pool: ResourcePool, at: Location = (), catalogue: Catalogue | None = None) -> tuple[Offer, ...]:
    """What the pool may buy, by id; nothing for a pool that is not elastic.

    `at` is where the pool stands in its file, `catalogue` what is known of the cloud's types beside the shipped table.
    Raises `InvalidConfig` for types that nobody knows, slots that contradict the type, and what is offered twice.
    """
    provider, here = pool.provider, (*at, "provider")
    match provider:
        case None:
            return ()
        case LocalProvider():
            return tuple(_local_offers(provider))
        case AwsProvider():
            lines = tuple(_aws_lines(provider, here))
        case GcpProvider():
            lines = tuple(_gcp_lines(provider, here))
    known = catalogue if catalogue is not None else shipped(provider.type)
    purchases: list[Purchase] = []
    problems: list[Problem] = []
    for line in lines:
        found = _purchase(provider, known, line)
        if isinstance(found, Purchase):
            purchases.append(found)
        else:
            problems.append(found)
    offers = expanded(purchases, known)
    problems += [*_twice(here, offers), *_not_one_region(provider, here, offers)]
    if problems:
        raise InvalidConfig(f"the provider of resource pool '{pool.pool_name}'", problems)
    return offers


def _local_offers(provider: LocalProvider) -> Iterator[Offer]:
    firm = replace(LOCAL_OFFER, slots=provider.slots_per_instance, price_per_hour=float(provider.price_per_hour))
    yield firm
    if provider.spot_price_per_hour is not None:
        price = float(provider.spot_price_per_hour)
        yield replace(firm, offer_id="local/spot", market=Market.SPOT, price_per_hour=price)


def _aws_lines(provider: AwsProvider, here: Location) -> Iterator[_Line]:
    zones = tuple(provider.network_interface.subnets) or ("",)
    if not provider.offers:
        limit = provider.spot_max_price if provider.spot else None
        yield _Line(
            at=(*here, "instance_type"),
            instance_type=provider.instance_type,
            slots_at=(*here, "instance_slots"),
            slots=provider.instance_slots,
            zones=zones,
            markets=(Market.SPOT if provider.spot else Market.ON_DEMAND,),
            max_price=None if limit is None else float(limit),
        )
    for place, offer in enumerate(provider.offers):
        yield from _lines_of(offer, (*here, "offers", place), zones)


def _gcp_lines(provider: GcpProvider, here: Location) -> Iterator[_Line]:
    zones = provider.zones or (provider.zone or "",)
    if not provider.offers:
        single = provider.instance_type
        yield _Line(
            at=(*here, "instance_type", "machine_type"),
            instance_type=single.machine_type,
            accelerator=single.gpu_type if single.gpu_num else "",
            accelerators=single.gpu_num,
            slots_at=(),
            slots=None,
            zones=zones,
            markets=(Market.SPOT if single.preemptible else Market.ON_DEMAND,),
        )
    for place, offer in enumerate(provider.offers):
        yield from _lines_of(offer, (*here, "offers", place), zones)


def _lines_of(offer: CloudOffer, at: Location, zones: tuple[str, ...]) -> Iterator[_Line]:
    for place, instance_type in enumerate(offer.instance_types):
        yield _Line(
            at=(*at, "instance_types", place),
            instance_type=instance_type,
            accelerator=offer.gpu_type if isinstance(offer, GcpOffer) else "",
            accelerators=offer.gpu_num if isinstance(offer, GcpOffer) else 0,
            slots_at=(*at, "instance_slots"),
            slots=offer.instance_slots,
            zones=offer.zones or zones,
            markets=tuple(Market(name) for name in offer.markets),
            max_price=offer.max_price,
            reservation=offer.reservation or "",
            price=offer.price,
            spot_price=offer.spot_price,
        )


def _purchase(provider: AwsProvider | GcpProvider, catalogue: Catalogue, line: _Line) -> Purchase | Problem:
    known = _known_shape(provider, catalogue, line.instance_type)
    if known is None and line.slots is None:
        return _unknown(catalogue, line)
    shape = known or Shape(instance_type=line.instance_type)
    attached = bool(line.accelerators) and gcp.takes_accelerators(line.instance_type)
    if attached:
        shape = replace(shape, accelerator=line.accelerator, accelerators=line.accelerators)
    slots, slot_type = slots_of(shape, cpu_slots_allowed=provider.cpu_slots_allowed)
    if known is None and line.slots:
        slots, slot_type = line.slots, "auto"  # what gives them the agent finds out
    own = provider.prices.get(line.instance_type) or TypePrices()
    spot_price = own.spot if line.spot_price is None else line.spot_price
    wrong = _contradiction(line, shape, slots) if known is not None else None
    wrong = wrong or _limit_in_vain(provider, line, spot_price)
    if wrong is not None:
        return wrong
    return Purchase(
        cloud=provider.type,
        shape=shape,
        attached=attached,
        region=(provider.region or "") if isinstance(provider, AwsProvider) else "",
        zones=line.zones,
        markets=line.markets,
        slots=slots,
        slot_type=slot_type,
        # The general price of a type is no price of capacity that is reserved.
        price=line.price if line.price is not None or line.reservation else own.on_demand,
        spot_price=spot_price,
        max_price=line.max_price,
        reservation=line.reservation,
    )


def _known_shape(provider: AwsProvider | GcpProvider, catalogue: Catalogue, instance_type: str) -> Shape | None:
    if isinstance(provider, AwsProvider):
        return catalogue.shapes.get(instance_type)
    return gcp.shape_of(catalogue, instance_type)


def _unknown(catalogue: Catalogue, line: _Line) -> Problem:
    near = nearest(line.instance_type, tuple(catalogue.shapes))
    hint = f"did you mean '{near}'? If it is right" if near else "if it is right"
    where = f"{line.slots_at[-1]}" if line.slots_at else "instance_slots of an entry of offers"
    message = f"is not a known type{quoted(line.instance_type, line.at)}; {hint}, say how many slots it has in {where}"
    return Problem(path=line.at, message=message)


def _contradiction(line: _Line, shape: Shape, slots: int) -> Problem | None:
    """What is said of a known type and is not so. Slots that the original has always ignored go on being ignored."""
    if line.accelerators and (line.accelerators, line.accelerator) != (shape.accelerators, shape.accelerator):
        has = f"{shape.accelerators} {shape.accelerator}" if shape.accelerators else "no GPU"
        message = f"has {has} built in, not {line.accelerators} {line.accelerator}; remove gpu_type and gpu_num"
        return Problem(path=line.at, message=message + quoted(line.instance_type, line.at))
    if "offers" in line.at and line.slots is not None and line.slots != slots:
        message = (
            f"is not what {line.instance_type} has, which is {slots}{quoted(line.slots, line.slots_at)}; remove it"
        )
        return Problem(path=line.slots_at, message=message)
    return None


def _limit_in_vain(provider: AwsProvider | GcpProvider, line: _Line, spot_price: float | None) -> Problem | None:
    """AWS is told the limit of a spot machine; Google Cloud cannot be."""
    if isinstance(provider, AwsProvider) or line.max_price is None or Market.SPOT not in line.markets:
        return None
    at = (*line.at[:-2], "max_price")
    message = (
        f"cannot be kept for spot machines{quoted(line.max_price, at)}: Google Cloud tells no spot prices and takes no limit; "
        "set spot_price, or remove it from this entry"
    )
    return Problem(path=at, message=message) if spot_price is None else None


def _not_one_region(provider: AwsProvider | GcpProvider, here: Location, offers: Sequence[Offer]) -> list[Problem]:
    """A pool on AWS is asked for in one region."""
    regions = sorted({offer.region for offer in offers if offer.zone})
    if not isinstance(provider, AwsProvider) or len(regions) < 2:
        return []
    message = f"the zones are in several regions, {', '.join(regions)}; keep to one, and make a pool for each other"
    return [Problem(path=here, message=message)]


def _twice(here: Location, offers: Sequence[Offer]) -> list[Problem]:
    counts = Counter(offer.offer_id for offer in offers)
    return [
        Problem(path=(*here, "offers"), message=f"{offer_id} is offered {count} times; remove it from all but one")
        for offer_id, count in sorted(counts.items())
        if count > 1
    ]
