"""What a purchase costs, against every purchase that there is, and against first fit on each single size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_provisioner.model import Gang, Market, Offer, PoolScaling
from resolute_provisioner.planning.gangs import in_order
from resolute_provisioner.planning.packing import pack
from resolute_provisioner.planning.stock import cost_of
from resolute_provisioner.ranking import Forecast, forecasts
from support.effort import examples
from support.provisioner import NOW, a_gang, a_pool, an_offer

QUICK = settings(max_examples=examples(150))

MARKETS = (frozenset(Market), frozenset(Market), frozenset({Market.ON_DEMAND}), frozenset({Market.SPOT}))


@st.composite
def pools(draw: st.DrawFn) -> PoolScaling:
    def offer(index: int) -> Offer:
        slots = draw(st.sampled_from([1, 2, 3, 4, 8]))
        price = slots * draw(st.floats(0.5, 2.0))
        return replace(an_offer(f"o-{index}", slots=slots, price=price), market=draw(st.sampled_from(Market)))

    return a_pool(*(offer(index) for index in range(draw(st.integers(1, 3)))), high=100)


@st.composite
def work(draw: st.DrawFn) -> list[Gang]:
    def gang(index: int) -> Gang:
        made = a_gang(
            f"g-{index}", draw(st.integers(1, 8)), single=draw(st.booleans()), priority=draw(st.integers(1, 3))
        )
        return replace(made, markets=draw(st.sampled_from(MARKETS)))

    return in_order([gang(index) for index in range(draw(st.integers(1, 4)))])


def bought(pool: PoolScaling, gangs: Sequence[Gang], room: int = 100) -> tuple[list[Forecast], list[str]]:
    """What is bought, and who gets nothing."""
    packing = pack([], gangs, forecasts(pool, {}, NOW), room=room, max_aux=4)
    return [forecast for forecast, _ in packing.bought], [each.gang.token for each in packing.unserved]


def price_of(found: Sequence[Forecast]) -> float:
    unknown, price = cost_of(found)
    assert not unknown
    return price


def partitions(items: Sequence[Gang]) -> Iterator[list[list[Gang]]]:
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for index, block in enumerate(rest):
            yield [*rest[:index], [items[0], *block], *rest[index + 1 :]]


def one_machine(block: Sequence[Gang], offers: Sequence[Forecast]) -> float:
    slots = sum(gang.slots for gang in block)
    markets = frozenset.intersection(*(gang.markets for gang in block))
    fitting = (o.expected_price for o in offers if o.offer.slots >= slots and o.offer.market in markets)
    return min((price for price in fitting if price is not None), default=inf)


def whole_machines(gang: Gang, offers: Sequence[Forecast]) -> float:
    if gang.single_machine:
        return inf
    sizes = [o for o in offers if o.offer.market in gang.markets and gang.slots > o.offer.slots]
    prices = [gang.slots // o.offer.slots * (o.expected_price or 0) for o in sizes if gang.slots % o.offer.slots == 0]
    return min(prices, default=inf)


def optimum(gangs: Sequence[Gang], offers: Sequence[Forecast]) -> float:
    """By trying everything."""
    best = inf
    for spread in product((False, True), repeat=len(gangs)):
        alone = sum(whole_machines(gang, offers) for gang, wide in zip(gangs, spread, strict=True) if wide)
        if alone < best:
            together = [gang for gang, wide in zip(gangs, spread, strict=True) if not wide]
            blocks = (sum(one_machine(block, offers) for block in blocks) for blocks in partitions(together))
            best = min(best, alone + min(blocks))
    return best


def first_fit(gangs: Sequence[Gang], offer: Forecast) -> float:
    """All gangs in their order on machines of one offer; infinite when it does not serve each of them."""
    slots, free, count = offer.offer.slots, [], 0
    for gang in gangs:
        if offer.offer.market not in gang.markets:
            return inf
        if gang.slots > slots:
            if gang.single_machine or gang.slots % slots:
                return inf
            count += gang.slots // slots
            continue
        at = next((index for index, left in enumerate(free) if left >= gang.slots), None)
        if at is None:
            free.append(slots)
            at = len(free) - 1
        free[at] -= gang.slots
    return (count + len(free)) * (offer.expected_price or 0.0)


@QUICK
@given(pools(), work())
def test_it_costs_little_more_than_the_best_purchase_that_there_is(pool: PoolScaling, gangs: list[Gang]) -> None:
    offers = forecasts(pool, {}, NOW)
    servable = [gang for gang in gangs if min(one_machine([gang], offers), whole_machines(gang, offers)) < inf]
    found, unserved = bought(pool, gangs)
    assert sorted(unserved) == sorted(gang.token for gang in gangs if gang not in servable)
    best = optimum(servable, offers)
    assert price_of(found) <= 1.5 * best + 1e-9
    assert price_of(found) >= best - 1e-9


@QUICK
@given(pools(), work())
def test_it_is_never_worse_than_first_fit_on_one_size(pool: PoolScaling, gangs: list[Gang]) -> None:
    offers = forecasts(pool, {}, NOW)
    found, _ = bought(pool, gangs)
    for offer in offers:
        simple = first_fit(gangs, offer)
        assert price_of(found) <= simple + 1e-9


@QUICK
@given(pools(), work(), st.integers(0, 4))
def test_little_room_goes_to_the_most_important(pool: PoolScaling, gangs: list[Gang], room: int) -> None:
    """The first that the room is enough for is served."""
    offers = forecasts(pool, {}, NOW)
    found, unserved = bought(pool, gangs, room)
    assert len(found) <= room

    def fewest(gang: Gang) -> float:
        single = 1.0 if one_machine([gang], offers) < inf else inf
        wide = [
            gang.slots // o.offer.slots
            for o in offers
            if not gang.single_machine
            and o.offer.market in gang.markets
            and gang.slots > o.offer.slots
            and gang.slots % o.offer.slots == 0
        ]
        return min([single, *wide])

    first = next((gang for gang in gangs if fewest(gang) < inf), None)
    if first is not None and fewest(first) <= room:
        assert first.token not in unserved
