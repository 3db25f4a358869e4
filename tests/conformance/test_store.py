"""What every store promises, checked on each of them: state, journal, contexts and settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from resolute.errors import Conflict, FailedPrecondition
from resolute.wire.states import AllocationState, CheckpointState, ExperimentState
from resolute_master.domain.change import Decision, Stored, key_of
from resolute_master.domain.effects import KillContainer, RemoveCheckpoint, StartContainer
from resolute_master.domain.ids import (
    AgentId,
    AllocationId,
    ContainerId,
    ExperimentId,
    InstanceId,
    JobId,
    PoolName,
    TaskId,
    TrialId,
)
from resolute_master.store.base import CheckpointQuery, LogQuery, Snapshot, Store
from resolute_provisioner.model import Observed
from support.stores import (
    STORES,
    StoreHome,
    a_belief,
    a_change,
    a_checkpoint,
    a_counter,
    a_job,
    a_line,
    a_mark,
    a_report,
    a_session,
    a_trial,
    a_usage,
    a_user,
    an_account,
    an_agent,
    an_allocation,
    an_entry,
    an_experiment,
    an_instance,
    moment,
    store_home,
)


@pytest.fixture(params=STORES)
async def home(request: pytest.FixtureRequest) -> StoreHome:
    return await store_home(request)


@pytest.fixture
async def store(home: StoreHome) -> AsyncIterator[Store]:
    store = await home.open()
    yield store
    await store.close()


def keys(stored: Stored) -> set[object]:
    return {key_of(entity) for entity in stored.entities}


START_EFFECT = StartContainer(container=ContainerId("c1"), allocation=AllocationId("a.1"), agent=AgentId("agent-1"))
KILL_EFFECT = KillContainer(
    container=ContainerId("c1"), allocation=AllocationId("a.1"), agent=AgentId("agent-1"), grace_s=2.5
)
REMOVE_EFFECT = RemoveCheckpoint(uuid="uuid-1", experiment=ExperimentId(1))


# -------------------------------------------------------------------------------------------------- commit and load


async def test_an_empty_store_has_nothing_and_stands_at_zero(store: Store) -> None:
    assert await store.load() == Stored(sequence=0, digest="", entities=(), outbox=())


async def test_every_kind_of_entity_comes_back_as_it_went_in(store: Store) -> None:
    entities = (
        an_experiment(1, labels=("a", "b"), best_validation=0.25),
        a_trial(1),
        a_job(1),
        an_allocation(agents=("agent-1", "agent-2"), ports={"c10d": 1734}),
        an_agent(),
        an_instance(gangs=("g",)),
        a_checkpoint(),
        a_user(),
        a_session(),
        a_counter(),
        a_belief(),
        a_usage(),
        an_account(),
    )
    await store.commit(a_change(1, upserts=entities))
    loaded = await store.load()
    assert loaded.sequence == 1
    assert loaded.digest == "digest-1"
    assert loaded.entities == entities


async def test_a_later_value_replaces_the_earlier_one_also_inside_one_change(store: Store) -> None:
    await store.commit(a_change(1, upserts=(a_counter(value=1), a_counter(value=2))))
    assert (await store.load()).entities == (a_counter(value=2),)
    await store.commit(a_change(2, upserts=(a_counter(value=3),)))
    assert (await store.load()).entities == (a_counter(value=3),)


async def test_what_was_loaded_is_not_shared_with_the_store(store: Store) -> None:
    config = {"searcher": {"metric": "loss"}}
    await store.commit(a_change(1, upserts=(an_experiment(1, config=config),)))
    config["searcher"]["metric"] = "changed by the writer"
    first = await store.experiment(ExperimentId(1))
    assert first is not None
    first.config["searcher"]["metric"] = "changed by a reader"
    second = await store.experiment(ExperimentId(1))
    assert second is not None
    assert second.config == {"searcher": {"metric": "loss"}}


async def test_load_leaves_out_what_is_over(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                an_experiment(1, state=ExperimentState.STOPPING_KILLED),
                an_experiment(2, state=ExperimentState.COMPLETED),
                an_experiment(3, state=ExperimentState.DELETING),
                an_experiment(4, state=ExperimentState.DELETE_FAILED),
                an_experiment(5, state=ExperimentState.PAUSED),
                *(a_job(n) for n in (1, 2, 3, 4, 5)),
                a_job(None, id="interactive"),
                a_job(None, id="interactive-over", ended=True),
                *(a_trial(10 + n, experiment=n, state=ExperimentState.COMPLETED) for n in (1, 2, 3, 4, 5)),
                *(a_checkpoint(f"uuid-{n}", trial=10 + n, experiment=n) for n in (1, 2, 3, 4, 5)),
                a_checkpoint("uuid-deleted", trial=11, experiment=1, state=CheckpointState.DELETED),
                an_allocation("1.r.1", state=AllocationState.TERMINATED),
                an_allocation("1.r.2", state=AllocationState.TERMINATING),
                an_instance("instance-gone", observed=Observed.GONE),
                an_instance("instance-stopping", observed=Observed.STOPPING),
            ),
        )
    )
    assert keys(await store.load()) == {
        *(1, 3, 5),
        *("job-1", "job-3", "job-5", "interactive"),
        *(11, 13, 15),
        *("uuid-1", "uuid-3", "uuid-5", "uuid-deleted"),
        "1.r.2",
        "instance-stopping",
    }


async def test_one_experiment_can_be_taken_up_again(store: Store) -> None:
    gone = an_experiment(2, state=ExperimentState.COMPLETED)
    parts = (gone, a_trial(3, experiment=2), a_trial(4, experiment=2), a_job(2), a_checkpoint("u", 3, 2))
    await store.commit(a_change(1, upserts=(*parts, an_experiment(1), a_job(1), a_trial(1), a_checkpoint("v"))))
    assert await store.experiment_entities(ExperimentId(2)) == parts
    assert await store.experiment_entities(ExperimentId(9)) == ()


async def test_deleted_rows_are_forgotten_with_what_hangs_on_them(store: Store) -> None:
    trial = a_trial(1)
    await store.commit(
        a_change(
            1,
            upserts=(an_experiment(1, labels=("x",)), trial, an_allocation(agents=("agent-1",)), a_counter()),
            logs=(a_line("mine", task_id=trial.task_id), a_line("other")),
        )
    )
    await store.append_metrics([a_report(1), a_report(1, trial_id=TrialId(2))])
    await store.append_step_marks([a_mark(1), a_mark(1, allocation="other.1")])
    deletes = (("experiment", 1), ("trial", 1), ("allocation", "1.request-1.1"), ("counter", "experiment"))
    await store.commit(a_change(2, deletes=(*deletes, ("user", 77))))
    assert (await store.load()).entities == ()
    assert await store.metrics(TrialId(1)) == ()
    assert len(await store.metrics(TrialId(2))) == 1
    lines = await store.logs(LogQuery(task_ids=(trial.task_id, TaskId("task"))))
    assert [line.key for line in lines] == ["other"]
    assert await store.allocations_on_agents(["agent-1"]) == ()
    marks = await store.step_marks([AllocationId("1.request-1.1"), AllocationId("other.1")])
    assert marks == (a_mark(1, allocation="other.1"),)
    # What was deleted may come again, and stands on its own then.
    await store.commit(a_change(3, upserts=(trial,), logs=(a_line("mine", task_id=trial.task_id),)))
    assert (await store.append_metrics([a_report(1)])) == ("stored",)
    assert len(await store.logs(LogQuery(task_ids=(trial.task_id,)))) == 1


async def test_deleting_wins_over_storing_in_one_change(store: Store) -> None:
    await store.commit(a_change(1, upserts=(a_counter(),), deletes=(("counter", "experiment"),)))
    assert (await store.load()).entities == ()


@pytest.mark.parametrize("sequence", [0, 1, 3, 9])
async def test_a_change_that_does_not_follow_the_last_one_is_refused_and_leaves_nothing(
    store: Store, sequence: int
) -> None:
    await store.commit(a_change(1, upserts=(a_counter(value=1),)))
    with pytest.raises(Conflict, match="another master"):
        await store.commit(
            a_change(sequence, upserts=(a_counter(value=9),), outbox_added=(START_EFFECT,), logs=(a_line("k"),))
        )
    assert await store.load() == Stored(sequence=1, digest="digest-1", entities=(a_counter(value=1),), outbox=())
    assert await store.logs(LogQuery(task_ids=(TaskId("task"),))) == ()
    await store.commit(a_change(2))


async def test_a_change_that_cannot_be_written_leaves_nothing(store: Store) -> None:
    with pytest.raises(Exception, match="object"):
        await store.commit(
            a_change(1, upserts=(a_counter(), an_experiment(1, config={"x": object()})), logs=(a_line("k"),))
        )
    assert await store.load() == Stored(sequence=0, digest="")
    assert await store.logs(LogQuery(task_ids=(TaskId("task"),))) == ()
    await store.commit(a_change(1))


async def test_the_outbox_keeps_the_order_and_the_first_of_equal_keys(store: Store) -> None:
    await store.commit(a_change(1, outbox_added=(START_EFFECT, KILL_EFFECT)))
    again = KillContainer(container=ContainerId("c1"), allocation=AllocationId("a.1"), agent=AgentId("agent-1"))
    assert again.key == KILL_EFFECT.key and again != KILL_EFFECT
    await store.commit(a_change(2, outbox_added=(again, REMOVE_EFFECT)))
    assert (await store.load()).outbox == (START_EFFECT, KILL_EFFECT, REMOVE_EFFECT)
    await store.commit(a_change(3, outbox_removed=(START_EFFECT.key, "unknown")))
    assert (await store.load()).outbox == (KILL_EFFECT, REMOVE_EFFECT)
    await store.commit(a_change(4, outbox_removed=(KILL_EFFECT.key,), outbox_added=(again,)))
    assert (await store.load()).outbox == (REMOVE_EFFECT, again)


async def test_all_of_it_is_there_after_opening_again(home: StoreHome) -> None:
    store = await home.open()
    await store.commit(a_change(1, upserts=(an_experiment(1),), outbox_added=(START_EFFECT,), logs=(a_line("k"),)))
    await store.append_metrics([a_report(1)])
    await store.put_context("hash", b"archive")
    await store.put_setting("cluster_id", "c")
    before = await store.load()
    await store.close()

    store = await home.open()
    assert await store.load() == before
    assert len(await store.metrics(TrialId(1))) == 1
    assert len(await store.logs(LogQuery(task_ids=(TaskId("task"),)))) == 1
    assert await store.get_context("hash") == b"archive"
    assert await store.setting("cluster_id") == "c"
    await store.close()


async def test_a_closed_store_says_so(home: StoreHome) -> None:
    store = await home.open()
    await store.ping()
    await store.close()
    with pytest.raises(FailedPrecondition, match="closed"):
        await store.commit(a_change(1))
    with pytest.raises(FailedPrecondition, match="closed"):
        await store.ping()


async def test_only_one_of_two_commits_of_the_same_sequence_is_stored(store: Store) -> None:
    outcomes = await asyncio.gather(
        *(store.commit(a_change(1, upserts=(a_counter(value=n),))) for n in range(8)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes].count(Conflict) == 7
    assert outcomes.count(None) == 1
    winner = outcomes.index(None)
    assert (await store.load()).entities == (a_counter(value=winner),)


async def test_odd_characters_do_not_fail_a_commit(store: Store) -> None:
    odd = "half \ud83d nul \x00 whole \U0001f600 ä"
    decision = Decision(at=moment(0), pool="p", kind="notice", subject="s", reason=odd)
    await store.commit(
        a_change(
            1,
            upserts=(an_experiment(1, name=odd, labels=(odd,), notes=odd),),
            logs=(a_line("k", log=odd, source=odd),),
            decisions=(decision,),
        )
    )
    stored = "half ? nul \ufffd whole \U0001f600 ä"
    experiment = await store.experiment(ExperimentId(1))
    assert experiment is not None and experiment.name == "half ? nul \x00 whole \U0001f600 ä"
    (line,) = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert (line.log, line.source) == ("half ? nul \x00 whole \U0001f600 ä", stored)
    assert (await store.decisions(1))[0].reason == stored


async def test_numbers_that_json_cannot_spell_survive_in_the_state(store: Store) -> None:
    await store.commit(a_change(1, upserts=(an_experiment(1, best_validation=float("-inf"), progress=1),)))
    experiment = await store.experiment(ExperimentId(1))
    assert experiment is not None
    assert experiment.best_validation == float("-inf")
    assert isinstance(experiment.progress, float)


async def test_times_come_back_exact_and_in_utc(store: Store) -> None:
    at = moment(0.000001)
    await store.commit(a_change(1, upserts=(an_experiment(1, started_at=at),), logs=(a_line("k", at=at),)))
    experiment = await store.experiment(ExperimentId(1))
    assert experiment is not None
    (line,) = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
    assert experiment.started_at == line.at == at
    assert experiment.started_at.tzinfo == line.at.tzinfo == UTC


# -------------------------------------------------------------------------------------------- journal and snapshots


async def journal_sequences(store: Store, after: int) -> list[int]:
    return [entry.sequence async for entry in store.journal(after)]


async def test_the_journal_comes_back_in_order_and_from_where_it_is_asked(store: Store) -> None:
    for sequence in range(1, 6):
        await store.commit(a_change(sequence))
    entries = [entry async for entry in store.journal(0)]
    assert entries == [an_entry(sequence) for sequence in range(1, 6)]
    assert await journal_sequences(store, 3) == [4, 5]
    assert await journal_sequences(store, 5) == []


async def test_a_long_journal_is_read_to_its_end(store: Store) -> None:
    for sequence in range(1, 431):
        await store.commit(a_change(sequence))
    assert await journal_sequences(store, 7) == list(range(8, 431))


def a_snapshot(sequence: int) -> Snapshot:
    return Snapshot(sequence=sequence, digest=f"digest-{sequence}", body=b"\x00state %d" % sequence)


async def test_snapshots_beyond_the_retained_ones_go_with_the_journal_before_them(store: Store) -> None:
    for sequence in range(1, 10):
        await store.commit(a_change(sequence))
        if sequence % 3 == 0:
            await store.save_snapshot(a_snapshot(sequence), retain=1)
    assert await store.snapshots() == (a_snapshot(6), a_snapshot(9))
    assert await journal_sequences(store, 6) == [7, 8, 9]
    assert min(await journal_sequences(store, 0)) >= 6


async def test_pruning_everything_keeps_where_the_journal_stands(home: StoreHome) -> None:
    store = await home.open()
    await store.commit(a_change(1))
    await store.commit(a_change(2))
    await store.save_snapshot(a_snapshot(1), retain=0)
    await store.save_snapshot(a_snapshot(2), retain=0)
    assert await store.snapshots() == (a_snapshot(2),)
    await store.close()
    store = await home.open()
    loaded = await store.load()
    assert (loaded.sequence, loaded.digest) == (2, "digest-2")
    await store.commit(a_change(3))
    await store.close()


async def test_a_snapshot_of_the_same_change_replaces_the_first(store: Store) -> None:
    await store.commit(a_change(1))
    await store.save_snapshot(a_snapshot(1), retain=2)
    newer = Snapshot(sequence=1, digest="digest-1", body=b"other")
    await store.save_snapshot(newer, retain=2)
    assert await store.snapshots() == (newer,)


async def test_a_snapshot_of_the_future_is_refused(store: Store) -> None:
    await store.commit(a_change(1))
    with pytest.raises(Conflict, match="change 2"):
        await store.save_snapshot(a_snapshot(2), retain=0)
    assert await store.snapshots() == ()
    assert await journal_sequences(store, 0) == [1]


# ------------------------------------------------------------------------------------- single things and short lists


async def test_single_things_are_found_by_their_key(store: Store) -> None:
    await store.commit(a_change(1, upserts=(an_experiment(1), a_trial(2), a_checkpoint("u"), an_allocation("1.r.1"))))
    assert await store.experiment(ExperimentId(1)) == an_experiment(1)
    assert await store.trial(TrialId(2)) == a_trial(2)
    assert await store.checkpoint("u") == a_checkpoint("u")
    assert await store.allocation(AllocationId("1.r.1")) == an_allocation("1.r.1")
    assert await store.experiment(ExperimentId(2)) is None
    assert await store.trial(TrialId(1)) is None
    assert await store.checkpoint("x") is None
    assert await store.allocation(AllocationId("1.r.2")) is None


async def test_allocations_of_a_task_are_listed_by_attempt(store: Store) -> None:
    numbers = (10, 2, 1, 11)
    await store.commit(a_change(1, upserts=tuple(an_allocation(f"1.r.{n}") for n in numbers)))
    await store.commit(a_change(2, upserts=(an_allocation("1.other.1"),)))
    found = await store.allocations_of_task(TaskId("1.r"))
    assert [allocation.id for allocation in found] == ["1.r.1", "1.r.2", "1.r.10", "1.r.11"]
    assert await store.allocations_of_task(TaskId("1")) == ()


async def test_allocations_on_agents_include_ended_ones_and_agents_of_the_past(store: Store) -> None:
    ended = {"state": AllocationState.TERMINATED}
    await store.commit(
        a_change(
            1,
            upserts=(
                an_allocation("1.r.1", agents=("agent-1", "agent-2"), assigned_at=moment(5)),
                an_allocation("1.r.2", agents=("agent-2",), assigned_at=moment(3), **ended),
                an_allocation("1.r.3", agents=("agent-3",), assigned_at=moment(1)),
                an_allocation("1.r.4"),
            ),
        )
    )
    await store.commit(a_change(2, upserts=(an_allocation("1.r.1", agents=("agent-2",), assigned_at=moment(5)),)))
    found = [a.id for a in await store.allocations_on_agents(["agent-2", "agent-1"])]
    assert found == ["1.r.2", "1.r.1"]
    assert [a.id for a in await store.allocations_on_agents(["agent-1"])] == ["1.r.1"]
    assert await store.allocations_on_agents([]) == ()


async def test_the_newest_ended_allocations_of_a_pool_come_first_and_those_that_never_had_slots_do_not(
    store: Store,
) -> None:
    over = {"state": AllocationState.TERMINATED, "agents": ("agent-1",)}
    await store.commit(
        a_change(
            1,
            upserts=(
                an_allocation("1.r.1", assigned_at=moment(0), ended_at=moment(10), **over),
                an_allocation("1.r.2", assigned_at=moment(1), ended_at=moment(30), **over),
                an_allocation("1.r.3", assigned_at=moment(2), ended_at=moment(20), **over),
                an_allocation("1.r.4", state=AllocationState.TERMINATED, ended_at=moment(40)),
                an_allocation("1.r.5", agents=("agent-1",), assigned_at=moment(3)),
                an_allocation("1.b.1", pool=PoolName("busy"), assigned_at=moment(1), ended_at=moment(50), **over),
            ),
        )
    )
    pool = PoolName("default")
    assert [a.id for a in await store.ended_allocations(pool, 10)] == ["1.r.2", "1.r.3", "1.r.1"]
    assert [a.id for a in await store.ended_allocations(pool, 2)] == ["1.r.2", "1.r.3"]
    assert [a.id for a in await store.ended_allocations(PoolName("busy"), 2)] == ["1.b.1"]
    assert await store.ended_allocations(PoolName("elsewhere"), 2) == ()


async def test_allocations_on_agents_can_be_asked_for_between_two_moments(store: Store) -> None:
    ended = {"state": AllocationState.TERMINATED, "agents": ("agent-1",)}
    await store.commit(
        a_change(
            1,
            upserts=(
                an_allocation("1.r.1", assigned_at=moment(0), ended_at=moment(10), **ended),
                an_allocation("1.r.2", assigned_at=moment(10), ended_at=moment(20), **ended),
                an_allocation("1.r.3", agents=("agent-1",), assigned_at=moment(20)),
            ),
        )
    )

    async def found(**window: datetime) -> list[str]:
        return [a.id for a in await store.allocations_on_agents(["agent-1"], **window)]

    assert await found(since=moment(10)) == ["1.r.2", "1.r.3"]
    assert await found(since=moment(9), until=moment(20)) == ["1.r.1", "1.r.2"]
    assert await found(until=moment(0)) == []
    assert [a.id for a in await store.attempts_of_tasks([TaskId("1.r"), TaskId("other")])] == [
        "1.r.1",
        "1.r.2",
        "1.r.3",
    ]


async def test_instances_can_be_asked_for_between_two_moments(store: Store) -> None:
    gone = {"observed": Observed.GONE}
    await store.commit(
        a_change(
            1,
            upserts=(
                an_instance("i-1", requested_at=moment(0), paid_from=moment(1), paid_until=moment(10), **gone),
                an_instance("i-2", requested_at=moment(0), refused="none left", **gone),
                an_instance("i-3", requested_at=moment(5), paid_from=moment(6)),
            ),
        )
    )
    assert [i.id for i in await store.instances(since=moment(9))] == ["i-1", "i-3"]
    assert [i.id for i in await store.instances(since=moment(10))] == ["i-3"]
    assert [i.id for i in await store.instances(until=moment(5))] == ["i-1", "i-2"]


async def test_jobs_are_given_by_id_ended_or_not(store: Store) -> None:
    await store.commit(a_change(1, upserts=(a_job(2, ended=True), a_job(1), a_job(3))))
    assert [job.id for job in await store.jobs([JobId("job-2"), JobId("job-1"), JobId("nobody")])] == ["job-1", "job-2"]


async def test_the_marks_that_tell_are_the_first_the_last_and_those_around_a_step(store: Store) -> None:
    await store.append_step_marks([a_mark(n, 10 * n, "1.r.1") for n in range(20)])
    await store.append_step_marks([a_mark(1, 5, "1.r.2")])

    async def told(**steps: int) -> list[tuple[str, int]]:
        asked = {AllocationId(f"1.r.{name[1:]}"): count for name, count in steps.items()}
        return [(mark.allocation_id, mark.steps_completed) for mark in await store.relevant_marks(asked)]

    assert await told(r1=55) == [("1.r.1", 0), ("1.r.1", 50), ("1.r.1", 60), ("1.r.1", 190)]
    assert await told(r1=60) == [("1.r.1", 0), ("1.r.1", 50), ("1.r.1", 60), ("1.r.1", 190)]
    assert await told(r1=0) == [("1.r.1", 0), ("1.r.1", 190)]
    assert await told(r1=2**62, r2=7, r3=1) == [("1.r.1", 0), ("1.r.1", 190), ("1.r.2", 5)]
    assert await told() == []


async def test_instances_are_all_listed_by_request_time(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                an_instance("b", requested_at=moment(2)),
                an_instance("c", requested_at=moment(1), observed=Observed.GONE),
                an_instance("a", requested_at=moment(2)),
            ),
        )
    )
    assert [instance.id for instance in await store.instances()] == ["c", "a", "b"]


async def test_an_instance_is_read_by_its_id_also_when_it_is_over(store: Store) -> None:
    over, living = an_instance("a", observed=Observed.GONE), an_instance("b")
    await store.commit(a_change(1, upserts=(over, living)))
    assert (await store.instance(over.id), await store.instance(living.id)) == (over, living)
    assert await store.instance(InstanceId("c")) is None


async def test_the_newest_decisions_are_listed_oldest_first(store: Store) -> None:
    made = [
        Decision(at=moment(n), pool=PoolName("p"), kind="place", subject=f"s{n}", reason="it fits") for n in range(5)
    ]
    await store.commit(a_change(1, decisions=tuple(made[:3])))
    await store.commit(a_change(2, decisions=tuple(made[3:])))
    assert await store.decisions(3) == tuple(made[2:])
    assert await store.decisions(99) == tuple(made)
    assert await store.decisions(0) == ()


async def test_checkpoints_are_filtered_and_sorted(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                a_checkpoint("c", trial=2, steps_completed=5),
                a_checkpoint("b", trial=1, steps_completed=20),
                a_checkpoint("a", trial=1, steps_completed=20),
                a_checkpoint("d", trial=1, steps_completed=3),
                a_checkpoint("gone", trial=1, state=CheckpointState.DELETED),
                a_checkpoint("bad", trial=2, state=CheckpointState.ERROR),
                a_checkpoint("elsewhere", trial=9, experiment=2),
            ),
        )
    )

    async def uuids(**filters: object) -> list[str]:
        return [c.uuid for c in await store.checkpoints(CheckpointQuery(**filters))]  # type: ignore[arg-type]

    assert await uuids(experiment_id=1) == ["d", "a", "b", "c", "bad"]
    assert await uuids(trial_id=2) == ["c", "bad"]
    assert await uuids(experiment_id=1, trial_id=9) == []
    assert await uuids(experiment_id=1, states=(CheckpointState.DELETED,)) == ["gone"]
    assert await uuids(experiment_id=1, states=(CheckpointState.DELETED, CheckpointState.ERROR)) == ["gone", "bad"]
    assert await uuids() == ["d", "a", "b", "c", "bad", "elsewhere"]
    assert await uuids(experiment_id=1, most=2) == ["a", "b"]
    assert await uuids(experiment_id=1, most=3) == ["a", "b", "bad"]


# -------------------------------------------------------------------------------------------- contexts and settings


async def test_contexts_are_kept_under_their_hash(store: Store) -> None:
    archive = bytes(range(256)) * 5000
    await store.put_context("hash", archive)
    await store.put_context("hash", archive)
    await store.put_context("empty", b"")
    assert await store.get_context("hash") == archive
    assert await store.get_context("empty") == b""
    assert await store.get_context("unknown") is None


async def test_settings_hold_json_values(store: Store) -> None:
    value = {"key": [1, 2.5, None, True, "ä"]}
    await store.put_setting("a", value)
    assert await store.setting("a") == value
    await store.put_setting("a", "other")
    assert await store.setting("a") == "other"
    assert await store.setting("b") is None


async def test_archives_that_no_experiment_names_can_be_removed(store: Store) -> None:
    for digest in ("used", "unused", "never"):
        await store.put_context(digest, digest.encode())
    await store.commit(a_change(1, upserts=(an_experiment(1, context_hash="used"),)))
    assert await store.remove_unused_contexts() == 2
    assert [await store.get_context(digest) for digest in ("used", "unused", "never")] == [b"used", None, None]
    assert await store.remove_unused_contexts() == 0
