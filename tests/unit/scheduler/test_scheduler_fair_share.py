"""Fair share in pools small enough to count on one's fingers."""

from __future__ import annotations

import gc
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.plan import HoldKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.sorted_map import Meter
from resolute_master.scheduler.supply import AvailableOffer, Supply
from support.pools import NOW, a_job, a_policy, an_agent, at_rest, elastic, gone, on, waiting


def a_pool(slots: int, jobs: list[Job], work: list[Allocation], *, agents: int = 1, **policy: Any) -> PoolSnapshot:
    return PoolSnapshot.build(
        a_policy(scheduler=SchedulerKind.FAIR_SHARE, **policy),
        [an_agent(f"a{n}", slots) for n in range(agents)],
        jobs,
        work,
        now=NOW,
    )


def tasks(job: str, count: int, slots: int = 1, **changes: Any) -> list[Allocation]:
    return [waiting(f"{job}-{n:03}", job, slots, second=n, **changes) for n in range(count)]


def held(snapshot: PoolSnapshot) -> dict[str, int]:
    return dict(snapshot.job_slots.items())


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((1.0, 1.0), {"a": 4, "b": 4}), ((3.0, 1.0), {"a": 6, "b": 2}), ((1.0, 3.0), {"a": 2, "b": 6})],
)
def test_slots_are_shared_by_weight(weights: tuple[float, float], expected: dict[str, int]) -> None:
    jobs = [a_job("a", weight=weights[0]), a_job("b", weight=weights[1], second=1)]
    assert held(at_rest(a_pool(8, jobs, tasks("a", 10) + tasks("b", 30)))) == expected


def test_a_newcomer_gets_its_share_from_who_holds_everything() -> None:
    first = at_rest(a_pool(8, [a_job("a")], tasks("a", 20)))
    assert held(first) == {"a": 8}
    both = first.after(a_job("b", second=5))
    for task in tasks("b", 20):
        both = both.after(task)
    plan = schedule(both)
    assert len(plan.preempt) == 4
    assert held(at_rest(both)) == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    "policy", [{}, {"hierarchical_shares": True}, {"scheduler": SchedulerKind.PRIORITY, "preemption": True}]
)
def test_a_pass_is_freed_with_its_last_reference(policy: dict[str, Any]) -> None:
    """The master collects garbage rarely: what holds itself would keep all that a pass has looked at."""
    policy = {"scheduler": SchedulerKind.FAIR_SHARE, **policy}
    jobs = [a_job("a"), a_job("b", second=5, priority=1, owner=UserId(2))]
    full = at_rest(PoolSnapshot.build(a_policy(**policy), [an_agent("a0", 8)], jobs, tasks("a", 20), now=NOW))
    for task in tasks("b", 20):
        full = full.after(task)
    assert schedule(full).preempt
    gc.collect()
    gc.disable()
    try:
        schedule(full)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_what_one_does_not_want_goes_to_the_others() -> None:
    jobs = [a_job("a"), a_job("b"), a_job("c")]
    assert held(at_rest(a_pool(9, jobs, tasks("a", 1) + tasks("b", 20) + tasks("c", 20)))) == {"a": 1, "b": 4, "c": 4}


def test_a_cap_binds_and_the_rest_is_shared() -> None:
    jobs = [a_job("a", max_slots=2), a_job("b")]
    assert held(at_rest(a_pool(8, jobs, tasks("a", 20) + tasks("b", 20)))) == {"a": 2, "b": 6}


@pytest.mark.parametrize("scheduler", [SchedulerKind.FAIR_SHARE, SchedulerKind.PRIORITY])
def test_a_cap_below_what_runs_holds_up_slots_only(scheduler: SchedulerKind) -> None:
    running, job = on(waiting("runs", "a", 4), {"a0": (0, 1, 2, 3)}), a_job("a", max_slots=2)
    work = [running, waiting("slots", "a", 1, second=1), waiting("none", "a", 0, second=2)]
    pool = PoolSnapshot.build(a_policy(scheduler=scheduler), [an_agent("a0", 8)], [job], work, now=NOW)
    plan = schedule(pool)
    assert [p.allocation for p in plan.place] == ["none.1"] and not plan.preempt
    assert "max_slots allows 2" in explain(pool.after(gone(work[2])), job.id).reason


