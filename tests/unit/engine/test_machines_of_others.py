"""Small and large work wait for machines of their own, and the large one's comes first."""

from __future__ import annotations

from resolute.clock import FixedClock
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, launched, running


def _offer(name: str, slots: int, price: float) -> Offer:
    return Offer(
        offer_id=name,
        instance_type=name,
        zone="z",
        market=Market.ON_DEMAND,
        slots=slots,
        price_per_hour=price,
        family=name,
    )


async def _joins(engine: Engine, clock: FixedClock, offer: str) -> None:
    with engine.watch("", "") as watch:
        while not (wanted := [i for i in engine.state.all(Instance) if i.joined_at is None and i.offer_id == offer]):
            assert await watch.changed(10.0)
    (machine,) = wanted
    clock.advance(5.0)
    await launched(engine, machine, clock.now())
    await AgentByHand(engine, machine.id, slots=machine.slots, instance=machine.id).register()


def _runs(engine: Engine) -> dict[int, str]:
    """The offers of the machines that the work of so many slots is on."""
    machines = {machine.id: machine.offer_id for machine in engine.state.all(Instance)}
    placed = [each for each in engine.state.all(Allocation) if each.containers]
    return {each.slots_needed: machines[each.containers[0].agent] for each in placed}


async def test_each_starts_on_the_machine_that_was_bought_for_it() -> None:
    clock = FixedClock(T0)
    scaling = PoolScaling(pool="default", offers=(_offer("small", 1, 1.0), _offer("large", 8, 8.0)), max_instances=4)
    pools = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=scaling)}
    async with running(an_engine(MemoryStore(), pools=pools, clock=clock)) as engine:
        user = await a_user(engine)
        for slots in (1, 8):
            await an_experiment(engine, user, a_config(slots=slots))
        await _joins(engine, clock, "large")
        assert _runs(engine) == {8: "large"}
        await _joins(engine, clock, "small")
        assert _runs(engine) == {8: "large", 1: "small"}
        assert len(engine.state.all(Instance)) == 2
