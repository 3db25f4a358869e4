"""Processor time of one scaling decision for a large elastic pool, compared with first fit on one size and with a sort of the
gangs.

2,000 gangs wait, 300 offers are available (types of 1 to 16 slots in several zones on both markets, each with its record of
refusals), and 1,000 machines are busy, partly busy or starting. The situations: every gang can be bought for, the maximum is near,
every offer has been refused, and the response to a refusal and to a notice. The cost of the purchase is compared with the cheapest
slot for every slot, and with first fit on each single size.
"""

from __future__ import annotations

import gc
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from benchmarks.report import Row, Spread, Target
from benchmarks.timing import interleaved
from resolute.wire.states import NoticeKind
from resolute_provisioner import risk
from resolute_provisioner.model import (
    Demand,
    Gang,
    InstanceNotice,
    InstanceView,
    Intent,
    Market,
    Observed,
    Offer,
    OfferBelief,
    PoolScaling,
    RefusalKind,
    ScalePlan,
)
from resolute_provisioner.planning.plan import plan_scale
from resolute_provisioner.ranking import forecast

GANGS, OFFERS, MACHINES = 2_000, 300, 1_000
SIZES = (1, 2, 4, 8, 16)
PRICE_PER_SLOT = 3.0
SEED = 5
NOW = datetime(2030, 1, 1, tzinfo=UTC)
PLAN_MS, NOTICE_MS, REFUSAL_MS = 200.0, 100.0, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The arguments of `plan_scale`."""

    pool: PoolScaling
    machines: tuple[InstanceView, ...]
    demand: Demand
    beliefs: Mapping[str, OfferBelief]

    def plan(self) -> ScalePlan:
        return plan_scale(self.pool, self.machines, self.demand, self.beliefs, NOW)


def main() -> list[Row]:
    roomy = situation(GANGS, OFFERS, MACHINES)
    short = replace(roomy, pool=replace(roomy.pool, max_instances=MACHINES + 200))
    refused = replace(roomy, beliefs={offer.offer_id: _refusal(offer) for offer in roomy.pool.offers})
    gc.collect()
    seconds = interleaved(
        {
            "room for all": roomy.plan,
            "room for 200": short.plan,
            "every offer refused": refused.plan,
            "the cheapest offer refused": _refusal_met(roomy),
            "a notice": _notice_met(roomy),
            "sort": lambda: _sorted(roomy.demand.gangs),
        }
    )
    plan = roomy.plan()
    bound = Spread.of([each * 1e3 for each in seconds["sort"]], "ms")
    rows = [
        _row(f"plan_scale, {name}", seconds[name], bound, PLAN_MS)
        for name in ("room for all", "room for 200", "every offer refused")
    ]
    rows.append(_row("next offer after a refusal", seconds["the cheapest offer refused"], bound, REFUSAL_MS))
    rows.append(_row("replacement after a notice", seconds["a notice"], bound, NOTICE_MS))
    return [*rows, *_cost_rows(roomy, plan)]


def _row(name: str, seconds: Sequence[float], bound: Spread, limit_ms: float) -> Row:
    subject = Spread.of([each * 1e3 for each in seconds], "ms")
    return Row(
        name=f"{name}: {GANGS:,} gangs, {OFFERS} offers, {MACHINES:,} machines",
        subject=subject,
        bound_name="heap sort of the gangs",
        bound=bound,
        result=subject.median,
        unit="ms",
        target=Target(at_most=limit_ms),
        notes="processor time",
    )


def _cost_rows(roomy: Situation, plan: ScalePlan) -> list[Row]:
    """The cost of what `plan` buys, compared with a lower bound and with first fit on one size."""
    price = {
        offer.offer_id: forecast(offer, roomy.beliefs.get(offer.offer_id), NOW).expected_price or 0.0
        for offer in roomy.pool.offers
    }
    bought = {token for launch in plan.launches for token in launch.gang_tokens}
    gangs = [gang for gang in roomy.demand.gangs if gang.token in bought and gang.slots]
    cost = sum(price[launch.offer_id] for launch in plan.launches)
    slot = min(price[offer.offer_id] / offer.slots for offer in roomy.pool.offers)
    bound = slot * sum(gang.slots for gang in gangs)
    rows = [
        Row(
            name="cost of what is bought",
            subject=Spread.one(cost, "an hour"),
            bound_name="the cheapest slot for every slot",
            bound=Spread.one(bound, "an hour"),
            result=cost / bound,
            notes="a bound that no purchase reaches: it ignores whole machines and markets",
        )
    ]
    fits = {size: first_fit(gangs, size, roomy.pool.offers, price) for size in SIZES}
    size, best = min(fits.items(), key=lambda item: item[1])
    rows.append(
        Row(
            name="cost of what is bought, beside first fit",
            subject=Spread.one(cost, "an hour"),
            bound_name=f"first fit on the best single size ({size} slots)",
            bound=Spread.one(best, "an hour"),
            result=cost / best,
            target=Target(at_most=1.0),
        )
    )
    return rows


def first_fit(gangs: Sequence[Gang], size: int, offers: Sequence[Offer], price: Mapping[str, float]) -> float:
    """Places the gangs in order on machines of `size`, and larger gangs on the cheapest machines that hold them."""

    def cheapest(least: int, most: int, markets: frozenset[Market]) -> float:
        return min(
            price[offer.offer_id] for offer in offers if least <= offer.slots <= most and offer.market in markets
        )

    free: list[tuple[int, Market]] = []
    cost = 0.0
    for gang in gangs:
        if gang.slots > size and not gang.single_machine:
            cost += gang.slots // size * cheapest(size, size, gang.markets)
        elif gang.slots > size:
            cost += cheapest(gang.slots, max(SIZES), gang.markets)
        else:
            at = next((n for n, (left, m) in enumerate(free) if left >= gang.slots and m in gang.markets), None)
            if at is not None:
                free[at] = (free[at][0] - gang.slots, free[at][1])
                continue
            market = min(gang.markets, key=lambda m: cheapest(size, size, frozenset({m})))
            cost += cheapest(size, size, frozenset({market}))
            free.append((size - gang.slots, market))
    return cost


# ------------------------------------------------------------------------------------------------------- situations


def situation(gangs: int, offers: int, machines: int) -> Situation:
    rng = Random(SEED)
    catalogue = tuple(_offer(rng, number) for number in range(offers))
    views = tuple(_machine(rng, number, rng.choice(catalogue)) for number in range(machines))
    beliefs = {offer.offer_id: _belief(rng, offer) for offer in catalogue}
    waiting = Demand(gangs=tuple(_gang(rng, number, machines) for number in range(gangs)))
    pool = PoolScaling(pool="planned", offers=catalogue, max_instances=10 * (gangs + machines))
    return Situation(pool=pool, machines=views, demand=waiting, beliefs=beliefs)


def _offer(rng: Random, number: int) -> Offer:
    slots, market = SIZES[number % len(SIZES)], (Market.SPOT, Market.ON_DEMAND)[number // len(SIZES) % 2]
    share = rng.uniform(0.25, 0.6) if market is Market.SPOT else rng.uniform(0.95, 1.05)
    return Offer(
        offer_id=f"offer-{number:03d}",
        instance_type=f"type-{slots}",
        zone=f"zone-{number % 7}",
        market=market,
        slots=slots,
        family=f"family-{slots}-{market}",
        price_per_hour=PRICE_PER_SLOT * slots * share * rng.uniform(0.95, 1.1),
    )


def _belief(rng: Random, offer: Offer) -> OfferBelief:
    belief = OfferBelief(offer_id=offer.offer_id)
    for _ in range(rng.randrange(3)):
        belief = risk.launched(belief, now=NOW - timedelta(hours=rng.uniform(1, 50)))
        belief = risk.joined(belief, join_time_s=rng.uniform(60, 300), now=NOW)
        belief = risk.ended(belief, exposure_s=rng.uniform(60, 90_000), interrupted=rng.random() < 0.2, now=NOW)
    return belief


def _machine(rng: Random, number: int, offer: Offer) -> InstanceView:
    """Most machines are full; some have free slots, some are idle, some are starting."""
    kind = rng.random()
    used = offer.slots if kind < 0.6 else rng.randrange(offer.slots + 1) if kind < 0.8 else 0
    asked = NOW - timedelta(seconds=rng.uniform(200, 9_000))
    starting = kind > 0.9
    return InstanceView(
        instance_id=f"i-{number:05d}",
        token=f"t-{number:05d}",
        offer_id=offer.offer_id,
        slots=offer.slots,
        intent=Intent.RUN,
        observed=Observed.PENDING if starting else Observed.RUNNING,
        requested_at=asked,
        launched_at=asked,
        joined_at=None if starting else asked + timedelta(seconds=100),
        agent_connected=not starting,
        slots_in_use=used,
        occupants=(f"task-{number}",) if used else (),
        idle_since=None if used or starting else NOW - timedelta(seconds=30),
        reserved_for=(f"gang-{rng.randrange(GANGS):05d}",) if starting else (),
    )


def _gang(rng: Random, number: int, machines: int) -> Gang:
    slots = rng.choice((0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 32, 64))
    markets = rng.choice((frozenset(Market),) * 8 + (frozenset({Market.ON_DEMAND}), frozenset({Market.SPOT})))
    excluded = frozenset({f"i-{rng.randrange(machines):05d}"}) if rng.random() < 0.02 and machines else frozenset[str]()
    return Gang(
        token=f"gang-{number:05d}",
        slots=slots,
        submitted_at=NOW - timedelta(seconds=rng.uniform(0, 50_000)),
        single_machine=slots <= 1 or (slots <= max(SIZES) and rng.random() < 0.3),
        priority=rng.choice((10, 42, 42, 42, 90)),
        markets=markets,
        excluded_instances=excluded,
    )


def _refusal(offer: Offer) -> OfferBelief:
    asked_at = NOW - timedelta(seconds=1)
    belief = OfferBelief(offer_id=offer.offer_id)
    return risk.refused(belief, RefusalKind.NO_CAPACITY, "none left", asked_at=asked_at, now=NOW)


def _refusal_met(before: Situation) -> Callable[[], ScalePlan]:
    """Records the refusal, and computes the next plan."""
    first = before.plan().launches[0].offer_id
    offer = next(each for each in before.pool.offers if each.offer_id == first)

    def react() -> ScalePlan:
        plan = replace(before, beliefs={**before.beliefs, first: _refusal(offer)}).plan()
        assert all(launch.offer_id != first for launch in plan.launches)
        return plan

    return react


def _notice_met(before: Situation) -> Callable[[], ScalePlan]:
    """Only the work of the noticed machine waits."""
    quiet = replace(before, demand=Demand())
    index = next(n for n, each in enumerate(quiet.machines) if each.slots_in_use == max(SIZES))
    notice = InstanceNotice(kind=NoticeKind.INTERRUPTION, deadline=NOW + timedelta(seconds=120))

    def react() -> ScalePlan:
        machines = [*quiet.machines]
        machines[index] = replace(machines[index], notice=notice)
        return replace(quiet, machines=tuple(machines)).plan()

    return react


def _sorted(gangs: Sequence[Gang]) -> list[object]:
    heap: list[tuple[int, datetime, str]] = []
    for gang in gangs:
        heapq.heappush(heap, (gang.priority, gang.submitted_at, gang.token))
    return [heapq.heappop(heap) for _ in range(len(heap))]
