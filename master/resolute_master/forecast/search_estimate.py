"""The expected duration and cost of a search on a pool: a few simulations with random results. Pure.

The pool has no other work and no interruptions; an elastic pool starts without machines and buys them. The results of trials are
unknown: each simulation gives each trial a random final metric, to which its curve descends. This determines how many trials
continue, not which. A unit of training takes `unit_s` on the slots of a trial, whatever its hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.job import Job
from resolute_master.forecast.decide import Production
from resolute_master.forecast.join_times import JoinTimes
from resolute_master.forecast.market import Given, MarketMove, Refused
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.pool_simulation import SimulationStuck
from resolute_master.forecast.search_simulation import SearchSimulation
from resolute_master.forecast.work import Overheads
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.searcher.method import SearchMethod

SIMULATIONS = 5
DECISIONS = 4_000
"""Most decisions of all simulations together: each takes about a millisecond of processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEstimate:
    """The middle simulation, and the least and the most of all. `unknown` is the reason of a missing value."""

    hours: float | None = None
    hours_least: float | None = None
    hours_most: float | None = None
    dollars: float | None = None
    dollars_least: float | None = None
    dollars_most: float | None = None
    machines: int | None = None
    """Largest number of machines at a time in the middle simulation."""
    unknown: str = ""


def expected(
    pool: VirtualPool,
    method: SearchMethod,
    *,
    job: Job,
    template: Allocation,
    unit_s: float,
    seed: int,
    yield_control: Callable[[], None] = lambda: None,
) -> SearchEstimate:
    """`pool` as it is now, of which the work and, if it is elastic, the machines are left out; it is not changed."""
    if any(each.units is None for each in method.plan()):
        return SearchEstimate(unknown="the configuration does not define how far trials train: set searcher.max_length")
    alone, joins = _alone(pool), JoinTimes.of(pool)
    simulations: list[_Played] = []
    for number in range(SIMULATIONS):
        played = _play(alone, joins, method, job, template, unit_s, f"{seed}/{number}", yield_control)
        if isinstance(played, str):
            return SearchEstimate(unknown=played)
        simulations.append(played)
    simulations.sort(key=lambda each: each.hours)
    middle, costs = (
        simulations[len(simulations) // 2],
        sorted(each.dollars for each in simulations if each.dollars is not None),
    )
    priced = len(costs) == len(simulations)
    return SearchEstimate(
        hours=middle.hours,
        hours_least=simulations[0].hours,
        hours_most=simulations[-1].hours,
        dollars=costs[len(costs) // 2] if priced else None,
        dollars_least=costs[0] if priced else None,
        dollars_most=costs[-1] if priced else None,
        machines=middle.machines,
        unknown="" if priced else _no_price(pool),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    hours: float
    dollars: float | None
    machines: int


def _play(
    pool: VirtualPool,
    joins: JoinTimes,
    method: SearchMethod,
    job: Job,
    template: Allocation,
    unit_s: float,
    seed: str,
    yield_control: Callable[[], None],
) -> _Played | str:
    """Runs one simulation; the reason, in words, if it does not come to an end."""
    random = Random(seed)
    market = _Priced(pool, joins, random)
    simulation = SearchSimulation(
        pool=pool.copy(),
        decider=Production(),
        market=market,
        epoch=pool.now,
        overheads=Overheads(),
        method=method,
        job=job,
        template=template,
        unit_s=unit_s,
        metric=_drawn(seed),
    )
    most = 0

    def over() -> bool:
        nonlocal most
        yield_control()
        most = max(most, len(simulation.pool.machines) or len(simulation.pool.snapshot.agents))
        return simulation.over or simulation.decisions * SIMULATIONS >= DECISIONS

    simulation.begin(random.getrandbits(32))
    try:
        simulation.run(over, strict=False)
    except SimulationStuck as error:
        return f"the pool cannot run it: {error}"
    if not simulation.over:
        if simulation.decisions * SIMULATIONS >= DECISIONS:
            return f"the search is too large to simulate: it takes more than {DECISIONS // SIMULATIONS} decisions"
        return f"the pool has no machine for a trial of {template.slots_needed} slot(s)"
    return _Played(hours=simulation.now_s / 3600, dollars=None if market.unpriced else simulation.cost(), machines=most)


def _alone(pool: VirtualPool) -> VirtualPool:
    """The pool without its work and the limits of budgets; an elastic one without its machines as well."""
    alone = VirtualPool.empty(pool.policy, pool.now)
    alone.beliefs, alone.accounts = dict(pool.beliefs), None
    if pool.policy.scaling is None:
        alone.snapshot = PoolSnapshot.build(pool.policy, pool.snapshot.agents.values(), now=pool.now)
    return alone


def _no_price(pool: VirtualPool) -> str:
    if pool.policy.scaling is None:
        return "the pool's machines are not bought by the hour, and have no price"
    return "the price of a machine that the pool would launch is not known"


def _drawn(seed: str) -> Callable[[Mapping[str, Any], int, int], float]:
    def metric(_: Mapping[str, Any], number: int, units: int) -> float:
        own = Random(f"{seed}/{number}")
        return own.random() + own.uniform(0.5, 1.5) / units

    return metric


class _Priced:
    """A market that grants every offer at its present price, and whose machines join after about their usual time."""

    def __init__(self, pool: VirtualPool, joins: JoinTimes, random: Random) -> None:
        self._joins, self._random = joins, random
        self._prices = {id_: offer.price_per_hour for id_, offer in pool.offers.items()}
        told = {id_: belief.price_per_hour for id_, belief in pool.beliefs.items()}
        self._prices |= {id_: price for id_, price in told.items() if price is not None}
        self.unpriced = pool.policy.scaling is None

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        self.unpriced = self.unpriced or self._prices.get(offer_id) is None
        return Given(boot_s=self._joins.draw_s(offer_id, self._random))

    def ended(self, offer_id: str) -> None:
        """Nothing changes: there are always more."""

    def next_move(self, after_s: float) -> float | None:
        return None

    def move(self, now_s: float, alive: Mapping[str, list[InstanceId]]) -> MarketMove:
        return MarketMove(at_s=now_s)

    def price(self, offer_id: str, now_s: float) -> float | None:
        return self._prices.get(offer_id)
