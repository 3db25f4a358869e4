"""However much can start at once, each cycle starts a part of it, and nothing is forgotten."""

from __future__ import annotations

import asyncio

from resolute.clock import FixedClock
from resolute_master.decision.view import STARTS_A_PASS
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import RegisterAgent
from resolute_master.domain.ids import AgentId, ExperimentId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Intent, Market, Offer, PoolScaling
from support.cluster import T0, device
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, running
from support.pools import NOW, a_job, a_policy, an_agent, waiting

MORE = 2 * STARTS_A_PASS + 10


async def test_a_flood_is_placed_in_the_order_of_the_queue_over_several_cycles_and_replays() -> None:
    for kind in SchedulerKind.PRIORITY, SchedulerKind.FAIR_SHARE:
        store, clock = MemoryStore(), FixedClock(T0)
        pools = {DEFAULT: PoolPolicy(name=DEFAULT, scheduler=kind)}
        async with running(an_engine(store, pools=pools, clock=clock)) as engine:
            owner = await a_user(engine)
            await asyncio.gather(*(an_experiment(engine, owner) for _ in range(MORE)))
            placed: list[int] = []
            engine.on_commit(lambda change, to=placed: to.append(sum(_placed(e) for e in change.upserts)))  # type: ignore[misc]
            with engine.watch("", "") as watch:
                await AgentByHand(engine, slots=MORE).register()
                while any(a.assigned_at is None for a in engine.state.all(Allocation)):
                    assert await watch.changed(10.0)
            assert [count for count in placed if count] == [STARTS_A_PASS, STARTS_A_PASS, MORE - 2 * STARTS_A_PASS]
        snapshots = await store.snapshots()
        found = await replay(snapshots[0], store.journal(snapshots[0].sequence), pools)
        assert found.divergence is None and found.cycles == engine.memory.sequence


def _placed(entity: object) -> bool:
    return isinstance(entity, Allocation) and entity.assigned_at is not None


async def test_a_held_slot_is_released_once_enough_others_are_vacating() -> None:
    """One of six slots is free and kept, with one that is being left, for a gang of two. Who comes later makes another leave: then
    the gang has two that are being left, and nothing else has to happen for the free one to be taken."""
    pools, clock = {DEFAULT: PoolPolicy(name=DEFAULT, scheduler=SchedulerKind.FAIR_SHARE)}, FixedClock(T0)
    async with running(an_engine(MemoryStore(), pools=pools, clock=clock)) as engine:
        owner = await a_user(engine)
        await AgentByHand(engine, slots=6).register()
        with engine.watch("", "") as watch:
            await an_experiment(engine, owner, a_config(trials=5))
            while sum(a.assigned_at is not None for a in engine.state.all(Allocation)) < 5:
                assert await watch.changed(10.0)
            gang = await an_experiment(engine, owner, a_config(slots=2))
            clock.advance(1.0)
            single = await an_experiment(engine, owner)
            while not _started(engine, single):
                assert await watch.changed(10.0), "a slot lies idle that the last one may have"
        assert sum(a.preempt is not None for a in engine.state.all(Allocation)) == 2
        assert not _started(engine, gang)


def _started(engine: Engine, experiment: ExperimentId) -> bool:
    trials = {trial.id for trial in engine.state.all(Trial) if trial.experiment_id == experiment}
    return any(a.trial_id in trials and a.assigned_at is not None for a in engine.state.all(Allocation))


async def test_no_machine_is_ended_before_all_that_fits_on_it_has_been_placed() -> None:
    """Two machines join at once: the first cycle fills one, and the other must not be taken for idle."""
    offer = Offer(
        offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=STARTS_A_PASS, price_per_hour=1.0
    )
    scaling = PoolScaling(pool="default", offers=(offer,), max_instances=2, idle_timeout_s=0.0)
    pools = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=scaling)}
    store = MemoryStore()
    async with running(an_engine(store, pools=pools, clock=FixedClock(T0))) as engine:
        owner = await a_user(engine)
        with engine.watch("", "") as watch:
            await asyncio.gather(*(an_experiment(engine, owner) for _ in range(2 * STARTS_A_PASS)))
            while len(engine.state.all(Instance)) < 2:
                assert await watch.changed(10.0)
            await asyncio.gather(*(_joins(engine, instance) for instance in engine.state.all(Instance)))
            while any(a.assigned_at is None for a in engine.state.all(Allocation)):
                assert await watch.changed(10.0)
    assert [instance.intent for instance in await store.instances()] == [Intent.RUN, Intent.RUN]


async def _joins(engine: Engine, instance: Instance) -> None:
    await engine.submit(
        RegisterAgent(
            agent=AgentId(instance.id),
            pool=DEFAULT,
            incarnation="first",
            devices=tuple(map(device, range(instance.slots))),
            address="",
            version="0",
            instance=instance.id,
            reports=(),
        )
    )


def test_a_plan_that_was_cut_is_the_beginning_of_the_whole_one() -> None:
    work = [waiting(f"w{n}", "normal", 1) for n in range(6)]
    for kind in SchedulerKind.PRIORITY, SchedulerKind.FAIR_SHARE:
        policy = a_policy(scheduler=kind)
        snapshot = PoolSnapshot.build(policy, [an_agent("a", slots=8)], [a_job("normal")], work, now=NOW)
        whole = schedule(snapshot)
        assert len(whole.place) == 6 and not whole.cut
        for starts in range(1, 6):
            cut = schedule(snapshot, starts=starts)
            assert cut.place == whole.place[:starts] and cut.cut and not cut.demand.gangs
        assert schedule(snapshot, starts=7) == whole
