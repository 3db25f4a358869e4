"""A master that starts with other offers than the one before: machines of the old ones work on, and none follow them."""

from __future__ import annotations

from dataclasses import replace

from resolute.clock import FixedClock
from resolute_master.app import _check_machines
from resolute_master.domain.commands import LoseAgentLink, Reconsider
from resolute_master.domain.ids import AgentId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.engine.provisioning import PoolLedger
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.model import Intent, Market, Offer, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, a_user, an_engine, an_experiment, joined, launched, running

OLD = Offer(
    offer_id="aws/us-east-1a/p3.2xlarge/spot",
    instance_type="p3.2xlarge",
    zone="us-east-1a",
    region="us-east-1",
    market=Market.SPOT,
    slots=1,
    price_per_hour=3.06,
)
NEW = replace(OLD, offer_id="aws/us-east-1a/g5.xlarge/spot", instance_type="g5.xlarge", price_per_hour=1.0)
IDLE_S = 600.0


def a_master(store: Store, offer: Offer, clock: FixedClock, seed: int) -> Engine:
    scaling = PoolScaling(pool=DEFAULT, offers=(offer,), idle_timeout_s=IDLE_S)
    policy = PoolPolicy(name=DEFAULT, scaling=scaling)
    return an_engine(store, seed=seed, clock=clock, pools={DEFAULT: policy})


async def booted(engine: Engine, machine: Instance) -> AgentByHand:
    await launched(engine, machine, T0)
    return await joined(engine, machine)


def a_boot(machine: Instance) -> MachineBoot:
    return MachineBoot(
        master_url="http://m", agent_id=machine.id, resource_pool=DEFAULT, instance_id=machine.id, join_token="secret"
    )


async def test_machines_of_a_retired_offer_work_on_and_are_not_bought_again() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(a_master(store, OLD, clock, 1)) as engine:
        await an_experiment(engine, await a_user(engine))
        (machine,) = engine.state.all(Instance)
        agent = await booted(engine, machine)
        await engine.submit(Reconsider())
        assert len(agent.containers()) == 1
        await engine.submit(LoseAgentLink(agent=AgentId(machine.id), incarnation="first"))
    async with running(a_master(store, NEW, clock, 2)) as engine:
        _check_machines(engine.state, engine.pools)
        (machine,) = engine.state.all(Instance)
        assert (machine.intent, machine.offer) == (Intent.RUN, OLD)
        # The cloud is asked for exactly what it was asked for before, whatever the configuration says now.
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        (intent,) = await ledger.intents()
        assert intent.request.offer == OLD
        agent = await AgentByHand(engine, machine.id, slots=1, instance=machine.id).returns_to(engine)
        await booted(engine, machine)
        assert await agent.run_all() == 1
        await engine.submit(Reconsider())
        assert engine.state.get(Instance, machine.id) is not None
        clock.advance(IDLE_S + 1)
        await engine.submit(Reconsider())
        (machine,) = engine.state.all(Instance)
        assert machine.intent is Intent.STOP
        assert "it has been idle" in machine.stop_reason
        await an_experiment(engine, await a_user(engine, "grace"))
        bought = [i.offer_id for i in engine.state.all(Instance) if i.intent is Intent.RUN]
        assert bought == [NEW.offer_id]
