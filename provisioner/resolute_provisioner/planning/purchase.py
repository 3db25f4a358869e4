"""The purchase for gangs that fit on no machine, if there is capacity for all of them. Pure.

A bin packing with bins of several sizes and prices. Each size in turn is the preferred one; gangs are packed into the machines
first fit, once the largest first and once in their order; each machine is then exchanged for the cheapest that holds its gangs;
the cheapest result wins. (Iterated first fit decreasing, after Kang and Park, "Algorithms for the variable sized bin packing
problem", European Journal of Operational Research 147, 2003.) So the result is never worse than first fit on any one size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from resolute_provisioner.model import Gang, Market
from resolute_provisioner.planning.gangs import fits_one_machine, needs_whole_machines, shape_of
from resolute_provisioner.planning.stock import Cost, Stock, cost_of
from resolute_provisioner.ranking import Forecast

SIZES_TRIED = 8
"""Number of sizes that are tried, those with the cheapest slots first. More distinct sizes than that are hardly ever worth
their price."""


@dataclass(slots=True, eq=False)
class Bin:
    """One machine to buy, while it is filled."""

    forecast: Forecast
    free: int
    aux: int
    gangs: list[Gang] = field(default_factory=list)

    def takes(self, gang: Gang) -> bool:
        room = self.free >= gang.slots if gang.slots else self.aux > 0
        return room and self.forecast.offer.market in gang.markets

    def put(self, gang: Gang) -> None:
        self.gangs.append(gang)
        self.free -= gang.slots
        self.aux -= gang.slots == 0


@dataclass(frozen=True, slots=True)
class Purchase:
    """One machine to buy, and its gangs."""

    forecast: Forecast
    gangs: tuple[Gang, ...]


def purchase(gangs: Sequence[Gang], stock: Stock, *, max_aux: int, room: int) -> list[Purchase] | None:
    """Machines for all of `gangs`, in their order; each of them fits on some offer. None when no purchase
    that was tried stays within `room` machines: then their importance has to decide."""
    if sum(gang.slots for gang in gangs) > room * max(stock.sizes):
        return None
    largest_first = sorted(gangs, key=lambda gang: (len(gang.markets), -gang.slots))
    orders = [largest_first] if largest_first == list(gangs) else [largest_first, list(gangs)]
    best: tuple[tuple[Cost, int], _Attempt] | None = None
    for size in (None, *stock.sizes_by_value()[:SIZES_TRIED]):
        for order in orders:
            attempt = _Attempt(order, stock, size, max_aux)
            if attempt.count <= room and (best is None or (attempt.cost, attempt.count) < best[0]):
                best = ((attempt.cost, attempt.count), attempt)
    return None if best is None else best[1].machines()


class _Attempt:
    """First fit, buying machines of `size` wherever that is possible."""

    def __init__(self, gangs: Sequence[Gang], stock: Stock, size: int | None, max_aux: int) -> None:
        self._stock = stock
        self._size = size
        self._max_aux = max_aux
        self._shared: list[Bin] = []
        self._whole: list[tuple[Forecast, int, Gang]] = []
        """Machines that one gang uses as a whole: offer and number."""
        self._open_from: dict[tuple[int, frozenset[Market]], int] = {}
        """Bins before this one are too full for gangs of such a shape, and will not become emptier."""
        self._ways: dict[tuple[object, ...], tuple[Forecast, int]] = {}
        for gang in gangs:
            if not self._shares(gang):
                self._open(gang)
        for each in self._shared:
            _exchange(each, stock)

    @property
    def count(self) -> int:
        return len(self._shared) + sum(count for _, count, _ in self._whole)

    @property
    def cost(self) -> Cost:
        unknown, price = cost_of(each.forecast for each in self._shared)
        for forecast, count, _ in self._whole:
            more = _times(forecast, count)
            unknown, price = unknown + more[0], price + more[1]
        return unknown, price

    def machines(self) -> list[Purchase]:
        found = [Purchase(each.forecast, tuple(each.gangs)) for each in self._shared]
        for forecast, count, gang in self._whole:
            found.extend([Purchase(forecast, (gang,))] * count)
        return found

    def _shares(self, gang: Gang) -> bool:
        if not fits_one_machine(gang, gang.slots):
            return False
        shape, bins = (gang.slots, gang.markets), self._shared
        index = self._open_from.get(shape, 0)
        while index < len(bins) and not bins[index].takes(gang):
            index += 1
        self._open_from[shape] = index
        if index < len(bins):
            bins[index].put(gang)
        return index < len(bins)

    def _open(self, gang: Gang) -> None:
        shape = shape_of(gang)
        if shape not in self._ways:
            self._ways[shape] = self._way(gang)
        forecast, count = self._ways[shape]
        if count > 1:
            self._whole.append((forecast, count, gang))
            return
        opened = Bin(forecast=forecast, free=forecast.offer.slots, aux=self._max_aux)
        opened.put(gang)
        self._shared.append(opened)

    def _way(self, gang: Gang) -> tuple[Forecast, int]:
        preferred = None if self._size is None else self._stock.of_size(self._size, gang.markets)
        if preferred is not None:
            if fits_one_machine(gang, preferred.offer.slots):
                return preferred, 1
            for way in _on_whole(gang, self._stock, [preferred.offer.slots]):
                return way
        return _standalone(gang, self._stock)


def _standalone(gang: Gang, stock: Stock) -> tuple[Forecast, int]:
    """The cheapest machines for the gang alone: offer and number."""
    ways: list[tuple[Forecast, int]] = []
    one = stock.holding(gang.slots, gang.markets) if fits_one_machine(gang, gang.slots) else None
    if one is not None:
        ways.append((one, 1))
    ways.extend(_on_whole(gang, stock, stock.sizes))
    return min(ways, key=lambda way: (_times(*way), way[1], way[0].order))


def _on_whole(gang: Gang, stock: Stock, sizes: Iterable[int]) -> Iterator[tuple[Forecast, int]]:
    for size in sizes:
        count = needs_whole_machines(gang, size)
        forecast = stock.whole(size, gang.markets, count) if count else None
        if count and forecast is not None:
            yield forecast, count


def _times(forecast: Forecast, count: int) -> Cost:
    unknown, price = cost_of([forecast])
    return unknown * count, price * count


def _exchange(each: Bin, stock: Stock) -> None:
    markets = frozenset.intersection(*{gang.markets for gang in each.gangs})
    cheaper = stock.holding(each.forecast.offer.slots - each.free, markets)
    if cheaper is not None and cheaper.order < each.forecast.order:
        each.forecast = cheaper
