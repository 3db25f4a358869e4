"""Log policies from the stored line to what becomes of the trial, with a master that dies in between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from resolute.errors import Unavailable
from resolute.wire.states import ContainerState, ExperimentState
from resolute_master.domain.commands import Reconsider, RecordLogMatches, SetAgentEnabled
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay_store
from resolute_master.engine.reporting import Reporting
from resolute_master.store.base import LogQuery, Store
from resolute_master.store.memory import MemoryStore, MemoryTables
from resolute_master.store.writers import SMALL_BATCH_ITEMS
from support.engines import DEFAULT, POOLS, AgentByHand, a_config, a_user, an_engine, an_experiment, running
from support.stores import CommitScript, a_line

EXCLUDE = {"pattern": "bad gpu", "action": "exclude_node"}
CANCEL = {"name": "hopeless", "pattern": "no such file", "action": "cancel_retries"}
LABEL = {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"}


@asynccontextmanager
async def a_master(store: Store, **settings: Any) -> AsyncIterator[tuple[Engine, Reporting]]:
    async with running(an_engine(store, **settings)) as engine:
        reporting = Reporting(store, engine)
        try:
            yield engine, reporting
        finally:
            await reporting.close()


async def a_trial(engine: Engine, *policies: dict[str, Any], slots: int = 1, restarts: int = 5) -> TrialId:
    config = {**a_config(slots=slots, restarts=restarts), "log_policies": list(policies)}
    await an_experiment(engine, await a_user(engine), config)
    (trial,) = engine.state.all(Trial)
    return trial.id


def now(engine: Engine, trial: TrialId) -> Trial:
    found = engine.state.get(Trial, trial)
    assert found is not None
    return found


def line(engine: Engine, agent: AgentByHand, trial: TrialId, text: str, *, key: str) -> LogRecord:
    value = now(engine, trial)
    return a_line(
        key,
        task_id=value.task_id,
        allocation_id=f"{value.task_id}.{value.run_id}",
        agent_id=agent.id,
        log=text + "\n",
    )


async def words_of_the_master(store: Store, trial: Trial) -> list[str]:
    found = await store.logs(LogQuery(task_ids=(trial.task_id,), sources=("master",)))
    return [record.log for record in found]


async def two_agents(engine: Engine) -> tuple[AgentByHand, AgentByHand]:
    agents = AgentByHand(engine, "agent-1", slots=1), AgentByHand(engine, "agent-2", slots=1)
    for agent in agents:
        await agent.register()
    return agents


async def writes_and_fails(
    engine: Engine, reporting: Reporting, agents: Sequence[AgentByHand], trial: TrialId, *texts: str
) -> AgentByHand:
    """The trial's run writes these lines on its agent and ends with code 1; answers which agent that was."""
    await engine.submit(Reconsider())
    (agent,) = [agent for agent in agents if agent.containers()]
    run = now(engine, trial).run_id
    for number, text in enumerate(texts):
        await reporting.logs([line(engine, agent, trial, text, key=f"{run}/{number}")])
    await agent.run_all(code=1)
    await engine.submit(Reconsider())
    return agent


async def test_the_next_runs_of_the_trial_keep_off_the_agent() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        agents = await two_agents(engine)
        trial = await a_trial(engine, EXCLUDE)
        first = await writes_and_fails(engine, reporting, agents, trial, "bad gpu", "bad gpu again")
        for _ in range(2):
            other = await writes_and_fails(engine, reporting, agents, trial, "well")
            assert other is not first
        assert now(engine, trial).blocked_agents == (first.id,)
        said = [text for text in await words_of_the_master(store, now(engine, trial)) if "No later run" in text]
        assert said == [
            f"No later run of trial 1 will be placed on agent {first.id}: a line of its log matches the log policy 'bad gpu' "
            f"(therefore will not schedule on {first.id})\n"
        ]


async def test_another_trial_may_use_the_agent() -> None:
    async with a_master(MemoryStore()) as (engine, reporting):
        agent = AgentByHand(engine, slots=1)
        await agent.register()
        trial = await a_trial(engine, EXCLUDE)
        await writes_and_fails(engine, reporting, [agent], trial, "bad gpu")
        await an_experiment(engine, engine.state.all(User)[0].id)
        assert len(agent.containers()) == 1