@pytest.mark.parametrize(("lasting", "leaves"), [(6, False), (7, True)])
def test_agents_of_several_sizes_are_emptied_only_by_who_is_richer_without_all_of_them(
    lasting: int, leaves: bool
) -> None:
    """With 13 slots the richer job could give up any of its three tasks to a gang of 7, and not all three."""
    sizes = {"a4": 4, "a2": 2, "a1": 1, "b": 7}
    policy = a_policy(scheduler=SchedulerKind.FAIR_SHARE, heterogeneous_fits=True)
    running = [on(waiting(f"r{n}", "rich", n), {f"a{n}": tuple(range(n))}) for n in (4, 2, 1)]
    stubborn = [on(task, {"b": (n,)}) for n, task in enumerate(tasks("rich", lasting, preemptible=False))]
    other = [on(waiting("other", "other"), {"b": (6,)})] if lasting < 7 else []
    agents = [an_agent(name, size) for name, size in sizes.items()]
    jobs = [a_job("rich"), a_job("poor"), a_job("other")]
    work = [*running, *stubborn, *other, waiting("gang", "poor", 7)]
    plan = schedule(PoolSnapshot.build(policy, agents, jobs, work, now=NOW))
    assert len(plan.preempt) == (3 if leaves else 0)


def test_what_cannot_be_preempted_counts_for_its_job() -> None:
    stubborn = [on(task, {"a0": (n,)}) for n, task in enumerate(tasks("a", 6, preemptible=False))]
    pool = at_rest(a_pool(8, [a_job("a"), a_job("b")], [*stubborn, *tasks("b", 20), *tasks("a", 0)]))
    assert held(pool) == {"a": 6, "b": 2}


def test_among_equals_who_waited_longest_goes_first() -> None:
    jobs = [a_job("a"), a_job("b"), a_job("c")]
    work = [waiting("a", "a", second=3), waiting("b", "b", second=1), waiting("c", "c", second=2)]
    plan = schedule(a_pool(2, jobs, work))
    assert [p.allocation for p in plan.place] == ["b.1", "c.1"]


@pytest.mark.parametrize("never", [{"slots": 2, "max_slots": 1}, {"slots": 9, "max_slots": None}])
def test_infeasible_work_is_never_the_next_of_its_group(never: dict[str, int | None]) -> None:
    """It has waited longest of all, and gave all others of its workspace their turn before another workspace had its own:
    whose gang never found its agents free, however long it had waited."""
    jobs = [
        a_job("never", max_slots=never["max_slots"]),
        a_job("small", owner=UserId(2)),
        a_job("gang", owner=UserId(3), workspace_id=2),
    ]
    oldest = waiting("never", "never", never["slots"] or 0, second=0)
    stream = [waiting(f"s{n}", "small", second=2 + n) for n in range(9)]
    pool = a_pool(2, jobs, [oldest, *stream, waiting("gang", "gang", 2, second=1)], hierarchical_shares=True)
    assert [p.allocation for p in schedule(pool).place] == ["gang.1"]
    newer = a_pool(2, jobs, [oldest, *stream, waiting("gang", "gang", 2, second=3)], hierarchical_shares=True)
    assert [p.allocation for p in schedule(newer).place] == ["s0.1"]


def test_more_jobs_than_slots_leave_nobody_in_vain() -> None:
    jobs = [a_job(f"j{n:02}", second=n) for n in range(20)]
    work = [task for job in jobs for task in tasks(job.id, 3)]
    pool = at_rest(a_pool(4, jobs, work, agents=2))
    assert sorted(held(pool).values()) == [1] * 8


def test_a_gang_larger_than_its_share_starts_although_small_ones_keep_coming() -> None:
    """A newer small one does not take what has become free for it."""
    jobs = [a_job("gang", second=0), a_job("small", second=1)]
    running = [on(task, {"a0": (n,)}) for n, task in enumerate(tasks("small", 8))]
    more = tasks("small", 4)
    pool = a_pool(
        8, jobs, [*running, *(waiting(f"more-{t.task_id}", "small") for t in more), waiting("gang", "gang", 8)]
    )
    for ended in running:
        plan = schedule(pool)
        assert not plan.place and not plan.preempt
        assert [(h.allocation, h.kind) for h in plan.holds] == [("gang.1", HoldKind.RUNNING)]
        pool = pool.after(gone(ended))
    assert [p.allocation for p in schedule(pool).place] == ["gang.1"]


