"""Nobody is made to leave again and again: among equals those leave by turns who leave for what comes and goes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import MOST_GIVEN_UP_S
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import UserId
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.pool_promises import returned
from support.pools import NOW, a_job, a_policy, an_agent, applied, at, evicts, gone, on, waiting

SLOTS = 8
IMPORTANT = "important"
FAIR = SchedulerKind.FAIR_SHARE
POLICIES = st.sampled_from(
    [a_policy(preemption=True), a_policy(scheduler=FAIR), a_policy(scheduler=FAIR, hierarchical_shares=True)]
)
HOUR = 3600.0


class EqualJobs:
    """They fill the pool, one agent a task: one task each where priority decides, two where shares do, so that a newcomer is
    poorer."""

    def __init__(self, policy: PoolPolicy, count: int) -> None:
        names = [f"j{number}" for number in range(count)]
        each = 1 if policy.scheduler is SchedulerKind.PRIORITY else 2
        jobs = [a_job(name, second=n, owner=UserId(n + 1)) for n, name in enumerate(names)]
        work = [waiting(f"{job.id}-{n}", job.id, SLOTS, second=5) for job in jobs for n in range(each)]
        agents = [an_agent(f"a{n}", SLOTS) for n in range(len(work))]
        jobs.append(a_job(IMPORTANT, priority=1, owner=UserId(99)))
        self.evicted = Counter({each.task_id: 0 for each in work})
        self.snapshot = PoolSnapshot.build(policy, agents, jobs, work, now=NOW)
        self.settle(NOW)

    def settle(self, now: datetime) -> None:
        """Until nothing changes; who is asked to leave does so at once and waits again."""
        self.snapshot = self.snapshot.at(now)
        while (plan := schedule(self.snapshot)).place or plan.preempt:
            self.evicted.update(self.snapshot.allocations[each.allocation].task_id for each in plan.preempt)
            self.snapshot = applied(self.snapshot, plan)
            for allocation in list(self.snapshot.leaving()):
                again = replace(returned(allocation), requested_at=now, task_id=allocation.task_id)
                self.snapshot = self.snapshot.after(gone(allocation)).after(again)

    def comes_and_goes(self, number: int, now: datetime, stays: timedelta) -> datetime:
        self.snapshot = self.snapshot.after(
            waiting(f"i{number}", IMPORTANT, SLOTS, second=(now - at(0)).total_seconds())
        )
        self.settle(now)
        for allocation in list(self.snapshot.running()):
            if allocation.job_id == IMPORTANT:
                self.snapshot = self.snapshot.after(gone(allocation))
        self.settle(now + stays)
        return now + stays

    def save(self, choice: int, now: datetime) -> None:
        running = list(self.snapshot.running())
        allocation = running[choice % len(running)]
        saved = replace(allocation, ready_at=allocation.ready_at or allocation.assigned_at, saved_at=now)
        self.snapshot = self.snapshot.after(saved)


@settings(max_examples=30, deadline=None)
@given(POLICIES, st.integers(2, 4), st.integers(1, 30), st.integers(1, 4), st.booleans())
def test_equals_leave_by_turns(policy: PoolPolicy, jobs: int, arrivals: int, minutes: int, save: bool) -> None:
    """And each arrival makes one leave, who moves nobody else."""
    pool, now, step = EqualJobs(policy, jobs), NOW, timedelta(minutes=minutes)
    for number in range(arrivals):
        if save:
            for choice in range(len(pool.evicted)):
                pool.save(choice, now)
        now = pool.comes_and_goes(number, now + step, step)
    assert sum(pool.evicted.values()) == arrivals
    assert max(pool.evicted.values()) - min(pool.evicted.values()) <= 2, pool.evicted


@settings(max_examples=20, deadline=None)
@given(st.data(), POLICIES, st.integers(2, 4), st.integers(1, 20))
def test_nobody_gives_up_much_more_than_another(
    data: st.DataObject, policy: PoolPolicy, jobs: int, arrivals: int
) -> None:
    """Whoever saves when: what one has given up beyond another is at most one time's, and what the other would have lost."""
    pool, now, most_lost_s = EqualJobs(policy, jobs), NOW, 0.0
    for number in range(arrivals):
        now += timedelta(minutes=data.draw(st.integers(1, 60)))
        for choice in data.draw(st.lists(st.integers(0, 9), max_size=3)):
            pool.save(choice, now)
        lost_s = ((now - each.wasted_since).total_seconds() for each in pool.snapshot.running())
        most_lost_s = max(most_lost_s, *lost_s)
        now = pool.comes_and_goes(number, now, timedelta(minutes=5))
    given_up_s = [each.given_up_s for each in pool.snapshot.running()]
    assert max(given_up_s) - min(given_up_s) <= MOST_GIVEN_UP_S + most_lost_s


