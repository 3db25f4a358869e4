"""Scaling decisions are made anew only when something about them has changed, and replay all the same."""

from __future__ import annotations

from resolute.clock import FixedClock
from resolute.wire.states import ContainerState
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.cycle import SNAPSHOT_EVERY
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, joined, launched, running

OFFER = Offer(offer_id="local", instance_type="local", zone="z", market=Market.ON_DEMAND, slots=2, price_per_hour=1.0)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(OFFER,), max_instances=1))}


async def a_machine_joins(engine: Engine) -> AgentByHand:
    (instance,) = engine.state.all(Instance)
    await launched(engine, instance, T0)
    return await joined(engine, instance)


async def test_a_report_that_concerns_no_machine_needs_no_new_scaling_decision() -> None:
    async with running(an_engine(MemoryStore(), pools=POOLS, clock=FixedClock(T0))) as engine:
        owner = await a_user(engine)
        await an_experiment(engine, owner)
        agent = await a_machine_joins(engine)
        (container,) = agent.containers()
        await engine.submit(Reconsider())
        decided = engine.memory.scaled[DEFAULT][1]
        await agent.report(container, ContainerState.RUNNING)
        assert engine.memory.scaled[DEFAULT][1] is decided
        await an_experiment(engine, owner, a_config(slots=2))
        assert engine.memory.scaled[DEFAULT][1] is not decided


async def test_a_scaling_decision_is_made_anew_when_its_time_has_come() -> None:
    clock = FixedClock(T0)
    async with running(an_engine(MemoryStore(), pools=POOLS, clock=clock)) as engine:
        await an_experiment(engine, await a_user(engine))
        agent = await a_machine_joins(engine)
        await agent.run_all()
        decided = engine.memory.scaled[DEFAULT][1]
        assert decided.revisit_at is not None
        clock.set(decided.revisit_at)
        await engine.submit(Reconsider())
        (instance,) = engine.state.all(Instance)
        assert "it has been idle" in instance.stop_reason


async def test_a_journal_replays_from_each_of_its_snapshots_while_decisions_are_kept() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_engine(store, pools=POOLS, clock=clock, retain_snapshots=5)) as engine:
        owner = await a_user(engine)
        await an_experiment(engine, owner)
        agent = await a_machine_joins(engine)
        await an_experiment(engine, owner, a_config(slots=2))
        (container,) = agent.containers()
        for _ in range(SNAPSHOT_EVERY + 20):
            clock.advance(1)
            await agent.report(container, ContainerState.RUNNING)
            await engine.submit(Reconsider())
        digest = engine.memory.digest
    snapshots = await store.snapshots()
    assert len(snapshots) >= 3
    for snapshot in snapshots:
        result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
        assert (result.divergence, result.digest) == (None, digest)