def test_with_hierarchical_shares_splitting_work_wins_nothing() -> None:
    jobs = [a_job("one", owner=UserId(1)), *(a_job(f"many{n}", owner=UserId(2)) for n in range(4))]
    work = [task for job in jobs for task in tasks(job.id, 10)]
    by_user = Counter[int]()
    pool = at_rest(a_pool(8, jobs, work, hierarchical_shares=True))
    for job in jobs:
        by_user[job.owner] += pool.job_slots.get(job.id) or 0
    assert by_user == {1: 4, 2: 4}
    assert held(at_rest(a_pool(10, jobs, work))) == {job.id: 2 for job in jobs}, "without them it wins"


def test_workspaces_come_before_users() -> None:
    jobs = [
        a_job("a", workspace_id=1, owner=UserId(1)),
        a_job("b", workspace_id=2, owner=UserId(1)),
        a_job("c", workspace_id=2, owner=UserId(2)),
    ]
    work = [task for job in jobs for task in tasks(job.id, 10)]
    assert held(at_rest(a_pool(8, jobs, work, hierarchical_shares=True))) == {"a": 4, "b": 2, "c": 2}


def test_what_has_just_begun_is_spared_until_its_time_has_come() -> None:
    begun = 3600.0 - 60.0
    running = [on(task, {"a0": (n,)}, second=begun) for n, task in enumerate(tasks("a", 8))]
    pool = a_pool(8, [a_job("a"), a_job("b")], [*running, *tasks("b", 8)], min_runtime_s=300.0)
    plan = schedule(pool)
    assert not plan.preempt
    assert plan.revisit_at == NOW + timedelta(seconds=240)
    assert len(schedule(pool.at(plan.revisit_at)).preempt) == 4


def test_who_has_just_come_waits_out_the_grace() -> None:
    running = [on(task, {"a0": (n,)}) for n, task in enumerate(tasks("a", 8))]
    newcomer = waiting("b", "b", second=3600.0 - 10.0)
    pool = a_pool(8, [a_job("a"), a_job("b")], [*running, newcomer], preemption_grace_s=30.0)
    plan = schedule(pool)
    assert not plan.preempt
    assert plan.revisit_at == NOW + timedelta(seconds=20)
    assert [p.for_allocation for p in schedule(pool.at(plan.revisit_at)).preempt] == ["b.1"]


def test_work_without_slots_is_not_divided() -> None:
    jobs = [a_job("a"), a_job("b")]
    plan = schedule(a_pool(1, jobs, tasks("a", 3, 0) + tasks("b", 1), max_aux_containers_per_agent=2))
    assert sorted(p.allocation for p in plan.place) == ["a-000.1", "a-001.1", "b-000.1"]


def test_the_reason_for_a_preemption_names_what_both_hold() -> None:
    running = [on(task, {"a0": (n,)}) for n, task in enumerate(tasks("a", 8))]
    pool = a_pool(8, [a_job("a", weight=2.0), a_job("b")], [*running, waiting("b", "b")])
    (preemption,) = schedule(pool).preempt
    assert preemption.reason == ("its slots go to b.1, whose job b holds 0 slot(s) at weight 1, against 8 at weight 2")
    assert "Its job holds 0 slot(s) at weight 1" in " ".join(explain(pool, a_job("b").id).details)


def test_machines_are_bought_in_the_order_in_which_they_are_served() -> None:
    """Whoever buys machines must not promise one to a later task when it is kept for an earlier gang."""
    jobs = [a_job("early"), a_job("late", second=1)]
    work = [waiting("late", "early", 4, second=50), waiting("gang", "late", 8, second=10)]
    pool = a_pool(4, jobs, work, scaling=elastic(4, max_instances=2)).with_supply(
        Supply(offers=(AvailableOffer(offer_id="m", slots=4),), room=1)
    )
    plan = schedule(pool)
    assert [h.allocation for h in plan.holds] == ["gang.1"] and not plan.place
    assert [(gang.token, gang.priority) for gang in plan.demand.gangs] == [("gang.1", 0), ("late.1", 1)]


def test_a_group_that_lost_slots_has_the_next_turn_so_that_one_arrival_preempts_once() -> None:
    """What leaves is larger than what comes. The rest goes back to the user who lost it, and nobody else has to move."""
    users = [(1, 1), (2, 1), (3, 2), (4, 2)]
    jobs = [a_job(f"j{user}", owner=UserId(user), workspace_id=workspace) for user, workspace in users]
    running = [waiting(f"r{user}", f"j{user}", 2, second=user) for user, _ in users]
    full = at_rest(a_pool(8, jobs, running, hierarchical_shares=True))
    for task in (waiting(f"w{user}-{n}", f"j{user}", second=n) for n in range(1, 4) for user, _ in users):
        full = full.after(task)
    assert schedule(full).preempt == ()
    come = full.after(a_job("new", owner=UserId(9), workspace_id=9)).after(waiting("new", "new", second=9))
    plan = schedule(come)
    (victim,) = plan.preempt
    (rest,) = [hold for hold in plan.holds if hold.kind is HoldKind.VACATING]
    loser = come.jobs[come.allocations[victim.allocation].job_id].owner
    assert come.jobs[come.allocations[rest.allocation].job_id].owner == loser