def two_of_one_priority(lost_s: dict[str, float], given_up_s: dict[str, float]) -> str:
    """Who leaves."""
    work = [
        replace(on(waiting(name, name), {"a": (n,)}, second=-lost), given_up_s=given_up_s[name])
        for n, (name, lost) in enumerate(lost_s.items())
    ]
    jobs = [a_job(IMPORTANT, priority=1), *(a_job(name) for name in lost_s)]
    everything = [*work, waiting(IMPORTANT, IMPORTANT)]
    plan = schedule(PoolSnapshot.build(a_policy(preemption=True), [an_agent("a", 2)], jobs, everything, now=at(0)))
    (victim,) = evicts(plan)
    return victim


@given(st.floats(0, 100 * HOUR), st.floats(0, 11 * HOUR))
def test_long_work_is_not_thrown_away_for_one_who_left_once(lost_then_s: float, lost_now_s: float) -> None:
    once = on(waiting("once", "once"), {"a": (0,)}, second=-lost_then_s)
    given_up_s = once.gives_up_s(at(0))
    assert 0.5 * HOUR <= given_up_s <= 4 * HOUR
    lost_s = {"once": min(lost_now_s, 7 * HOUR), "long": 12 * HOUR}
    assert two_of_one_priority(lost_s, {"once": given_up_s, "long": 0.0}) == "once"


@given(st.floats(0, 10 * HOUR), st.floats(0, 10 * HOUR), st.floats(0, 10 * HOUR), st.floats(0, 10 * HOUR))
def test_what_a_task_gave_up_counts_like_what_it_loses(one: float, other: float, before: float, behind: float) -> None:
    victim = two_of_one_priority({"one": one, "other": other}, {"one": before, "other": behind})
    counts = {"one": one + before, "other": other + behind}
    assert counts[victim] <= min(counts.values()) + 1e-3


def test_a_newcomer_begins_where_the_others_are() -> None:
    """Otherwise it would have to leave as often as they did in all their time."""
    old = [replace(on(waiting(f"o{n}", "o"), {"a": (n,)}), given_up_s=(5 + n) * HOUR) for n in range(2)]
    jobs = [a_job("o"), a_job("n")]
    for priority, expected in ((42, 5 * HOUR), (43, 0.0)):
        work = [*old, waiting("new", "n")]
        known = [jobs[0], replace(jobs[1], priority=priority)]
        (placed,) = schedule(PoolSnapshot.build(a_policy(), [an_agent("a", 3)], known, work, now=NOW)).place
        assert placed.given_up_s == expected


def test_who_has_made_room_moves_his_equals_only_after_half_an_hour() -> None:
    """He stands before them in the queue; one who has not is served at once."""
    runs = on(waiting("later", "later"), {"a": (0,)})
    jobs = [a_job("first", second=0), a_job("later", second=1)]
    for given_up_s, minutes, leaves in ((0.0, 0, True), (1800.0, 29, False), (1800.0, 30, True)):
        waits = replace(waiting("first", "first", second=3600), given_up_s=given_up_s)
        now = NOW + timedelta(minutes=minutes)
        snapshot = PoolSnapshot.build(a_policy(preemption=True), [an_agent("a", 1)], jobs, [runs, waits], now=now)
        plan = schedule(snapshot)
        assert evicts(plan) == ({"later": "first"} if leaves else {})
        assert plan.revisit_at == (None if leaves else NOW + timedelta(minutes=30))