async def test_without_an_agent_that_is_left_the_trial_ends_in_error() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        agents = await two_agents(engine)
        trial = await a_trial(engine, EXCLUDE)
        for _ in range(2):
            await writes_and_fails(engine, reporting, agents, trial, "bad gpu")
        ended = await store.trial(trial)
        assert ended is not None
        assert (ended.state, ended.restarts) == (ExperimentState.ERROR, 2)
        why = "cannot run again: pool 'default' without agent-1, agent-2, which its log policies exclude, has no agent; add one"
        assert why in ended.exit_message
        assert any(why in text for text in await words_of_the_master(store, ended))


async def test_a_gang_that_the_agents_left_cannot_hold_ends_in_error() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        large = AgentByHand(engine, "agent-1", slots=2)
        for agent in (large, AgentByHand(engine, "agent-2", slots=1)):
            await agent.register()
        trial = await a_trial(engine, EXCLUDE, slots=2)
        await writes_and_fails(engine, reporting, [large], trial, "bad gpu")
        ended = await store.trial(trial)
        assert ended is not None and ended.state is ExperimentState.ERROR
        assert "2 slots are more than pool 'default' without agent-1" in ended.exit_message


async def test_without_launch_error_it_waits_for_another_agent() -> None:
    store = MemoryStore()
    pools = {DEFAULT: replace(POOLS[DEFAULT], launch_error=False)}
    async with a_master(store, pools=pools) as (engine, reporting):
        agent = AgentByHand(engine, "agent-1", slots=1)
        await agent.register()
        trial = await a_trial(engine, EXCLUDE)
        await writes_and_fails(engine, reporting, [agent], trial, "bad gpu")
        assert agent.containers() == ()
        assert any("waits for other agents" in text for text in await words_of_the_master(store, now(engine, trial)))
        other = AgentByHand(engine, "agent-2", slots=1)
        await other.register()
        assert len(other.containers()) == 1


async def test_a_run_that_waits_already_heeds_a_late_line() -> None:
    async with a_master(MemoryStore()) as (engine, reporting):
        agent = AgentByHand(engine, "agent-1", slots=1)
        await agent.register()
        trial = await a_trial(engine, EXCLUDE)
        late = line(engine, agent, trial, "bad gpu", key="late")
        await engine.submit(SetAgentEnabled(agent=agent.id, enabled=False, draining=True))
        await agent.run_all(code=1)
        await reporting.logs([late])
        await engine.submit(SetAgentEnabled(agent=agent.id, enabled=True))
        assert agent.containers() == ()
        other = AgentByHand(engine, "agent-2", slots=1)
        await other.register()
        assert len(other.containers()) == 1


async def test_canceled_retries_end_the_trial_with_the_lines_that_forbid_one() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        agents = await two_agents(engine)
        trial = await a_trial(engine, CANCEL, EXCLUDE)
        await writes_and_fails(engine, reporting, agents, trial, "ok", "data.csv: no such file", "no such file at all")
        ended = await store.trial(trial)
        assert ended is not None
        assert (ended.state, ended.restarts, ended.log_policy_matched) == (ExperimentState.ERROR, 0, "hopeless")
        assert "a log policy forbids a retry" in ended.exit_message
        said = [text for text in await words_of_the_master(store, ended) if "No retry" in text]
        assert said == [
            "No retry of trial 1: a line of its log matches the log policy 'no such file': data.csv: no such file "
            "(trial failed and matched logs to a don't retry policy)\n"
        ]


async def test_a_match_changes_nothing_for_a_run_that_ends_well() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        agent = AgentByHand(engine)
        await agent.register()
        trial = await a_trial(engine, CANCEL, EXCLUDE)
        await reporting.logs([line(engine, agent, trial, "bad gpu; no such file", key="1")])
        await agent.run_all(code=0)
        ended = await store.trial(trial)
        assert ended is not None and ended.state is ExperimentState.COMPLETED