def test_who_has_lost_something_waits_in_the_line_of_his_weight_alone() -> None:
    """Two jobs of one user wait with the same, and differ in weight: what the one waits with is offered once."""
    jobs = [a_job("j"), a_job("k", weight=2.0), a_job("poor", owner=UserId(2))]
    running = [on(task, {f"a{n // 4}": (n % 4,)}) for n, task in enumerate(tasks("j", 12))]
    work = [*running, waiting("jw", "j", second=20), waiting("kw", "k", second=21), waiting("gang", "poor", 4)]
    pool = a_pool(4, jobs, work, agents=3, hierarchical_shares=True).after(an_agent("a3", 3))
    plan = schedule(pool)
    assert len(plan.preempt) == 4 and {p.for_allocation for p in plan.preempt} == {"gang.1"}
    assert sorted(p.allocation for p in plan.place) == ["jw.1", "kw.1"]


def test_an_event_touches_hardly_more_beside_many_jobs_of_the_same_user_that_are_capped() -> None:
    """Each of them wants more than it may have, and so waits in a line of its own."""

    def touched(count: int) -> list[int]:
        meter, touched = Meter(), list[int]()
        jobs = [a_job("runs"), *(a_job(f"j{n:04}", max_slots=2) for n in range(count))]
        work = [on(waiting("runs", "runs"), {"a0": (0,)}), *(waiting(f"w{n:04}", f"j{n:04}", 3) for n in range(count))]
        policy = a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True)
        snapshot = PoolSnapshot.build(policy, [an_agent("a0")], jobs, work, now=NOW, meter=meter)
        for event in (waiting("new", "j0002", 2), on(work[8], {"a0": (1,)}), gone(work[8])):
            meter.touched = 0
            snapshot.after(event)
            touched.append(meter.touched)
        return touched

    for few, many in zip(touched(100), touched(1600), strict=True):
        assert 0 < many <= 2 * few + 64


@pytest.mark.parametrize("scheduler", [SchedulerKind.FAIR_SHARE, SchedulerKind.PRIORITY])
def test_caps_that_nothing_reaches_cost_nothing(scheduler: SchedulerKind) -> None:
    """Each experiment has a cap, as is usual, and one trial: a pass looks at one of them, and not at each."""

    def touched(count: int) -> int:
        meter = Meter()
        jobs = [a_job("runs"), *(a_job(f"j{n:04}", second=n, max_slots=4) for n in range(count))]
        busy = [on(waiting(f"r{n}", "runs", 6, preemptible=False), {f"a{n}": tuple(range(6))}) for n in range(4)]
        work = [*busy, *(waiting(f"w{n:04}", f"j{n:04}", 4, second=n) for n in range(count))]
        agents = [an_agent(f"a{n}", 8) for n in range(4)]
        snapshot = PoolSnapshot.build(a_policy(scheduler=scheduler), agents, jobs, work, now=NOW, meter=meter)
        assert not schedule(snapshot).place
        snapshot = snapshot.after(a_job("new", second=count, max_slots=4)).after(waiting("new", "new", 4, second=count))
        meter.touched = 0
        assert not schedule(snapshot).place
        return meter.touched

    assert touched(800) <= 2 * touched(50) + 64


def test_a_cap_begins_and_ceases_to_bind_with_what_its_job_wants() -> None:
    job, pool = a_job("a", max_slots=4), a_pool(2, [a_job("a", max_slots=4)], tasks("a", 4))
    assert {shape.capped_job for shape in pool.queue} == {""}
    more = pool.after(waiting("more", "a", 1, second=9))
    assert {shape.capped_job for shape in more.queue} == {job.id} and len(list(more.pending())) == 5
    assert more.after(gone(waiting("more", "a", 1, second=9))) == pool
    assert {shape.capped_job for shape in pool.after(replace(job, max_slots=3)).queue} == {job.id}
    assert {shape.capped_job for shape in more.after(replace(job, max_slots=None)).queue} == {""}
