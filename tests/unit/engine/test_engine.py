"""The only writer: what it promises to those who submit commands."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from resolute.clock import FixedClock
from resolute.errors import AlreadyExists, Conflict, FailedPrecondition, LimitExceeded, NotFound
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState, ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import (
    ActivateExperiment,
    ArchiveExperiment,
    CancelExperiment,
    CreateUser,
    DeleteExperiment,
    KillExperiment,
    LoseAgentLink,
    PauseExperiment,
    RecordRemovedTensorboards,
    RecordReports,
    ReportCheckpoint,
    SetCheckpointResources,
    StoredReport,
)
from resolute_master.domain.effects import KillContainer, RemoveCheckpoint, RemoveTensorboardFiles, StartContainer
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.engine.engine import INBOX_LIMIT, CycleTimes
from resolute_master.engine.replay import replay
from resolute_master.store.memory import MemoryStore
from support.cluster import at
from support.engines import POOLS, AgentByHand, a_config, a_user, an_engine, an_experiment, running
from support.stores import MemoryHome


async def test_a_reply_comes_when_it_is_durable() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        owner = await a_user(engine)
        id_ = await an_experiment(engine, owner)
        stored = await store.experiment(id_)
    assert stored is not None and stored.state is ExperimentState.ACTIVE


async def test_a_full_inbox_refuses_the_next_command_and_keeps_all_it_took() -> None:
    store = MemoryStore()
    engine = an_engine(store)
    await engine.start()
    refused = KillExperiment(experiment=ExperimentId(1))
    waiting = [asyncio.create_task(engine.submit(refused)) for _ in range(INBOX_LIMIT)]
    await asyncio.sleep(0)
    assert engine.waiting_commands == INBOX_LIMIT
    with pytest.raises(LimitExceeded, match=f"inbox holds {INBOX_LIMIT} commands; try again"):
        await asyncio.wait_for(engine.submit(refused), 30)
    cycles = asyncio.create_task(engine.run())
    replies = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(reply) for reply in replies} == {NotFound}, "each was carried out"
    await a_user(engine)
    cycles.cancel()
    await asyncio.gather(cycles, return_exceptions=True)


async def test_a_refused_command_leaves_no_trace_and_no_journal() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        await a_user(engine)
        sequence = engine.memory.sequence
        with pytest.raises(AlreadyExists, match="user 'ada' exists already"):
            await engine.submit(CreateUser(username="ada", password_hash="other"))
        assert engine.memory.sequence == sequence
        assert [u.password_hash for u in engine.state.all(User)] == ["hash"]


async def test_a_refusal_is_freed_with_its_last_reference() -> None:
    """The master collects garbage rarely: an error that holds itself would keep its caller's frames and request for hours."""
    async with running(an_engine(MemoryStore())) as engine:
        await a_user(engine)

        async def refused() -> weakref.ref[BaseException]:
            try:
                await engine.submit(CreateUser(username="ada", password_hash="other"))
            except AlreadyExists as error:
                return weakref.ref(error)
            raise AssertionError("it was carried out")

        gc.disable()
        try:
            kept = await refused()
            await an_experiment(engine, engine.state.all(User)[0].id)  # the engine has its mind on something else
            assert kept() is None
        finally:
            gc.enable()


async def test_commands_of_one_batch_are_refused_one_by_one() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        outcomes = await asyncio.gather(
            *(engine.submit(CreateUser(username=name, password_hash="x")) for name in ("a", "b", "a", "c")),
            return_exceptions=True,
        )
    assert [type(o).__name__ for o in outcomes] == ["int", "int", "AlreadyExists", "int"]


async def test_the_engine_goes_on_where_the_store_stands() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        owner = await a_user(engine)
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, owner, a_config(trials=3))
        placed = {c.id for c in agent.containers()}
        outbox = {e.key for e in engine.outstanding()}
    async with running(an_engine(store, seed=2)) as engine:
        again = AgentByHand(engine)
        assert {e.key for e in engine.outstanding()} == outbox
        assert set(await again.register()) == placed
        while await again.run_all():
            pass
        assert engine.state.all(Allocation) == ()
    stored = await store.experiment(ExperimentId(1))
    assert stored is not None and stored.state is ExperimentState.COMPLETED


async def test_a_start_leaves_the_outbox_with_the_containers_first_report() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, await a_user(engine))
        assert [type(e) for e in engine.outstanding()] == [StartContainer]
        (container,) = agent.containers()
        await agent.report(container, ContainerState.PULLING)
        assert engine.outstanding() == ()


