"""A pool that gives up launching fails what waits for its machines, asks for nothing for a while, and tries again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from resolute.clock import FixedClock
from resolute.wire.states import ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.commands import Reconsider, RecordRefusal
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.pools.offer_rows import shown_offers
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.launch_errors import launch_error
from resolute_provisioner.model import Intent, Market, Offer, OfferBelief, PoolScaling, RefusalKind
from support.cluster import T0
from support.engines import DEFAULT, a_config, a_user, an_engine, an_experiment, joined, launched, running

TIMEOUT_S = 120.0
OFFER = Offer(offer_id="small", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
SCALING = PoolScaling(
    pool="default", offers=(OFFER,), max_instances=3, launch_error_timeout_s=TIMEOUT_S, launch_error_retries=1
)


class Cluster:
    """One owner, and a cloud that answers by hand."""

    def __init__(self, engine: Engine, clock: FixedClock) -> None:
        self.engine = engine
        self.clock = clock
        self.users = 0

    async def submits(self, slots: int = 1) -> ExperimentId:
        self.users += 1
        owner = await a_user(self.engine, f"user-{self.users}")
        return await an_experiment(self.engine, owner, a_config(slots=slots, restarts=5))

    def asked(self) -> list[Instance]:
        """What the cloud has not answered yet, the oldest first."""
        wanted = [i for i in self.engine.state.all(Instance) if i.intent is Intent.RUN and i.launched_at is None]
        return sorted(wanted, key=lambda instance: instance.requested_at)

    async def refuses(self, kind: RefusalKind = RefusalKind.NO_CAPACITY) -> None:
        for instance in self.asked():
            refusal = RecordRefusal(instance=instance.id, kind=kind, message="none of these")
            await self.engine.submit(refusal)

    async def grants(self) -> None:
        (instance,) = self.asked()
        await launched(self.engine, instance, self.clock.now())
        await joined(self.engine, instance)

    async def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.engine.submit(Reconsider())

    async def gives_up(self) -> None:
        await self.refuses()
        await self.later(10)
        await self.refuses()

    def waits(self, id_: ExperimentId) -> bool:
        trials = self.engine.state.find(Trial, "trials_of_experiment", id_)
        tasks = {trial.task_id for trial in trials}
        return any(a.task_id in tasks and a.assigned_at is None for a in self.engine.state.all(Allocation))


@asynccontextmanager
async def a_cluster(
    scaling: PoolScaling = SCALING, store: Store | None = None, clock: FixedClock | None = None, seed: int = 1
) -> AsyncIterator[Cluster]:
    """What was decided is decided again by a replay of the journal."""
    store, clock = store or MemoryStore(), clock or FixedClock(T0)
    pools = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=scaling)}
    async with running(an_engine(store, pools=pools, clock=clock, seed=seed)) as engine:
        yield Cluster(engine, clock)
        digest = engine.memory.digest
    snapshot = (await store.snapshots())[0]
    result = await replay(snapshot, store.journal(snapshot.sequence), pools)
    assert (result.divergence, result.digest) == (None, digest)


async def ended(store: Store, id_: ExperimentId) -> tuple[Experiment, Trial]:
    experiment = await store.experiment(id_)
    trials = [each for each in await store.experiment_entities(id_) if isinstance(each, Trial)]
    assert experiment is not None
    return experiment, trials[0]


def beliefs_of(engine: Engine) -> dict[str, OfferBelief]:
    return {known.belief.offer_id: known.belief for known in engine.state.all(PoolBelief)}


def given_up(cluster: Cluster) -> bool:
    return launch_error(SCALING, beliefs_of(cluster.engine), cluster.clock.now()) is not None


async def test_work_that_the_machines_cannot_hold_ends_with_the_providers_error_and_burns_no_restart() -> None:
    store = MemoryStore()
    async with a_cluster(store=store) as cluster:
        first = await cluster.submits()
        await cluster.refuses()
        assert cluster.waits(first), "one failure is tried again"
        await cluster.later(10)
        await cluster.refuses()
        later = await cluster.submits()
        for id_ in (first, later):
            experiment, trial = await ended(store, id_)
            assert (experiment.state, trial.state, trial.restarts) == (ExperimentState.ERROR, ExperimentState.ERROR, 0)
            assert "2 launches in a row have failed" in trial.exit_message
            assert "none of these" in trial.exit_message
        decisions = [each for each in await store.decisions(100) if each.kind == "launch_error"]
        assert len(decisions) == 1 and "launch_error_timeout" in decisions[0].reason


@pytest.mark.parametrize("timeout_s", [1.0, 600.0])
@pytest.mark.parametrize("kind", list(RefusalKind))
async def test_after_the_retries_it_ends_whatever_the_reason_and_however_long_the_pauses(
    kind: RefusalKind, timeout_s: float
) -> None:
    store = MemoryStore()
    scaling = replace(SCALING, launch_error_timeout_s=timeout_s, launch_error_retries=3)
    async with a_cluster(scaling, store) as cluster:
        waiting = await cluster.submits()
        for refused in range(4):
            assert cluster.waits(waiting), f"after {refused} refusals"
            while not cluster.asked():
                wake = cluster.engine.memory.next_wake()
                assert wake is not None, "the pool waits for nothing"
                await cluster.later(max(1.0, (wake - cluster.clock.now()).total_seconds()))
            await cluster.refuses(kind)
        experiment, trial = await ended(store, waiting)
        assert (experiment.state, trial.restarts) == (ExperimentState.ERROR, 0)
        assert "4 launches in a row have failed" in trial.exit_message and "none of these" in trial.exit_message


async def test_every_waiting_experiment_ends_also_those_that_no_decision_has_listed() -> None:
    store = MemoryStore()
    async with a_cluster(store=store) as cluster:
        all_of_them = [await cluster.submits() for _ in range(10)]
        await cluster.gives_up()
        for _ in range(1000):  # the engine goes on by itself
            await asyncio.sleep(0)
        assert not any(cluster.waits(id_) for id_ in all_of_them)


async def test_work_that_the_machines_can_hold_waits_and_is_launched_for_after_the_timeout() -> None:
    async with a_cluster() as cluster:
        await cluster.submits()
        await cluster.grants()
        waiting = await cluster.submits()
        await cluster.gives_up()
        larger = await cluster.submits(slots=2)
        assert (cluster.waits(waiting), cluster.waits(larger)) == (True, False)
        await cluster.later(TIMEOUT_S - 1)
        assert not cluster.asked()
        engine, now = cluster.engine, cluster.clock.now()
        rows = shown_offers(SCALING, beliefs_of(engine), now).offers
        assert "the pool has given up (launch_error_timeout)" in rows[0].blocked
        assert engine.memory.next_wake() == now + timedelta(seconds=1)
        await cluster.later(1)
        assert len(cluster.asked()) == 1


async def test_work_without_slots_never_fails_so() -> None:
    async with a_cluster() as cluster:
        nothing = await cluster.submits(slots=0)
        await cluster.gives_up()
        assert cluster.waits(nothing)


async def test_by_default_it_tries_for_ever() -> None:
    scaling = replace(SCALING, launch_error_timeout_s=0.0, launch_error_retries=0)
    async with a_cluster(scaling) as cluster:
        waiting = await cluster.submits()
        for _ in range(5):
            await cluster.refuses()
            await cluster.later(90)
        assert cluster.waits(waiting) and cluster.asked()


async def test_it_is_remembered_over_a_crash_and_a_master_with_another_configuration_tries_again() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with a_cluster(store=store, clock=clock) as cluster:
        await cluster.submits()
        await cluster.gives_up()
        assert given_up(cluster)
    assert any(known.belief.pool_launch for known in (await store.load()).entities if isinstance(known, PoolBelief))
    async with a_cluster(store=store, clock=clock, seed=2) as cluster:
        assert not given_up(cluster)
