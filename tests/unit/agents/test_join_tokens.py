"""A machine's token is good for one join, whenever master or agent are killed in between; then its own secret counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from resolute.clock import FixedClock
from resolute.wire.agent_link import AgentMessage, CredentialKept, Hello, Refused, Welcome
from resolute_agent import state as agent_core
from resolute_agent.state import AgentState, Durable, Identity, LinkOpened, Received, Save, Send
from resolute_master.agents.hub import AgentHub
from resolute_master.agents.session import Closed
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Intent, Market, Offer, PoolScaling
from support.cluster import T0, device
from support.engines import DEFAULT, a_user, an_engine, an_experiment, launched, running
from support.hubs import a_hello, a_hub

OFFER = Offer(offer_id="local", instance_type="local", zone="z", market=Market.ON_DEMAND, slots=2, price_per_hour=1.0)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(OFFER,), max_instances=1))}


class Wire:
    """The master's end of a link, and a hand on the other one."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def receive(self) -> AgentMessage:
        message = await self.said.get()
        if message is None:
            raise Closed("hung up")
        return message

    async def send(self, message: Any) -> None:
        self.heard.put_nowait(message)

    async def close(self) -> None:
        self.said.put_nowait(None)


class Master:
    """One life of a master over a store."""

    def __init__(self, engine: Engine, hub: AgentHub, clock: FixedClock) -> None:
        self.engine, self.hub, self.clock = engine, hub, clock
        self._links: list[tuple[Wire, asyncio.Task[None]]] = []

    @property
    def instance(self) -> Instance:
        (instance,) = self.engine.state.all(Instance)
        return instance

    def hello(self, **changes: Any) -> Hello:
        name = self.instance.id
        return a_hello(name, **{"instance_id": name, **changes})

    async def answer(self, hello: Hello) -> Welcome | Refused:
        wire = Wire()
        self._links.append((wire, asyncio.create_task(self.hub.serve(wire))))
        wire.said.put_nowait(hello)
        answer: Welcome | Refused = await wire.heard.get()
        return answer

    async def keeps(self) -> None:
        """The machine of the latest link says that it has kept its secret, and the master has taken note."""
        wire, _ = self._links[-1]
        with self.engine.watch("", "") as watch:
            wire.said.put_nowait(CredentialKept())
            while self.instance.join_token_spent_at is None:
                assert await watch.changed(10.0)

    async def hang_up(self) -> None:
        for wire, serving in self._links:
            wire.said.put_nowait(None)
            await serving


@asynccontextmanager
async def a_master(store: MemoryStore) -> AsyncIterator[Master]:
    clock = FixedClock(T0)
    async with (
        running(an_engine(store, pools=POOLS, clock=clock)) as engine,
        a_hub(engine, store, clock) as hub,
    ):
        master = Master(engine, hub, clock)
        try:
            if not engine.state.all(Instance):
                await an_experiment(engine, await a_user(engine))
                await launched(engine, master.instance, T0)
            yield master
        finally:
            await master.hang_up()


async def joined(master: Master, **changes: Any) -> Welcome:
    answer = await master.answer(master.hello(**changes))
    assert isinstance(answer, Welcome), answer
    return answer


async def refused(master: Master, **changes: Any) -> str:
    answer = await master.answer(master.hello(**changes))
    assert isinstance(answer, Refused) and answer.final
    return answer.reason


async def test_a_token_is_refused_once_the_machine_has_its_own_secret() -> None:
    async with a_master(MemoryStore()) as master:
        token = master.hub.join_token(master.instance.id)
        credential = (await joined(master, join_token=token)).credential
        assert credential not in ("", token)
        await master.keeps()
        assert "good once" in await refused(master, join_token=token, incarnation="stranger")
        again = await joined(master, credential=credential, incarnation="second")
        assert again.credential == ""