async def test_a_kill_stays_in_the_outbox_until_the_container_has_ended() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        id_ = await an_experiment(engine, await a_user(engine))
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        await engine.submit(KillExperiment(experiment=id_))
        assert [type(e) for e in engine.outstanding()] == [KillContainer]
        await agent.report(container, ContainerState.TERMINATED, Exit(code=137))
        assert engine.outstanding() == ()


async def test_an_older_incarnation_is_fenced() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, await a_user(engine))
        (container,) = agent.containers()
        await agent.restarted().register()
        with pytest.raises(Conflict, match="registered again"):
            await agent.report(container, ContainerState.RUNNING)


async def test_a_container_that_the_agent_had_and_has_no_more_is_restarted_without_counting() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, await a_user(engine))
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        await agent.restarted().register()
        (trial,) = engine.state.all(Trial)
        assert (trial.run_id, trial.restarts) == (2, 0)


async def test_an_agent_out_of_contact_keeps_its_work_for_the_reconnect_wait_and_loses_it_then() -> None:
    clock = FixedClock(at(0))
    async with running(an_engine(MemoryStore(), clock=clock)) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        owner = await a_user(engine)
        await an_experiment(engine, owner)
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        await engine.submit(LoseAgentLink(agent=agent.id, incarnation=agent.incarnation))
        clock.advance(29)
        await a_user(engine, "bob")
        assert len(agent.containers()) == 1
        clock.advance(2)
        await a_user(engine, "cleo")
        (trial,) = engine.state.all(Trial)
        assert (trial.run_id, trial.restarts) == (2, 0)
        assert agent.containers() == ()


async def test_failures_cost_restarts_until_none_is_left() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        id_ = await an_experiment(engine, await a_user(engine), a_config(restarts=2))
        ends = [await agent.run_all(code=1) for _ in range(3)]
        assert ends == [1, 1, 1]
    stored = await store.experiment(id_)
    trials = await store.trial(trial_id) if (trial_id := 1) else None  # type: ignore[arg-type]
    assert stored is not None and stored.state is ExperimentState.ERROR
    assert trials is not None and trials.restarts == 3 and "code 1" in trials.exit_message


async def test_a_paused_experiment_gives_its_slots_back_and_resumes_from_its_checkpoint() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        id_ = await an_experiment(engine, await a_user(engine))
        (allocation,) = engine.state.all(Allocation)
        (container,) = allocation.containers
        await agent.report(container, ContainerState.RUNNING)
        await engine.submit(PauseExperiment(experiment=id_))
        (asked,) = engine.state.all(Allocation)
        assert asked.preempt is not None and "paused" in asked.preempt.reason
        await engine.submit(
            ReportCheckpoint(
                uuid="c1",
                allocation=allocation.id,
                steps_completed=12,
                resources={"w": 3},
                metadata={"steps_completed": 12},
            )
        )
        await agent.report(container, ContainerState.TERMINATED, Exit(code=0))
        # Not acknowledged, so a clean exit is the trial's own end by the contract.
        assert engine.state.all(Allocation) == ()


async def test_reports_of_a_replaced_run_are_refused() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, await a_user(engine), a_config(restarts=5))
        (first,) = engine.state.all(Allocation)
        await agent.run_all(code=1)
        with pytest.raises(Conflict, match="run 1 of trial 1 is over"):
            await engine.submit(
                ReportCheckpoint(uuid="late", allocation=first.id, steps_completed=9, resources={}, metadata={})
            )


async def test_a_validation_is_told_once_and_moves_the_best() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        await an_experiment(engine, await a_user(engine))
        for steps, loss in ((1, 0.5), (2, 0.7), (2, 0.7), (3, 0.2)):
            report = StoredReport(
                trial=engine.state.all(Trial)[0].id,
                run_id=1,
                steps_completed=steps,
                validation={"loss": loss},
                reported_at=at(0),
            )
            await engine.submit(RecordReports(reports=(report,)))
        (trial,) = engine.state.all(Trial)
        assert trial.best_validation is not None and trial.best_validation.metric == 0.2
        assert (trial.searched_steps, trial.steps_completed) == (3, 3)