async def test_a_name_alone_only_labels() -> None:
    async with a_master(MemoryStore()) as (engine, reporting):
        agents = await two_agents(engine)
        trial = await a_trial(engine, LABEL)
        await writes_and_fails(engine, reporting, agents, trial, "RuntimeError: CUDA out of memory. Tried to ...")
        after = now(engine, trial)
        assert (after.log_policy_matched, after.blocked_agents, after.restarts) == ("CUDA OOM", (), 1)


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_master_that_dies_between_the_line_and_what_follows_makes_up_for_it(lost: str) -> None:
    """The line is stored, the decision is not, or nobody heard of it: the agent was not told, and sends the line again."""
    script = CommitScript()
    store = MemoryStore(MemoryTables(), hook=script)
    with pytest.raises(Unavailable, match="could not store"):
        async with a_master(store) as (engine, reporting):
            (agent, _) = await two_agents(engine)
            trial = await a_trial(engine, EXCLUDE)
            (container,) = agent.containers()
            await agent.report(container, ContainerState.RUNNING)
            next_one = frozenset({engine.memory.sequence + 1})
            script.fail_before, script.fail_after = (
                (next_one, frozenset()) if lost == "before" else (frozenset(), next_one)
            )
            sent = [line(engine, agent, trial, "bad gpu", key="container:stdout:0")]
            await reporting.logs(sent)
    script.fail_before = script.fail_after = frozenset()
    task = sent[0].task_id
    kept = await store.logs(LogQuery(task_ids=(task,), sources=("task",)))
    assert [record.log for record in kept] == ["bad gpu\n"]

    async with a_master(store, seed=2) as (engine, reporting):
        assert now(engine, trial).blocked_agents == (() if lost == "before" else (agent.id,))
        again = [AgentByHand(engine, name, slots=1) for name in ("agent-1", "agent-2")]
        for one in again:
            one.sequence = 1
            await one.register()
        await reporting.logs(sent)
        assert now(engine, trial).blocked_agents == (agent.id,)
        assert len(await store.logs(LogQuery(task_ids=(task,), sources=("task",)))) == 1
        said = await words_of_the_master(store, now(engine, trial))
        assert len([text for text in said if "No later run" in text]) == 1
    result = await replay_store(store, POOLS)
    assert result.divergence is None and result.cycles > 3


async def test_the_last_match_labels_the_trial_also_when_its_lines_are_looked_through_first() -> None:
    large = {"name": "large", "pattern": "(a?b?){200}c"}
    store, free = MemoryStore(), threading.Event()
    async with a_master(store) as (engine, reporting):
        agents = await two_agents(engine)
        trial = await a_trial(engine, large, CANCEL)
        (agent,) = [agent for agent in agents if agent.containers()]
        await reporting.logs([line(engine, agent, trial, "no such file", key="label")])
        slow = [line(engine, agent, trial, "ab" * 4000 + "c", key=f"slow/{n}") for n in range(8)]
        quick = [line(engine, agent, trial, "no such file", key=f"quick/{n}") for n in range(SMALL_BATCH_ITEMS)]
        # What is looked through in a thread waits for the only one; a large next batch is stored and looked through meanwhile.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=1))
        busy = asyncio.create_task(asyncio.to_thread(free.wait))
        try:
            calls = [asyncio.create_task(reporting.logs(slow))]
            await settle()
            calls.append(asyncio.create_task(reporting.logs(quick)))
            await settle()
            stored = await store.logs(LogQuery(task_ids=(slow[0].task_id,), sources=("task",)))
            assert len(stored) == 1 + len(slow) + len(quick)
            assert not any(call.done() for call in calls)
        finally:
            free.set()
        await asyncio.gather(busy, *calls)
        assert now(engine, trial).log_policy_matched == CANCEL["name"]


async def settle() -> None:
    """Lets everything that can run do so."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_recording_a_match_again_leaves_no_trace() -> None:
    store = MemoryStore()
    async with a_master(store) as (engine, reporting):
        (agent, _) = await two_agents(engine)
        trial = await a_trial(engine, EXCLUDE, LABEL)
        sequence = engine.memory.sequence
        for number in range(5):
            await reporting.logs([line(engine, agent, trial, "bad gpu; CUDA out of memory", key=str(number))])
        assert engine.memory.sequence == sequence + 1
        commands = [entry.commands async for entry in store.journal(sequence)]
        assert len(commands) == 1 and RecordLogMatches.__name__.encode() in commands[0]
