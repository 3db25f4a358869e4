"""However machines and tasks behave: no experiment costs more than it may, and the master's accounts are the cloud's bill."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute.wire.states import ExperimentState
from resolute_master.domain.account import RISE, Limits
from resolute_master.domain.ids import ExperimentId
from resolute_provisioner.model import Market
from support.paid_cluster import Habits, PaidCluster, a_paid_pool

HORIZON_S = 3000.0


def a_life(
    seed: int, *, budget: Limits | None = None, market: Market = Market.ON_DEMAND
) -> tuple[PaidCluster, dict[ExperimentId, float]]:
    """Several experiments with limits, on machines that are lost, under a master that is killed; and their limits. On spot the
    price moves, and may double while something saves."""
    rng = Random(seed)
    habits = Habits(
        boot_s=rng.uniform(0, 60),
        start_s=rng.uniform(0, 60),
        save_s=lambda: rng.choice((0.5, rng.uniform(0, 60), rng.uniform(60, 600), 10_000.0)),
        kill_s=rng.uniform(0, 9),
        stop_s=rng.uniform(0, 60),
    )
    slots, price, machines = rng.randint(1, 4), rng.choice((0.5, 3.6, 40.0)), rng.randint(1, 4)
    pool = a_paid_pool(price=price, slots=slots, machines=machines, budget=budget, market=market)
    cluster = PaidCluster(pool, habits)
    limits: dict[ExperimentId, float] = {}
    for _ in range(rng.randint(1, 4)):
        limit = rng.choice((0.01, rng.uniform(0.05, 5.0), rng.uniform(1.0, 40.0)))
        limits[cluster.submit(max_cost=limit, slots=rng.randint(1, slots), trials=rng.randint(1, 3))] = limit
    passed = 0.0
    while passed < HORIZON_S:
        passed += (pause := rng.uniform(1, 600))
        cluster.run_for(pause)
        match rng.randint(0, 4):
            case 0:
                cluster.lose_machine(rng.randint(0, 9))
            case 1:
                cluster.restart_master()
            case _ if market is Market.SPOT:
                price = price * rng.uniform(0.3, RISE) if rng.random() < 0.8 else price
                cluster.move_market(price)
            case _:
                pass
    return cluster, limits


@given(seed=st.integers(0, 2**32), market=st.sampled_from(Market))
@settings(max_examples=20)
def test_no_experiment_costs_more_than_it_may(seed: int, market: Market) -> None:
    cluster, limits = a_life(seed, market=market)
    for id_, limit in limits.items():
        assert cluster.spent_by(id_) <= limit + 1e-6
        if cluster.experiment(id_).state is ExperimentState.PAUSED:
            assert not [paid for (owner, _), paid in cluster.tasks.items() if owner == id_ and paid.until is None]


@given(seed=st.integers(0, 2**32), market=st.sampled_from(Market))
@settings(max_examples=16)
def test_the_accounts_are_the_bill(seed: int, market: Market) -> None:
    cluster, limits = a_life(seed, market=market)
    assert cluster.account("pool/default").in_all == pytest.approx(cluster.bill(), abs=1e-6)
    held = sum(cluster.spent_by(id_) for id_ in limits)
    if held:
        assert cluster.account("workspace/1").in_all == pytest.approx(held, abs=1e-6)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=8)
def test_a_pool_over_its_budget_spends_only_on_what_has_not_ended_yet(seed: int) -> None:
    """A soft limit: what is saved in time is within it, and what takes longer is not killed for it."""
    cluster, _ = a_life(seed, budget=Limits(per_day=1.0))
    account = cluster.account("pool/default")
    if account.wind_down is None:
        assert cluster.bill() <= 1.0
        return
    cluster.run_for(11_000)  # the slowest save of all
    spent = cluster.bill()
    cluster.run_for(20_000)
    assert cluster.bill() == pytest.approx(spent, abs=1e-6), "no machine is left, and none is begun"