async def test_before_the_secret_is_kept_the_token_stays_good_and_the_secret_the_same() -> None:
    """The agent is killed between the welcome and its disk, or the answer is lost, and then the master is killed too."""
    store = MemoryStore()
    async with a_master(store) as master:
        token = master.hub.join_token(master.instance.id)
        first = await joined(master, join_token=token)
        second = await joined(master, join_token=token, incarnation="second")
        assert first.credential == second.credential
    async with a_master(store) as master:
        third = await joined(master, join_token=token, incarnation="third")
        assert third.credential == first.credential
        await master.keeps()
    async with a_master(store) as master:
        assert "good once" in await refused(master, join_token=token, incarnation="fourth")
        assert (await joined(master, credential=first.credential, incarnation="fourth")).credential == ""


async def test_a_secret_that_was_kept_and_not_told_of_is_kept_once_it_is_used() -> None:
    """The agent was killed after it had saved its secret, before it could say so."""
    async with a_master(MemoryStore()) as master:
        token = master.hub.join_token(master.instance.id)
        credential = (await joined(master, join_token=token)).credential
        again = await joined(master, credential=credential, incarnation="second")
        assert again.credential == ""
        assert "good once" in await refused(master, join_token=token, incarnation="stranger")


async def test_secrets_of_others_are_refused() -> None:
    async with a_master(MemoryStore()) as master:
        assert "credential" in await refused(master, credential="guessed")
        token = master.hub.join_token(master.instance.id)
        assert "credential" in await refused(master, credential=token)
        assert "join_token" in await refused(master, join_token=master.hub.join_token("another"))


async def test_a_machine_that_was_given_up_before_it_joined_cannot_join_any_more() -> None:
    async with a_master(MemoryStore()) as master:
        given_up = master.instance
        token = master.hub.join_token(given_up.id)
        hello = master.hello(join_token=token)
        master.clock.advance(POOLS[DEFAULT].scaling.boot_timeout_s + 1)  # type: ignore[union-attr]
        await master.engine.submit(Reconsider())
        stopped = master.engine.state.get(Instance, given_up.id)
        assert stopped is not None and stopped.intent is Intent.STOP
        answer = await master.answer(hello)
        assert isinstance(answer, Refused) and answer.final and "no longer needed" in answer.reason


# ------------------------------------------------------------------------------------------------- the machine's side

WELCOME = Welcome(cluster_id="c", cluster_name="n", master_id="m", heartbeat_s=5.0, lease_s=30.0, credential="secret")


def an_agent(durable: Durable | None = None) -> AgentState:
    identity = Identity(
        agent_id="a",
        resource_pool="default",
        incarnation="first",
        version="0",
        devices=(device(0),),
        join_token="token",
        instance_id="a",
    )
    return agent_core.initial(identity, durable)


def test_the_secret_is_on_the_disk_before_the_master_is_told() -> None:
    opened, effects = agent_core.step(an_agent(), LinkOpened(address="10.0.0.1"), T0)
    assert isinstance(effects[0], Send) and isinstance(effects[0].message, Hello)
    assert (effects[0].message.join_token, effects[0].message.credential) == ("token", "")
    after, effects = agent_core.step(opened, Received(message=WELCOME), T0)
    saved, told = effects[0], effects[1]
    assert saved == Save() and after.durable().credential == "secret"
    assert told == Send(message=CredentialKept())


def test_the_next_process_of_the_agent_shows_the_secret_and_not_the_token() -> None:
    state = an_agent(Durable(credential="secret"))
    hello = agent_core.hello(state)
    assert (hello.join_token, hello.credential) == ("", "secret")
    opened, _ = agent_core.step(state, LinkOpened(address="10.0.0.1"), T0)
    _, effects = agent_core.step(opened, Received(message=WELCOME), T0)
    assert Send(message=CredentialKept()) in effects  # asked again, told again
    _, effects = agent_core.step(opened, Received(message=replace(WELCOME, credential="")), T0)
    assert Send(message=CredentialKept()) not in effects
