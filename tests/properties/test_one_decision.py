"""The live engine and the twin decide alike: for random pools and histories, plan by plan."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.decision.plan import MachinePlan, PoolPlan
from resolute_master.decision.plan_pool import plan_pool
from resolute_master.decision.view import PoolView
from resolute_master.domain.account import Limits
from resolute_master.domain.copies import replace
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.forecast.present import present_pool
from resolute_provisioner.model import (
    Consolidation,
    Demand,
    Disruption,
    Market,
    Offer,
    PoolScaling,
    SpotFallback,
)
from resolute_provisioner.planning.plan import plan_scale
from support.effort import examples
from support.two_pools import POOL, TwoPools

EVENTS = 40


def a_pool(rng: Random) -> PoolPolicy:
    offers = tuple(
        Offer(
            offer_id=f"{market}-{slots}",
            instance_type=f"t{slots}",
            zone="z",
            market=market,
            slots=slots,
            price_per_hour=round(slots * (1.0 if market is Market.SPOT else 3.0) * rng.uniform(0.8, 1.2), 3),
        )
        for slots in rng.sample((1, 2, 4), rng.randint(1, 2))
        for market in rng.sample(tuple(Market), rng.randint(1, 2))
    )
    scaling = PoolScaling(
        pool=POOL,
        offers=offers,
        min_instances=rng.choice((0, 0, 1)),
        max_instances=rng.randint(2, 5),
        idle_timeout_s=rng.choice((30.0, 300.0)),
        boot_timeout_s=rng.choice((120.0, 1200.0)),
        launch_error_timeout_s=rng.choice((0.0, 0.0, 300.0)),
        launch_error_retries=rng.choice((0, 1)),
        spot_fallback=SpotFallback(after_s=rng.choice((0.0, 200.0)), return_after_s=rng.choice((None, 300.0))),
        consolidation=rng.choice((None, Consolidation(margin=1.0, restart_s=1.0))),
        disruption=Disruption(max_per_hour=rng.choice((None, 0, 1))),
    )
    fair = rng.random() < 0.3
    return PoolPolicy(
        name=POOL,
        scheduler=SchedulerKind.FAIR_SHARE if fair else SchedulerKind.PRIORITY,
        preemption=not fair and rng.random() < 0.6,
        hierarchical_shares=fair,
        usage_half_life_s=600.0 if fair else None,
        min_runtime_s=rng.choice((0.0, 60.0)),
        preemption_grace_s=rng.choice((0.0, 60.0)),
        budget=Limits(per_day=rng.choice((None, None, 0.3, 3.0))),
        scaling=scaling,
    )


def a_history(pools: TwoPools, rng: Random) -> None:
    for _ in range(EVENTS):
        match rng.choice(("submit", "submit", "launched", "launched", "joined", "joined", "later", "later", "rare")):
            case "submit":
                pools.submit(
                    slots=rng.choice((1, 1, 2, 4, 8)),
                    priority=rng.choice((1, 42, 99)),
                    deadline_s=rng.choice((None, None, 4000.0, 9000.0)),
                    max_cost=rng.choice((None, None, 0.2, 5.0)),
                )
            case "later":
                pools.later(rng.choice((1.0, 30.0, 400.0)))
            case "rare":
                rare = (
                    pools.refused,
                    pools.noticed,
                    pools.taken,
                    pools.left,
                    pools.left,
                    pools.finished,
                    pools.repriced,
                )
                rng.choice(rare)(rng)
            case event:
                getattr(pools, event)(rng)


def decided(seed: int, decide: Callable[[PoolView], PoolPlan] = plan_pool) -> tuple[list[object], list[object]]:
    """What the live engine and the twin have decided; `decide` is for the twin."""
    rng = Random(seed)
    pools = TwoPools(a_pool(rng), decide)
    try:
        a_history(pools, rng)
    except Exception:
        if pools.live == pools.virtual:
            raise  # what follows a difference may fit nothing that is there
    return [each.decided for each in pools.live], [each.decided for each in pools.virtual]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(40))
def test_the_plans_of_the_live_engine_and_of_the_twin_are_equal(seed: int) -> None:
    live, virtual = decided(seed)
    for number, (one, other) in enumerate(zip(live, virtual, strict=False)):
        assert one == other, f"plan {number} of seed {seed}"
    assert len(live) == len(virtual)


def without_the_choice_of_markets(view: PoolView) -> PoolPlan:
    """A rule is left out."""

    def machines(view: PoolView, scaling: PoolScaling, demand: Demand) -> MachinePlan:
        return MachinePlan(scale=plan_scale(scaling, view.machines or (), demand, view.beliefs, view.now))

    return plan_pool(view, machine_planner=machines)


def without_spot_fallback(view: PoolView) -> PoolPlan:
    """A key is ignored."""
    scaling = view.policy.scaling
    assert scaling is not None
    policy = replace(view.policy, scaling=replace(scaling, spot_fallback=SpotFallback()))
    return plan_pool(replace(view, snapshot=replace(view.snapshot, policy=policy)))


@pytest.mark.parametrize("mutation", [without_the_choice_of_markets, without_spot_fallback])
def test_a_twin_with_a_mutation_is_noticed(mutation: Callable[[PoolView], PoolPlan]) -> None:
    assert any(live != virtual for live, virtual in (decided(seed, mutation) for seed in range(20)))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_play_that_begins_now_begins_with_the_plan_of_the_live_engine(seed: int) -> None:
    """As start estimates do."""
    rng = Random(seed)
    pools = TwoPools(a_pool(rng))
    a_history(pools, rng)
    view = pools.memory.view(POOL, pools.now)
    if not view.snapshot.held:
        assert plan_pool(present_pool(pools.memory, POOL, pools.now).view()).decided == plan_pool(view).decided
