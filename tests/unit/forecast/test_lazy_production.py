"""Planning only where it can change something decides as planning always does, as far as starts are concerned."""

from __future__ import annotations

from random import Random

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.decide import Decider, LazyProduction, Production
from resolute_master.forecast.pool import Decision, VirtualPool
from resolute_master.forecast.pool_simulation import EPOCH, PoolSimulation
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_sim.twin.capacity import TracedMarket
from resolute_sim.twin.twin import as_work

OFFERS = tuple(
    Offer(
        offer_id=f"o{slots}",
        instance_type=f"t{slots}",
        zone="z",
        market=Market.ON_DEMAND,
        slots=slots,
        price_per_hour=3.0 * slots,
    )
    for slots in (1, 4, 8)
)


class Counted:
    """A decider, and how many machines it asked for."""

    def __init__(self, decider: Decider) -> None:
        self.decider = decider
        self.launches = 0

    def decide(self, pool: VirtualPool) -> Decision:
        decision = self.decider.decide(pool)
        self.launches += len(decision.launches)
        return decision


def _starts(decider: Decider, seed: int, max_instances: int) -> dict[str, float | None]:
    random = Random(seed)
    scaling = PoolScaling(pool="p", offers=OFFERS, max_instances=max_instances, idle_timeout_s=300.0)
    policy = PoolPolicy(name=PoolName("p"), scaling=scaling)
    jobs = [
        TraceJob(
            job_id=f"j{number:03d}",
            submit_s=0.0,
            duration_s=random.choice((300.0, 1_000.0, 5_000.0, 20_000.0)) * random.uniform(0.5, 1.5),
            slots=random.choice((1, 1, 1, 2, 4, 8, 16)),
            group=f"g{number % 3}",
        )
        for number in range(40)
    ]
    works = [as_work(policy, number, job) for number, job in enumerate(jobs)]
    simulation = PoolSimulation(
        pool=VirtualPool.empty(policy, EPOCH),
        decider=decider,
        market=TracedMarket(OFFERS, (), boot_s=180.0, seed=seed),
        epoch=EPOCH,
    )
    simulation.submit(works)
    simulation.run()
    return {work.job.id: work.first_start_s for work in works}


@pytest.mark.parametrize("max_instances", [3, 5, 50])
@pytest.mark.parametrize("seed", range(5))
def test_all_start_when_they_would_with_a_plan_at_every_moment(seed: int, max_instances: int) -> None:
    always, seldom = Counted(Production()), Counted(LazyProduction())
    assert _starts(seldom, seed, max_instances) == _starts(always, seed, max_instances)
    assert seldom.launches == always.launches > 0
