"""A reservation through the engine: written down, so that neither other work nor a restart moves it."""

from __future__ import annotations

from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running


def reserved(engine: Engine) -> list[tuple[AgentId, ...]]:
    """Reserved agents of the allocations that request four slots."""
    return [a.reserved_agents for a in engine.state.all(Allocation) if a.slots_needed == 4]


async def one_ends(agent: AgentByHand) -> None:
    await agent.report(agent.containers()[0], ContainerState.TERMINATED, Exit(code=0))


async def test_it_lies_where_it_lay_when_another_agent_looks_better_and_after_a_restart() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        first, second = AgentByHand(engine, "agent-1", slots=4), AgentByHand(engine, "agent-2", slots=4)
        await first.register()
        await second.register()
        owner = await a_user(engine)
        for slots in (1, 1, 1, 2, 4):
            await an_experiment(engine, owner, a_config(slots=slots))
        assert (len(first.containers()), len(second.containers())) == (3, 1)
        assert reserved(engine) == [("agent-2",)], "most of it is free"
        await one_ends(first)
        await one_ends(first)  # now more of the first agent is free
        assert reserved(engine) == [("agent-2",)]
    async with running(an_engine(store, seed=2)) as engine:
        first, second = await first.returns_to(engine), await second.returns_to(engine)
        await an_experiment(engine, owner, a_config(slots=1))
        assert reserved(engine) == [("agent-2",)]
        assert (len(first.containers()), len(second.containers())) == (2, 1), "what came later runs beside it"
        await one_ends(second)
        assert sorted(len(c.slots) for c in second.containers()) == [4]
