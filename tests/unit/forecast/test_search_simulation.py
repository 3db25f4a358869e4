"""A search on a pool in virtual time: what trials do, what it costs, and what the worth of trials changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from resolute_master.forecast.decide import Production
from resolute_master.forecast.market import Given, MarketMove, Refused
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.pool_simulation import EPOCH
from resolute_master.forecast.search_simulation import SearchSimulation
from resolute_master.forecast.work import Overheads
from resolute_master.searcher.methods import make
from support.pools import a_job, a_policy, elastic, waiting

SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0, "count": 4}}
HALVING = {"name": "async_halving", "metric": "loss", "num_rungs": 3, "divisor": 2, "max_trials": 12}
PBT = {"name": "pbt", "metric": "loss", "population_size": 4, "num_rounds": 3, "length_per_round": {"batches": 2}}
SEARCHES: dict[str, dict[str, Any]] = {
    "promoting": {**HALVING, "max_concurrent_trials": 4, "max_length": 8},
    "stopping": {**HALVING, "max_concurrent_trials": 4, "max_length": 8, "stop_once": True},
    "by time": {**HALVING, "max_concurrent_trials": 4, "max_time": 8, "time_metric": "batches"},
    "pbt": {**PBT, "replace_function": {"truncate_fraction": 0.25}},
    "random": {"name": "random", "metric": "loss", "max_trials": 5, "max_length": 8},
    "grid": {"name": "grid", "metric": "loss", "max_length": 8},
    "optuna": {"name": "optuna", "metric": "loss", "max_trials": 5, "random_trials": 2, "max_length": 8},
}


class Calm:
    """Machines come after a minute, cost a dollar an hour, and stay."""

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        return Given(boot_s=60.0)

    def ended(self, offer_id: str) -> None:
        """There are always more."""

    def next_move(self, after_s: float) -> float | None:
        return None

    def move(self, now_s: float, alive: Mapping[str, Any]) -> MarketMove:
        return MarketMove(at_s=now_s)

    def price(self, offer_id: str, now_s: float) -> float | None:
        return 1.0


class Fickle(Calm):
    """Takes everything back every quarter of an hour."""

    def next_move(self, after_s: float) -> float | None:
        return (after_s // 900.0 + 1) * 900.0

    def move(self, now_s: float, alive: Mapping[str, Any]) -> MarketMove:
        return MarketMove(at_s=now_s, taken=tuple(id_ for ids in alive.values() for id_ in ids))


def played(
    searcher: Mapping[str, Any], market: Any, *, ranked: bool = True, machines: int = 3, unit_s: float = 60.0
) -> SearchSimulation:
    policy = a_policy(scaling=elastic(slots=1, max_instances=machines), preemption=True)
    simulation = SearchSimulation(
        pool=VirtualPool.empty(policy, EPOCH),
        decider=Production(),
        market=market,
        epoch=EPOCH,
        overheads=Overheads(),
        method=make(searcher, SPACE),
        job=a_job("search"),
        template=waiting("t", "search"),
        unit_s=unit_s,
        metric=lambda hparams, number, units: hparams["x"] + 1.0 / units,
        ranked=ranked,
    )
    simulation.begin(7)
    simulation.run(lambda: simulation.over)
    return simulation


@pytest.mark.parametrize("market", [Calm, Fickle])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_played_to_its_end(name: str, market: type[Calm]) -> None:
    simulation = played(SEARCHES[name], market())
    assert simulation.over
    assert simulation.trials == sum(each.trials for each in simulation.method.plan())
    assert simulation.cost() > 0
    assert simulation.results == sorted(simulation.results, key=lambda told: told.at_s)
    told = [(result.trial, result.units) for result in simulation.results]
    assert len(told) == len(set(told)), "each length is told of once"
    if market is Calm:
        # Nothing is lost: what was paid holds all that was trained, and a machine more for each start.
        assert simulation.cost() >= sum(work for _, work in _longest(simulation)) / 60.0


def _longest(simulation: SearchSimulation) -> list[tuple[int, int]]:
    longest: dict[int, int] = {}
    for told in simulation.results:
        longest[told.trial] = max(longest.get(told.trial, 0), told.units)
    return sorted(longest.items())


def test_the_same_search_is_played_the_same_way() -> None:
    one, other = (played(SEARCHES["stopping"], Fickle()) for _ in range(2))
    assert one.results == other.results


def test_what_a_search_would_stop_anyway_waits_and_the_best_is_found_sooner() -> None:
    """On few machines with many trials: those that went on too early are overtaken."""
    more = {**SEARCHES["stopping"], "max_trials": 40, "max_concurrent_trials": 8, "divisor": 4, "max_length": 32}
    ours, plain = (played(more, Calm(), ranked=ranked, machines=2, unit_s=300.0) for ranked in (True, False))
    goal = max(min(told.metric for told in each.results) for each in (ours, plain))
    reached = [next(told for told in each.results if told.metric <= goal) for each in (ours, plain)]
    assert reached[0].cost < reached[1].cost
    assert ours.cost() < plain.cost()
