"""Machines outside of cloud pools: they join with the cluster's token, and prove themselves with a credential of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.config import MasterConfig, load_master_config
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, PermissionDenied
from resolute.wire.agent_link import ContainerReport, Hello, Refused, Welcome
from resolute.wire.states import ContainerState
from resolute_agent import state as agent_core
from resolute_agent.state import Identity, LinkOpened, Save, Send
from resolute_master.agents.hub import AgentHub
from resolute_master.domain.agent import Agent, AgentKey
from resolute_master.domain.ids import AgentId
from resolute_master.domain.machines import ForgetAgent
from resolute_master.engine.engine import Engine
from resolute_master.seal import open_secrets
from resolute_master.seal.join_token import FILE, SECRET, JoinToken
from resolute_master.store.memory import MemoryStore
from support.cluster import T0, device
from support.engines import AgentByHand, an_engine, running
from support.hubs import JOIN_TOKEN, a_hello, a_hub, credential_of
from support.wires import Wire

OTHER = "f" * 64
"""The credential of another machine."""


class Master:
    """One life of a master over a store."""

    def __init__(self, engine: Engine, hub: AgentHub) -> None:
        self.engine, self.hub = engine, hub
        self._links: list[tuple[Wire, asyncio.Task[None]]] = []

    async def answer(self, hello: Hello) -> Any:
        wire = Wire()
        self._links.append((wire, asyncio.create_task(self.hub.serve(wire))))
        wire.say(hello)
        return await wire.hear(Any)

    async def joins(self, hello: Hello) -> None:
        answer = await self.answer(hello)
        assert isinstance(answer, Welcome), answer
        assert answer.credential == "", "its machine has made one"

    async def refuses(self, hello: Hello, *, final: bool = True) -> str:
        answer = await self.answer(hello)
        assert isinstance(answer, Refused), answer
        assert answer.final is final
        return answer.reason

    async def hang_up(self) -> None:
        for wire, serving in self._links:
            wire.hang_up()
            await serving
        self._links.clear()

    def agent(self) -> Agent | None:
        return self.engine.state.get(Agent, AgentId("agent-1"))


@asynccontextmanager
async def a_master(store: MemoryStore | None = None, *, join_token: str = JOIN_TOKEN) -> AsyncIterator[Master]:
    store, clock = store or MemoryStore(), FixedClock(T0)
    async with (
        running(an_engine(store, clock=clock)) as engine,
        a_hub(engine, store, clock, join_token=join_token) as hub,
    ):
        master = Master(engine, hub)
        try:
            yield master
        finally:
            await master.hang_up()


# --------------------------------------------------------------------------------------------------------- the token


@pytest.mark.parametrize("token", ["", "guessed", JOIN_TOKEN + " ", "f\u00e4lscht"])
async def test_no_agent_joins_without_the_token_and_it_is_told_the_command(token: str) -> None:
    async with a_master() as master:
        reason = await master.refuses(a_hello(join_token=token))
        assert "det agent join-token" in reason and "/etc/determined/agent.yaml" in reason
        assert master.engine.state.all(Agent) == () == master.engine.state.all(AgentKey)


async def test_a_stranger_learns_neither_pools_nor_names() -> None:
    async with a_master() as master:
        await master.joins(a_hello())
        of_nobody = await master.refuses(a_hello("nobody", join_token="", credential=OTHER))
        for hello in (
            a_hello(join_token="", credential=OTHER),
            a_hello("nobody", join_token="", credential="", resource_pool="gpus"),
            a_hello("nobody", join_token="", protocol=99),
        ):
            assert await master.refuses(hello) == of_nobody


REPORT = ContainerReport(container_id="c-1", allocation_id="a-1", state=ContainerState.RUNNING, sequence=1, at=T0)


@pytest.mark.parametrize(("work", "final"), [((), True), ((REPORT,), False)])
async def test_an_agent_of_the_version_before_is_told_what_to_do_and_keeps_its_work(
    work: Sequence[ContainerReport], final: bool
) -> None:
    """That version ends its work on a final refusal; its own upgrade takes the work over."""
    async with a_master() as master:
        old = a_hello(join_token="", credential="", containers=tuple(work))
        assert "det agent join-token" in await master.refuses(old, final=final)
        told = a_hello(credential="", containers=tuple(work))
        assert "install the master's version 0" in await master.refuses(told, final=final)


# ----------------------------------------------------------------------------------------------------- the credential


async def test_a_name_belongs_to_the_machine_that_joined_first_also_while_its_link_is_down() -> None:
    store = MemoryStore()
    async with a_master(store) as master:
        await master.joins(a_hello())
        await master.hang_up()
        reason = await master.refuses(a_hello(credential=OTHER, incarnation="other"))
        assert "det agent forget agent-1" in reason and "another agent_id" in reason
        await master.joins(a_hello(incarnation="second", join_token=""))
    async with a_master(store) as master:
        await master.refuses(a_hello(credential=OTHER, incarnation="other"))
        await master.joins(a_hello(incarnation="third", join_token=""))


async def test_the_credential_outlives_the_registration_and_a_new_join_token() -> None:
    store = MemoryStore()
    async with a_master(store) as master:
        await master.joins(a_hello())
    async with a_master(store, join_token="another-token-of-the-cluster") as master:
        agent = master.agent()
        assert agent is not None and not agent.connected
        await master.joins(a_hello(incarnation="second"))
        assert "det agent join-token" in await master.refuses(a_hello("agent-2"))


async def test_the_master_keeps_a_digest_and_not_the_credential() -> None:
    store = MemoryStore()
    async with a_master(store) as master:
        await master.joins(a_hello())
    kept = [entry.commands + entry.adopted for entry in store.tables.journal.values()]
    kept += [row for rows in store.tables.entities.values() for row in rows.values()]
    assert not any(credential_of("agent-1").encode() in row for row in kept)


async def test_of_two_machines_that_join_at_once_under_one_name_the_rule_lets_one_in() -> None:
    """Both have passed the door; the one that is registered first keeps the name."""
    async with a_master() as master:
        one = AgentByHand(master.engine, key="1" * 64).register()
        two = AgentByHand(master.engine, key="2" * 64).register()
        _, refused = await asyncio.gather(one, two, return_exceptions=True)
        assert isinstance(refused, PermissionDenied)
        (key,) = master.engine.state.all(AgentKey)
        assert key.digest == "1" * 64


def an_agent(durable: agent_core.Durable | None = None, *, drawn: str = "1" * 64) -> agent_core.AgentState:
    identity = Identity(
        agent_id="a",
        resource_pool="default",
        incarnation="first",
        version="0",
        devices=(device(0),),
        join_token=JOIN_TOKEN,
        own_credential=drawn,
    )
    return agent_core.initial(identity, durable)


def test_a_machine_saves_its_credential_before_it_first_shows_it_and_shows_the_same_one_after_a_kill() -> None:
    state, effects = agent_core.step(an_agent(), LinkOpened(address="10.0.0.1"), T0)
    assert effects[0] == Save() and state.durable().credential == "1" * 64
    assert isinstance(effects[1], Send) and isinstance(effects[1].message, Hello)
    assert (effects[1].message.credential, effects[1].message.join_token) == ("1" * 64, JOIN_TOKEN)
    after, effects = agent_core.step(an_agent(state.durable(), drawn="2" * 64), LinkOpened(address="10.0.0.1"), T0)
    assert Save() not in effects and agent_core.hello(after).credential == "1" * 64


# ------------------------------------------------------------------------------------------------------- freed names


async def test_an_administrator_frees_the_name_of_a_machine_that_lost_its_state() -> None:
    async with a_master() as master:
        await master.joins(a_hello())
        await master.hang_up()
        await master.engine.submit(ForgetAgent(agent=AgentId("agent-1")))
        assert master.agent() is None and master.engine.state.all(AgentKey) == ()
        await master.joins(a_hello(credential=OTHER, incarnation="new"))
        await master.hang_up()
        await master.refuses(a_hello())
        with pytest.raises(NotFound):
            await master.engine.submit(ForgetAgent(agent=AgentId("agent-2")))


async def test_to_revoke_the_credential_of_a_connected_agent_takes_force_and_cuts_its_link() -> None:
    async with a_master() as master:
        wire = Wire()
        serving = asyncio.create_task(master.hub.serve(wire))
        wire.say(a_hello())
        await wire.hear(Welcome)
        with pytest.raises(FailedPrecondition, match=r"is connected.*--force"):
            await master.engine.submit(ForgetAgent(agent=AgentId("agent-1")))
        await master.engine.submit(ForgetAgent(agent=AgentId("agent-1"), force=True))
        async with asyncio.timeout(10):
            await serving
        assert wire.closed.is_set() and master.agent() is None


# ------------------------------------------------------------------------------------------------------ the one token


def configured(directory: Path, token: str = "") -> MasterConfig:
    return load_master_config(
        None, {}, {"cluster-state-dir": str(directory), **({"security-agents-join-token": token} if token else {})}
    )


async def test_the_token_is_made_once_kept_among_the_secrets_and_written_to_a_private_file(tmp_path: Path) -> None:
    store, file = MemoryStore(), tmp_path / FILE
    for _ in range(2):
        config = configured(tmp_path)
        kept = await open_secrets(store, config)
        token = await JoinToken.open(kept, config)
        assert file.read_text() == token.value + "\n" == await kept.secret(SECRET) + "\n"
        assert file.stat().st_mode & 0o777 == 0o600 and len(token.value) == 64
        assert token.value not in str(await store.setting(SECRET))
        file.unlink()


async def test_a_new_token_replaces_the_one_before_everywhere_and_for_good(tmp_path: Path) -> None:
    store, config = MemoryStore(), configured(tmp_path)
    kept = await open_secrets(store, config)
    token = await JoinToken.open(kept, config)
    before, after = token.value, await token.rotate()
    assert before != after and token.fits(after) and not token.fits(before)
    assert (tmp_path / FILE).read_text() == after + "\n"
    assert (await JoinToken.open(await open_secrets(store, config), config)).value == after


async def test_a_configured_token_is_in_force_and_changed_in_the_configuration_only(tmp_path: Path) -> None:
    config = configured(tmp_path, "from-the-configuration")
    token = await JoinToken.open(await open_secrets(MemoryStore(), config), config)
    assert token.configured and (tmp_path / FILE).read_text() == "from-the-configuration\n"
    with pytest.raises(FailedPrecondition, match=r"change security\.agents\.join_token there"):
        await token.rotate()
    assert token.fits("from-the-configuration")


@pytest.mark.parametrize(
    "token", ["short", "fifteen-letters", "with-ümlauts-in-the-middle", "with\na-second-line-in-it"]
)
def test_a_configured_token_is_hard_to_guess(token: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"security\.agents\.join_token: must be at least 16 printable") as refused:
        configured(tmp_path, token)
    assert token not in str(refused.value)
