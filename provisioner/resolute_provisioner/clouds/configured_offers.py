"""Converts the lines of a configuration that name machine types to offers, with every mistake that only the catalogue shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from resolute.config.errors import InvalidConfig, Location, Problem, nearest, quoted
from resolute.config.providers import CloudOffer, TypePrices
from resolute_provisioner.catalogue import Catalogue, Shape
from resolute_provisioner.catalogue.rules import TypeRules
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.offers import Purchase, expanded, slots_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One type as some key of the configuration names it."""

    at: Location
    """Where the type is written."""
    instance_type: str
    accelerator: str = ""
    accelerators: int = 0
    """Attached to it, where that is possible."""
    slots_at: Location
    """The key for its slots; empty if the provider has no such key."""
    slots: int | None
    zones: tuple[str, ...]
    markets: tuple[Market, ...]
    max_price: float | None = None
    reservation: str = ""
    price: float | None = None
    spot_price: float | None = None


def lines_of(
    offer: CloudOffer, at: Location, zones: tuple[str, ...], *, accelerator: str = "", accelerators: int = 0
) -> Iterator[Line]:
    """Lines of one entry of the key `offers`. `zones` are the provider's, for an entry without its own."""
    for place, instance_type in enumerate(offer.instance_types):
        yield Line(
            at=(*at, "instance_types", place),
            instance_type=instance_type,
            accelerator=accelerator,
            accelerators=accelerators,
            slots_at=(*at, "instance_slots"),
            slots=offer.instance_slots,
            zones=offer.zones or zones,
            markets=tuple(Market(name) for name in offer.markets),
            max_price=offer.max_price,
            reservation=offer.reservation or "",
            price=offer.price,
            spot_price=offer.spot_price,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferReader:
    """Converts the lines of one pool to offers."""

    rules: TypeRules
    catalogue: Catalogue
    prices: Mapping[str, TypePrices]
    """The operator's own prices, by instance type."""
    cpu_slots_allowed: bool
    region: str = ""
    """Region of zones whose name does not contain it."""
    further: Callable[[Line, float | None], Problem | None] = lambda line, spot_price: None
    """Further problems of a line; the second argument is the operator's own spot price."""
    together: Callable[[Sequence[Offer]], Iterable[Problem]] = lambda offers: ()
    """Problems of the offers as a whole."""

    def offers(self, pool_name: str, here: Location, lines: Iterable[Line]) -> tuple[Offer, ...]:
        """The offers, by id. Raises `InvalidConfig` for unknown types, slots that contradict the type, and duplicate offers."""
        found = [self._purchase(line) for line in lines]
        problems = [each for each in found if isinstance(each, Problem)]
        purchases = (each for each in found if isinstance(each, Purchase))
        offers = expanded(purchases, self.catalogue, self.rules)
        problems += [*_twice(here, offers), *self.together(offers)]
        if problems:
            raise InvalidConfig(f"the provider of resource pool '{pool_name}'", problems)
        return offers

    def _purchase(self, line: Line) -> Purchase | Problem:
        known = self.rules.shape_of(self.catalogue, line.instance_type)
        if known is None and line.slots is None:
            return _unknown(self.catalogue, line)
        shape = known or Shape(instance_type=line.instance_type)
        attached = bool(line.accelerators) and self.rules.takes_accelerators(line.instance_type)
        if attached:
            shape = replace(shape, accelerator=line.accelerator, accelerators=line.accelerators)
        slots, slot_type = slots_of(shape, cpu_slots_allowed=self.cpu_slots_allowed)
        if known is None and line.slots:
            slots, slot_type = line.slots, "auto"  # what gives them the agent finds out
        own = self.prices.get(line.instance_type) or TypePrices()
        spot_price = own.spot if line.spot_price is None else line.spot_price
        wrong = _contradiction(line, shape, slots) if known is not None else None
        wrong = wrong or self.further(line, spot_price)
        if wrong is not None:
            return wrong
        return Purchase(
            shape=shape,
            attached=attached,
            region=self.region,
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


def _unknown(catalogue: Catalogue, line: Line) -> Problem:
    near = nearest(line.instance_type, tuple(catalogue.shapes))
    hint = f"did you mean '{near}'? If it is right" if near else "if it is right"
    where = f"{line.slots_at[-1]}" if line.slots_at else "instance_slots of an entry of offers"
    message = f"is not a known type{quoted(line.instance_type, line.at)}; {hint}, say how many slots it has in {where}"
    return Problem(path=line.at, message=message)


def _contradiction(line: Line, shape: Shape, slots: int) -> Problem | None:
    """Configured values that contradict a known type. Slots that the original has always ignored are still ignored."""
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


def _twice(here: Location, offers: Sequence[Offer]) -> list[Problem]:
    counts = Counter(offer.offer_id for offer in offers)
    return [
        Problem(path=(*here, "offers"), message=f"{offer_id} is offered {count} times; remove it from all but one")
        for offer_id, count in sorted(counts.items())
        if count > 1
    ]
