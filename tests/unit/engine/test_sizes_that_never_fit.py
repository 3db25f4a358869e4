"""An elastic pool without machines and work of sizes that its machines can never hold: nothing is bought, and it is told why."""

from __future__ import annotations

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.scheduler.explain import explain
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, a_config, a_user, an_engine, an_experiment, running


def policy(*sizes: int, mixed: bool = False) -> PoolPolicy:
    """Two machines at most, of these sizes."""
    offers = tuple(
        Offer(
            offer_id=f"of-{n}", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=n, price_per_hour=float(n)
        )
        for n in sizes
    )
    scaling = PoolScaling(pool="default", offers=offers, max_instances=2)
    return PoolPolicy(name=DEFAULT, scaling=scaling, heterogeneous_fits=mixed)


async def reason(engine: Engine, id_: ExperimentId) -> str:
    await engine.submit(Reconsider())  # the scheduler has seen what was bought
    experiment = engine.state.get(Experiment, id_)
    assert experiment is not None
    return explain(engine.snapshot(DEFAULT), experiment.job_id).reason


@pytest.mark.parametrize(
    ("sizes", "mixed", "slots", "single"),
    [
        ((4,), False, 5, False),
        ((4,), True, 7, False),
        ((4,), False, 8, True),
        ((4, 6), False, 9, False),
        ((4, 6), True, 11, False),
    ],
)
async def test_nothing_is_bought_for_it_and_the_next_is_served(
    sizes: tuple[int, ...], mixed: bool, slots: int, single: bool
) -> None:
    pools = {DEFAULT: policy(*sizes, mixed=mixed)}
    async with running(an_engine(MemoryStore(), pools=pools, clock=FixedClock(T0))) as engine:
        owner = await a_user(engine)
        never = await an_experiment(engine, owner, a_config(slots=slots, is_single_node=single))
        assert (await reason(engine, never)).startswith(f"It can never start here: it needs {slots} slots")
        assert engine.state.all(Instance) == ()
        fits = await an_experiment(engine, owner, a_config(slots=8))
        assert [instance.slots for instance in engine.state.all(Instance)] == [4, 4]
        assert await reason(engine, fits) == "It waits for 8 slot(s) of machines that are starting."
        assert (await reason(engine, never)).startswith("It can never start here")


async def test_of_two_that_fit_the_second_is_told_that_the_machines_go_to_the_first() -> None:
    async with running(an_engine(MemoryStore(), pools={DEFAULT: policy(4)}, clock=FixedClock(T0))) as engine:
        owner = await a_user(engine)
        await an_experiment(engine, owner, a_config(slots=8))
        second = await an_experiment(engine, owner, a_config(slots=4))
        assert await reason(engine, second) == (
            "It waits for 4 slot(s): no agent of the pool accepts work, the 2 starting machine(s) are for earlier "
            "work, and no machine is available (the pool has its 2 machine(s))."
        )
