"""What the engine keeps in memory: what is alive, and no more; and what comes back for a command."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.errors import FailedPrecondition, ResoluteError
from resolute.host_paths import HostPathRules
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState, ExperimentState
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, JournalEntry
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import (
    CancelExperiment,
    CreateExperiment,
    DeleteExperiment,
    LoseAgentLink,
    Reconsider,
    RecordReports,
    ReportCheckpoint,
    ReportProgress,
    SetCheckpointResources,
    StoredReport,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, AllocationId, ExperimentId, TrialId
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.engine.checkpoint_files import CheckpointRemoval
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.cycle import DUE_A_CYCLE
from resolute_master.engine.engine import Engine
from resolute_master.engine.journal import decode_commands, journaled, written_down
from resolute_master.engine.memory import STALE_DEADLINES, Memory
from resolute_master.engine.replay import replay
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.store.memory import MemoryStore
from support.cluster import T0, an_agent, at
from support.engines import DEFAULT, POOLS, AgentByHand, a_config, a_user, an_engine, an_experiment, running


def a_report(steps: int, loss: float, run_id: int = 1) -> RecordReports:
    report = StoredReport(
        trial=TrialId(1), run_id=run_id, steps_completed=steps, validation={"loss": loss}, reported_at=T0
    )
    return RecordReports(reports=(report,))


def a_checkpoint(uuid: str, allocation: str, steps: int = 1) -> ReportCheckpoint:
    return ReportCheckpoint(
        uuid=uuid, allocation=AllocationId(allocation), steps_completed=steps, resources={"w": 3}, metadata={}
    )


async def an_ended_experiment(
    engine: Engine, config: dict[str, Any] | None = None, *, checkpoints: tuple[str, ...] = ()
) -> tuple[ExperimentId, AllocationId]:
    agent = AgentByHand(engine)
    await agent.register()
    id_ = await an_experiment(engine, await a_user(engine), config)
    (allocation,) = engine.state.all(Allocation)
    for steps, uuid in enumerate(checkpoints, 1):
        await engine.submit(a_checkpoint(uuid, allocation.id, steps))
    await agent.run_all()
    return id_, allocation.id


# --------------------------------------------------------------------------------------------------------- late news


async def test_a_metric_that_became_durable_as_its_trial_ended_still_counts() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        await an_ended_experiment(engine)
        assert engine.state.all(Trial) == ()
        await engine.submit(a_report(9, 0.25))
        assert engine.state.all(Trial) == ()
        trial = await store.trial(TrialId(1))
        experiment = await store.experiment(ExperimentId(1))
    assert trial is not None and trial.best_validation is not None and experiment is not None
    assert (trial.steps_completed, trial.best_validation.metric) == (9, 0.25)
    assert (experiment.state, experiment.best_validation, experiment.progress) == (ExperimentState.COMPLETED, 0.25, 1.0)


async def test_a_checkpoint_reported_by_the_last_run_of_an_ended_trial_is_kept() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        _, allocation = await an_ended_experiment(engine)
        await engine.submit(a_checkpoint("late", allocation, 4))
        trial = await store.trial(TrialId(1))
        checkpoint = await store.checkpoint("late")
        assert engine.state.all(Checkpoint) == ()
    assert trial is not None and trial.latest_checkpoint is not None and checkpoint is not None
    assert trial.latest_checkpoint.uuid == "late"


async def test_a_checkpoint_of_an_experiment_that_is_being_deleted_is_refused() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        id_, allocation = await an_ended_experiment(engine, checkpoints=("c1",))
        await engine.submit(DeleteExperiment(experiment=id_))
        with pytest.raises(FailedPrecondition, match="is being deleted"):
            await engine.submit(a_checkpoint("late", allocation))


@pytest.mark.parametrize("name", ["", "1", "x.y.1", "²x.y.1", "99.abc.1", "1.abc.²"])
async def test_reports_for_allocations_that_never_were_are_refused(name: str) -> None:
    async with running(an_engine(MemoryStore())) as engine:
        with pytest.raises(ResoluteError, match="not found"):
            await engine.submit(a_checkpoint("c", name))


# ------------------------------------------------------------------------------------------------------------ memory


async def test_an_experiment_that_is_being_deleted_stays_in_memory_as_a_restart_would_load_it() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        id_, _ = await an_ended_experiment(engine, checkpoints=("c1", "c2"))
        await engine.submit(DeleteExperiment(experiment=id_))
        held = {type(e): e for kind in (Experiment, Job, Trial) for e in engine.state.all(kind)}
        assert set(held) == {Experiment, Job, Trial}
        assert len(engine.state.all(Checkpoint)) == 2
    async with running(an_engine(store, seed=2)) as engine:
        assert {type(e): e for kind in (Experiment, Job, Trial) for e in engine.state.all(kind)} == held
        for uuid in ("c1", "c2"):
            await engine.submit(SetCheckpointResources(uuid=uuid, resources={}))
        assert [engine.state.all(kind) for kind in (Experiment, Job, Trial, Checkpoint)] == [(), (), (), ()]
        assert [effect.key for effect in engine.outstanding()] == ["remove-tensorboards:1"]
    assert await store.experiment(id_) is None


async def test_what_has_ended_is_in_no_snapshot_of_a_pool() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine, slots=1)
        await agent.register()
        owner = await a_user(engine)
        for _ in range(5):
            await an_experiment(engine, owner, a_config(trials=2))
        while await agent.run_all():
            pass
        last = await an_experiment(engine, owner)
        await engine.submit(CancelExperiment(experiment=last))
        for container in agent.containers():
            await agent.report(container, ContainerState.TERMINATED, Exit(code=0))
        snapshot = engine.snapshot(DEFAULT)
        assert (len(snapshot.jobs), len(snapshot.allocations), len(snapshot.queue)) == (0, 0, 0)
        assert engine.state.all(Job) == ()


def a_memory(*entities: Agent) -> Memory:
    return Memory(ClusterState(entities), POOLS, sequence=0, digest="", now=T0)


def upserted(memory: Memory, *agents: Agent) -> None:
    entry = JournalEntry(
        sequence=memory.sequence + 1, at=T0, entropy="", commands=b"[]", adopted=b"[]", digest=memory.digest
    )
    memory.absorb(Change(journal=entry, upserts=agents), memory.snapshots, "")


def test_a_deadline_that_was_put_off_or_lifted_is_not_due() -> None:
    memory = a_memory(an_agent(disconnected_at=T0))
    upserted(memory, an_agent(disconnected_at=at(100)))
    assert memory.take_due(at(60), 10) == ()
    upserted(memory, an_agent())
    assert memory.take_due(at(10_000), 10) == ()


def test_a_deadline_is_due_once() -> None:
    memory = a_memory(an_agent(disconnected_at=T0))
    upserted(memory, replace(an_agent(disconnected_at=T0), address="10.0.0.2"))
    assert memory.take_due(at(60), 10) == (("agent", AgentId("agent-1")),)
    assert memory.take_due(at(60), 10) == ()


def test_deadlines_that_keep_moving_do_not_fill_the_memory() -> None:
    memory = a_memory()
    for second in range(10 * STALE_DEADLINES):
        upserted(memory, an_agent(disconnected_at=at(second)))
    assert len(memory._deadlines) <= STALE_DEADLINES + 3
    assert memory.take_due(at(100_000), 10) == (("agent", AgentId("agent-1")),)


# ------------------------------------------------------------------------------------------------------------ faults


async def test_a_command_that_meets_a_bug_is_refused_alone_and_the_master_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        owner = await a_user(engine)
        broken = CreateExperiment(
            owner=owner,
            config={},
            original_config="",
            context_hash="",
            pool=DEFAULT,
            priority=42,
            weight=1.0,
            max_slots=None,
            seed=7,
            activate=True,
        )
        with caplog.at_level(logging.ERROR):
            outcomes = await asyncio.gather(engine.submit(broken), a_user(engine, "bob"), return_exceptions=True)
        assert isinstance(outcomes[0], ResoluteError) and "CreateExperiment cannot be carried out" in str(outcomes[0])
        assert "KeyError" in caplog.text
        assert [user.username for user in engine.state.all(User)] == ["ada", "bob"]
        assert engine.state.all(Experiment) == ()
        digest = engine.memory.digest
    for snapshot in await store.snapshots():
        result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
        assert (result.divergence, result.digest) == (None, digest)


async def test_callers_of_an_engine_that_is_stopped_are_told_so() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        await a_user(engine)
    with pytest.raises(ResoluteError, match="the engine has stopped"):
        await a_user(engine, "late")


# ----------------------------------------------------------------------------------------------------------- journal


def test_the_journal_keeps_numbers_that_json_cannot_spell() -> None:
    (progress,) = decode_commands(journaled([written_down(ReportProgress(trial=TrialId(1), progress=math.nan))[1]]))
    assert isinstance(progress, ReportProgress) and math.isnan(progress.progress)
    (report,) = decode_commands(journaled([written_down(a_report(1, math.inf))[1]]))
    assert isinstance(report, RecordReports)
    assert report.reports[0].validation == {"loss": "Infinity"}


async def test_a_diverged_training_replays() -> None:
    store = MemoryStore()
    async with running(an_engine(store, clock=FixedClock(T0))) as engine:
        await an_experiment(engine, await a_user(engine))
        await engine.submit(a_report(1, math.nan))
        await engine.submit(a_report(2, 0.5))
        await engine.submit(a_report(3, -math.inf))
        (trial,) = engine.state.all(Trial)
        assert trial.best_validation is not None and trial.best_validation.steps_completed == 3
        digest = engine.memory.digest
    for snapshot in await store.snapshots():
        result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
        assert (result.divergence, result.digest) == (None, digest)


# ---------------------------------------------------------------------------------------------------------- removals


async def test_a_removal_that_is_ordered_twice_is_done_once_and_never_asked_for_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    config = {**a_config(), "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path)}}
    (tmp_path / "c1").mkdir()
    (tmp_path / "c1" / "weights").write_text("w")
    async with running(an_engine(store)) as engine:
        access = StorageAccess(rules=HostPathRules(remedy=""))
        removal = CheckpointRemoval(engine, store, access, cluster_id="cluster-1")
        id_, _ = await an_ended_experiment(engine, config, checkpoints=("c1",))
        await engine.submit(DeleteExperiment(experiment=id_))
        await engine.submit(DeleteExperiment(experiment=id_))
        with caplog.at_level(logging.WARNING), engine.watch("experiment", id_) as watch:
            task = asyncio.create_task(removal.run())
            assert await watch.changed(10.0)
            await a_user(engine, "bob")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert not (tmp_path / "c1").exists()
    assert await store.experiment(id_) is None
    assert caplog.text == ""


async def test_a_thousand_deadlines_at_one_moment_are_met_over_several_cycles_and_replay() -> None:
    """The network fails: every agent is given up at the same moment, with what ran on it."""
    store, clock = MemoryStore(), FixedClock(T0)
    lost: list[int] = []
    count = 2 * DUE_A_CYCLE + 5
    async with running(an_engine(store, clock=clock)) as engine:
        owner = await a_user(engine)
        agents = [AgentByHand(engine, f"agent-{n:03}", slots=1) for n in range(count)]
        await asyncio.gather(*(agent.register() for agent in agents))
        await asyncio.gather(*(an_experiment(engine, owner) for _ in agents))
        await engine.submit(Reconsider())
        for agent in agents:
            await engine.submit(LoseAgentLink(agent=agent.id, incarnation=agent.incarnation))
        engine.on_commit(lambda change: lost.append(sum(kind == "agent" for kind, _ in change.deletes)))
        clock.advance(3600.0)
        with engine.watch("", "") as watch:
            await engine.submit(Reconsider())
            while engine.state.all(Agent):
                assert await watch.changed(10.0)
        waiting = [a for a in engine.state.all(Allocation) if a.assigned_at is None]
        assert len(waiting) == count, "all that ran asks for slots again"
    assert [n for n in lost if n] == [DUE_A_CYCLE, DUE_A_CYCLE, 5]
    snapshots = await store.snapshots()
    found = await replay(snapshots[0], store.journal(snapshots[0].sequence), POOLS)
    assert found.divergence is None and found.cycles == engine.memory.sequence