async def test_a_new_run_counts_its_own_steps() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        await an_experiment(engine, await a_user(engine), a_config(restarts=5))
        told = []
        for run, steps in ((1, 200), (2, 151), (2, 152)):
            if run == 2 and steps == 151:
                await agent.run_all(code=1)
            report = StoredReport(
                trial=engine.state.all(Trial)[0].id,
                run_id=run,
                steps_completed=steps,
                validation=None,
                reported_at=at(0),
            )
            await engine.submit(RecordReports(reports=(report,)))
            told.append(engine.state.all(Trial)[0].steps_completed)
        assert told == [200, 151, 152]


async def test_an_ended_experiment_leaves_the_memory_and_is_taken_up_for_a_command() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        id_ = await an_experiment(engine, await a_user(engine))
        with pytest.raises(FailedPrecondition, match="only an ended experiment"):
            await engine.submit(ArchiveExperiment(experiment=id_, archived=True))
        await engine.submit(CancelExperiment(experiment=id_))
        assert engine.state.all(Experiment) == ()
        await engine.submit(ArchiveExperiment(experiment=id_, archived=True))
        assert engine.state.all(Experiment) == ()
        with pytest.raises(FailedPrecondition, match="CANCELED and cannot become ACTIVE"):
            await engine.submit(ActivateExperiment(experiment=id_))
        with pytest.raises(NotFound, match="experiment '99' not found"):
            await engine.submit(ActivateExperiment(experiment=ExperimentId(99)))
    stored = await store.experiment(id_)
    assert stored is not None and stored.archived


async def test_deletion_removes_checkpoint_files_first_and_rows_last() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        id_ = await an_experiment(engine, await a_user(engine))
        (allocation,) = engine.state.all(Allocation)
        await engine.submit(
            ReportCheckpoint(uuid="c1", allocation=allocation.id, steps_completed=1, resources={"w": 3}, metadata={})
        )
        await agent.run_all()
        await engine.submit(DeleteExperiment(experiment=id_))
        assert [type(e) for e in engine.outstanding()] == [RemoveCheckpoint, RemoveTensorboardFiles]
        assert (await store.experiment(id_)) is not None
        await engine.submit(SetCheckpointResources(uuid="c1", resources={}))
        assert [type(e) for e in engine.outstanding()] == [RemoveTensorboardFiles]
        await engine.submit(RecordRemovedTensorboards(removed_from=id_))
        assert engine.outstanding() == ()
    assert await store.experiment(id_) is None


async def test_watchers_wake_after_commits_that_touch_what_they_watch() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        owner = await a_user(engine)
        with engine.watch("experiment", 1) as mine, engine.watch("experiment", 2) as other:
            await an_experiment(engine, owner)
            assert await mine.changed(1.0)
            assert not await other.changed(0.0)


async def test_a_failed_commit_stops_the_engine_and_tells_everyone() -> None:
    home = MemoryHome()
    store = await home.open()
    assert isinstance(store, MemoryStore)
    engine = an_engine(store)
    await engine.start()
    task = asyncio.create_task(engine.run())
    await a_user(engine)

    async def broken(change: object) -> None:
        raise OSError("no space left on device")

    store.commit = broken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="no space left"):
        await a_user(engine, "bob")
    with pytest.raises(Exception, match="no space left"):
        await a_user(engine, "cleo")
    with pytest.raises(OSError, match="no space left"):
        await task


async def test_a_journal_replays_with_equal_digests_over_restarts() -> None:
    store = MemoryStore()
    for seed in (1, 2, 3):
        async with running(an_engine(store, seed=seed)) as engine:
            owner = await a_user(engine, f"user-{seed}")
            agent = AgentByHand(engine)
            agent.sequence = seed * 1000
            agent.incarnation = f"of master {seed}"
            await agent.register()
            await an_experiment(engine, owner, a_config(trials=3, restarts=1))
            await agent.run_all(code=seed % 2)
            await agent.run_all(code=0)
            digest = engine.memory.digest
    snapshots = await store.snapshots()
    for snapshot in snapshots:
        result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
        assert result.divergence is None
        assert result.digest == digest


async def test_each_cycle_tells_how_long_its_parts_took() -> None:
    told: list[CycleTimes] = []
    engine = an_engine(MemoryStore())
    engine.on_cycle(told.append)
    async with running(engine):
        await a_user(engine)
    assert [(t.commands, t.stored) for t in told][:2] == [(1, True), (1, True)]
    assert all(t.total_s == t.decide_s + t.commit_s + t.publish_s >= 0 for t in told)
    assert engine.waiting_commands == 0
