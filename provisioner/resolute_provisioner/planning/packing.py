"""Places pending gangs on present machines, on starting machines, and on machines that could be bought. Pure.

Gangs are processed in order of importance. Each is placed whole on the layout with the least additional cost, on present and
starting machines first. The rest is bought together, by `purchase`, if there is capacity for all of it. Otherwise importance
decides: gang by gang, each buys what it adds, with each size in turn as the preferred one, and the result that serves the most
important gangs at the lowest price wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resolute_provisioner.model import Gang
from resolute_provisioner.planning.gangs import fits_one_machine, needs_whole_machines, shape_of
from resolute_provisioner.planning.offers_by_size import Machine, OffersBySize, copies
from resolute_provisioner.planning.purchase import purchase
from resolute_provisioner.planning.stock import Stock, cost_of
from resolute_provisioner.ranking import Forecast

SIZES_PREFERRED = 4
"""Number of sizes that are tried as the preferred one when capacity is short, those with the cheapest slots first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One set of machines on which a gang without machines would run."""

    machines_missing: int
    """Number of further machines that it needs."""
    would_use: tuple[str, ...]
    """Present and starting machines that it would use beside those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """A gang that got no machines. `ways`: the one that misses the fewest machines first; none when no offer that can be
    asked for now serves the gang."""

    gang: Gang
    ways: tuple[Way, ...]

    @property
    def machines_missing(self) -> int | None:
        return self.ways[0].machines_missing if self.ways else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The gangs on each machine (by token, in the order of their importance)."""

    on_machines: Mapping[str, tuple[str, ...]]
    bought: tuple[tuple[Forecast, tuple[str, ...]], ...]
    unserved: tuple[Unserved, ...]


def pack(
    machines: Sequence[Machine],
    gangs: Sequence[Gang],
    forecasts: Sequence[Forecast],
    *,
    room: int,
    max_aux: int,
    gang_limits: Mapping[str, int] | None = None,
) -> Packing:
    """Pack `gangs`, in the order given, buying at most `room` machines of the offers. `gang_limits`: as in `Stock`."""
    stock = Stock(forecasts, gang_limits=gang_limits)
    together = _Pass(machines, gangs, stock, room=room, max_aux=max_aux, buys_together=True).run(gangs)
    if together is not None:
        return together
    best: tuple[tuple[object, ...], Packing] | None = None
    for index, size in enumerate((None, *stock.sizes_by_value()[:SIZES_PREFERRED])):
        packing = _Pass(machines, gangs, stock, room=room, max_aux=max_aux, prefers=size).run(gangs)
        assert packing is not None
        missing = {each.gang.token for each in packing.unserved}
        served_in_order = tuple(gang.token in missing for gang in gangs)
        bought = packing.bought
        key = (served_in_order, cost_of(forecast for forecast, _ in bought), len(bought), index)
        if best is None or key < best[0]:
            best = (key, packing)
    assert best is not None
    return best[1]


@dataclass(frozen=True, slots=True)
class _Layout:
    """One way to run a gang: this number of slots on each of these machines and on each machine to buy."""

    share: int
    used: tuple[Machine, ...]
    buy: tuple[Forecast, ...] = ()
    others: int = 0
    """Number of used machines that were launched for other pending gangs."""

    def key(self) -> tuple[object, ...]:
        return (*cost_of(self.buy), len(self.buy), self.others, len(self.used), -self.share)


class _Pass:
    """One pass over all gangs. It buys for each gang in turn or, with `buys_together`, at the end for all that need
    nothing but new machines; then there may be too little room, and there is no packing."""

    def __init__(
        self,
        machines: Sequence[Machine],
        gangs: Sequence[Gang],
        stock: Stock,
        *,
        room: int,
        max_aux: int,
        prefers: int | None = None,
        buys_together: bool = False,
    ) -> None:
        self._by_size = OffersBySize(copies(machines), gangs)
        self._stock = stock
        self._room = room
        self._max_aux = max_aux
        self._prefers = prefers
        self._buys_together = buys_together
        self._bought: list[Machine] = []
        self._later: list[Gang] = []
        self._infeasible: dict[tuple[object, ...], tuple[Way, ...]] = {}
        """Ways of infeasible shapes, by shape."""
        self._only_new: set[tuple[object, ...]] = set()
        """Shapes that only new machines can serve."""

    def run(self, gangs: Sequence[Gang]) -> Packing | None:
        unserved: list[Unserved] = []
        for gang in gangs:
            shape = shape_of(gang)
            # Free machines and room together only shrink: a shape that failed once fails again.
            if shape in self._only_new:
                self._buy_later(gang)
            elif shape in self._infeasible or not self._place(gang, shape):
                if self._room < 0:
                    return None
                unserved.append(Unserved(gang=gang, ways=self._infeasible[shape]))
        together = self._together()
        if together is None:
            return None
        return Packing(
            on_machines={
                each.name: tuple(each.tokens) for each in self._by_size.machines if each.tokens and each.bought is None
            },
            bought=(
                *((each.bought, tuple(each.tokens)) for each in self._bought if each.bought is not None),
                *together,
            ),
            unserved=tuple(unserved),
        )

    def _together(self) -> list[tuple[Forecast, tuple[str, ...]]] | None:
        if not self._later:
            return []
        bins = purchase(self._later, self._stock, max_aux=self._max_aux, room=self._room)
        if bins is None:
            return None
        rank = {gang.token: index for index, gang in enumerate(self._later)}
        filled = [(sorted((rank[gang.token], gang.token) for gang in each.gangs), each.forecast) for each in bins]
        filled.sort(key=lambda each: (each[0], each[1].order))
        return [(forecast, tuple(token for _, token in ranked)) for ranked, forecast in filled]

    def _place(self, gang: Gang, shape: tuple[object, ...]) -> bool:
        layouts = self._layouts(gang)
        if self._buys_together:
            chosen = min(layouts, key=_Layout.key, default=None)
            if chosen is not None and chosen.buy:
                if not chosen.used:
                    self._buy_later(gang)
                    if not any(each.used for each in layouts):
                        self._only_new.add(shape)
                    return True
                if len(chosen.buy) > self._room:
                    self._room = -1  # importance has to decide
                    return False
        else:
            chosen = min((each for each in layouts if len(each.buy) <= self._room), key=_Layout.key, default=None)
        if chosen is None:
            self._infeasible[shape] = _ways(layouts)
            return False
        self._by_size.served(gang)
        for machine in chosen.used:
            self._by_size.take(machine, gang, chosen.share)
        for forecast in chosen.buy:
            self._by_size.take(self._buy(forecast), gang, chosen.share)
        return True

    def _buy_later(self, gang: Gang) -> None:
        self._later.append(gang)
        self._by_size.served(gang)

    def _buy(self, forecast: Forecast) -> Machine:
        slots = forecast.offer.slots
        machine = Machine(
            name=f"new-{len(self._bought):06d}",
            size=slots,
            free_slots=slots,
            free_aux=self._max_aux,
            untouched=True,
            preference=2,
            market=forecast.offer.market,
            bought=forecast,
        )
        self._room -= 1
        self._bought.append(machine)
        self._by_size.add(machine)
        return machine

    def _layouts(self, gang: Gang) -> list[_Layout]:
        layouts: list[_Layout] = []
        there = self._by_size.one(gang)
        if there is not None:
            layouts.append(self._layout(gang, gang.slots, [there]))
            if not layouts[0].others:
                return layouts
        elif (bought := self._one_bought(gang)) is not None:
            layouts.append(_Layout(gang.slots, (), (bought,)))
        if gang.slots_per_machine is not None:
            layouts.extend(self._in_shares(gang, gang.slots_per_machine))
        elif not gang.single_machine:
            for size in sorted(self._by_size.sizes.union(self._stock.sizes)):
                layouts.extend(self._on_whole_machines(gang, size))
        return layouts

    def _one_bought(self, gang: Gang) -> Forecast | None:
        if not fits_one_machine(gang, gang.slots) or (gang.slots == 0 and self._max_aux == 0):
            return None
        preferred = None if self._prefers is None else self._stock.of_size(self._prefers, gang.markets)
        if preferred is not None and preferred.offer.slots >= gang.slots:
            return preferred
        return self._stock.holding(gang.slots, gang.markets)

    def _in_shares(self, gang: Gang, share: int) -> list[_Layout]:
        if share <= 0 or gang.slots % share or gang.slots == 0 or (gang.single_machine and share != gang.slots):
            return []
        count = gang.slots // share
        there = self._by_size.sharing(gang, share, count)
        missing = count - len(there)
        return self._completed(gang, share, missing, there, self._stock.whole_holding(share, gang.markets, missing))

    def _on_whole_machines(self, gang: Gang, size: int) -> list[_Layout]:
        count = needs_whole_machines(gang, size)
        if count is None:
            return []
        there = self._by_size.whole(gang, size, count)
        missing = count - len(there)
        return self._completed(gang, size, missing, there, self._stock.whole(size, gang.markets, missing))

    def _completed(
        self, gang: Gang, share: int, missing: int, there: Sequence[Machine], cheapest: Forecast | None
    ) -> list[_Layout]:
        if missing == 0:
            return [self._layout(gang, share, there)]
        if cheapest is None:
            return []
        return [self._layout(gang, share, there, (cheapest,) * missing)]

    def _layout(self, gang: Gang, share: int, used: Sequence[Machine], buy: tuple[Forecast, ...] = ()) -> _Layout:
        return _Layout(share, tuple(used), buy, sum(self._by_size.kept_for_others(machine, gang) for machine in used))


def _ways(layouts: Sequence[_Layout]) -> tuple[Way, ...]:
    return tuple(
        Way(
            machines_missing=len(layout.buy),
            would_use=tuple(machine.name for machine in layout.used if machine.bought is None),
        )
        for layout in sorted(layouts, key=lambda layout: (len(layout.buy), layout.key()))
    )
