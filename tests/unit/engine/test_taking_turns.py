"""Nobody makes room for others again and again while somebody equally important could; through the engine, over its restarts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from resolute.clock import FixedClock
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import AcknowledgePreemption, ActivateExperiment, PauseExperiment
from resolute_master.domain.ids import ExperimentId, TrialId, UserId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.sql import open_store, sqlite_url
from support.engines import DEFAULT, AgentByHand, a_user, an_engine, an_experiment, running

POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, preemption=True)}
JOBS = 4
ROUNDS = 3 * JOBS


async def all_run(agent: AgentByHand) -> None:
    for container in agent.containers():
        if container.state is not ContainerState.RUNNING:
            await agent.report(container, ContainerState.RUNNING)


async def end(engine: Engine, agent: AgentByHand, allocation: Allocation) -> None:
    here = {container.id: container for container in agent.containers()}
    await agent.report(here[allocation.containers[0].id], ContainerState.TERMINATED, Exit(code=0))


async def makes_room(engine: Engine, agent: AgentByHand, owner: UserId) -> TrialId | None:
    """Something important comes, is given the slot of somebody, and goes. Answers whose."""
    await an_experiment(engine, owner, priority=1)
    (victim,) = (each for each in engine.state.all(Allocation) if each.preempt is not None and not each.ended)
    await engine.submit(AcknowledgePreemption(allocation=victim.id))
    await end(engine, agent, victim)
    await all_run(agent)
    important = max(engine.state.all(Allocation), key=lambda each: each.trial_id or 0)
    await end(engine, agent, important)
    await all_run(agent)
    return victim.trial_id


async def test_equally_important_work_takes_turns_in_making_room_also_over_restarts(tmp_path: Path) -> None:
    clock, turns = FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), Counter[TrialId | None]()
    store = await open_store(sqlite_url(tmp_path / "master.db"))
    try:
        async with running(an_engine(store, clock=clock, pools=POOLS)) as engine:
            agent, owner = AgentByHand(engine, slots=JOBS), await a_user(engine)
            await agent.register()
            for _ in range(JOBS):
                await an_experiment(engine, owner, priority=50)
            await all_run(agent)
        for seed in range(2, 2 + ROUNDS):
            async with running(an_engine(store, clock=clock, pools=POOLS, seed=seed)) as engine:
                agent = await agent.returns_to(engine)
                clock.advance(30)
                turns[await makes_room(engine, agent, owner)] += 1
    finally:
        await store.close()
    assert len(turns) == JOBS
    assert max(turns.values()) - min(turns.values()) <= 1


async def test_a_pause_does_not_make_anybody_forget(tmp_path: Path) -> None:
    """A preempted experiment that was paused and activated again keeps the number of its preemptions."""
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = await open_store(sqlite_url(tmp_path / "master.db"))
    try:
        async with running(an_engine(store, clock=clock, pools=POOLS)) as engine:
            agent, owner = AgentByHand(engine, slots=1), await a_user(engine)
            await agent.register()
            await an_experiment(engine, owner, priority=50)
            await all_run(agent)
            await an_experiment(engine, owner, priority=1)
            (victim,) = (each for each in engine.state.all(Allocation) if each.preempt is not None)
            assert (victim.trial_id, victim.evictions) == (1, 0)
            await engine.submit(AcknowledgePreemption(allocation=victim.id))
            await end(engine, agent, victim)
            for command in (
                PauseExperiment(experiment=ExperimentId(1)),
                ActivateExperiment(experiment=ExperimentId(1)),
            ):
                await engine.submit(command)
            (again,) = (each for each in engine.state.all(Allocation) if each.trial_id == 1)
            assert again.id != victim.id and again.evictions == 1
    finally:
        await store.close()
