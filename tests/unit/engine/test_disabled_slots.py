"""Single slots that an operator drains, disables and enables, while work runs and waits."""

from __future__ import annotations

import pytest

from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Container
from resolute_master.domain.commands import SetSlotEnabled
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running


async def switch(engine: Engine, agent: AgentByHand, slot: int, *, enabled: bool, drain: bool = False) -> None:
    await engine.submit(SetSlotEnabled(agent=agent.id, index=slot, enabled=enabled, draining=drain))


def held(agent: AgentByHand) -> dict[int, Container]:
    """Slot -> what holds it."""
    return {slot: container for container in agent.containers() for slot in container.slots}


async def two_trials(engine: Engine, *, slots: int = 2) -> AgentByHand:
    """An agent on whose two slots a trial runs each; a third one waits."""
    agent = AgentByHand(engine, slots=slots)
    await agent.register()
    await an_experiment(engine, await a_user(engine), a_config(trials=3))
    for container in agent.containers():
        await agent.report(container, ContainerState.RUNNING)
    assert sorted(held(agent)) == [0, 1]
    return agent


async def test_a_drained_slot_keeps_its_work_and_is_not_handed_out_again_until_it_is_enabled() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = await two_trials(engine)
        before = held(agent)
        await switch(engine, agent, 1, enabled=False, drain=True)
        assert held(agent) == before
        await agent.report(before[1], ContainerState.TERMINATED, Exit(code=0))
        assert held(agent) == {0: before[0]}
        await switch(engine, agent, 1, enabled=True)
        assert sorted(held(agent)) == [0, 1]
        (now,) = engine.state.all(Agent)
        assert [(slot.enabled, slot.draining) for slot in now.slots] == [(True, False), (True, False)]


async def test_disabling_a_slot_ends_what_uses_it_and_nothing_else_and_costs_no_restart() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = await two_trials(engine)
        before = held(agent)
        await switch(engine, agent, 1, enabled=False)
        assert {key.removeprefix("kill:") for key in engine.state.outbox if key.startswith("kill:")} == {before[1].id}
        await agent.report(before[1], ContainerState.TERMINATED, Exit(code=137))
        assert held(agent) == {0: before[0]}
        assert {trial.restarts for trial in engine.state.all(Trial)} == {0}
        await agent.report(before[0], ContainerState.TERMINATED, Exit(code=0))
        assert sorted(held(agent)) == [0]


async def test_a_gang_over_a_slot_that_is_disabled_ends_as_a_whole() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agents = [AgentByHand(engine, name, slots=2) for name in ("agent-1", "agent-2", "agent-3")]
        for agent in agents:
            await agent.register()
        await an_experiment(engine, await a_user(engine), a_config(slots=4))
        inside, other = [agent for agent in agents if agent.containers()]
        await switch(engine, inside, 0, enabled=False)
        for agent in (inside, other):
            await agent.run_all(code=137)
        # The agent with one slot less is no half of a gang of four any more.
        assert [bool(agent.containers()) for agent in agents] == [agent is not inside for agent in agents]


@pytest.mark.parametrize("drain", [True, False])
async def test_a_slot_stays_off_over_restarts_of_the_master_and_of_the_agent(drain: bool) -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        agent = await two_trials(engine)
        held_0 = held(agent)[0]
        gone = held(agent)[1]
        await switch(engine, agent, 1, enabled=False, drain=drain)
        await agent.report(gone, ContainerState.TERMINATED, Exit(code=0))
    async with running(an_engine(store, seed=2)) as engine:
        again = AgentByHand(engine, incarnation="second")
        again.sequence = agent.sequence
        (here,) = [
            ContainerReport(
                container_id=held_0.id,
                allocation_id="",
                state=ContainerState.RUNNING,
                sequence=agent.sequence,
                at=engine.state.all(Agent)[0].registered_at,
            )
        ]
        await again.register(here)
        (now,) = engine.state.all(Agent)
        assert [(slot.enabled, slot.draining) for slot in now.slots] == [(True, False), (drain, drain)]
        assert sorted(held(again)) == [0]
        await switch(engine, again, 1, enabled=True)
        assert sorted(held(again)) == [0, 1]


async def test_draining_a_slot_that_is_off_does_not_switch_it_on() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = await two_trials(engine)
        for drain in (False, True):
            await switch(engine, agent, 1, enabled=False, drain=drain)
        await agent.report(held(agent)[1], ContainerState.TERMINATED, Exit(code=137))
        assert sorted(held(agent)) == [0]
