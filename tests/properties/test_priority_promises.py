"""What a pool that is ordered by priority promises over time."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.plan import HoldKind, Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from support.effort import examples
from support.pool_promises import returned, yields
from support.pools import NOW, a_job, a_policy, an_agent, applied, gone, waiting

GANG = AllocationId("gang.1")
SLOTS = st.sampled_from([1, 2, 4, 8])
IMPORTANCE = st.sampled_from([10, 42, 42])
"""Priorities of the gang; the small allocations have 42."""


def a_pool(gang_priority: int, *, preemption: bool) -> PoolSnapshot:
    jobs = [a_job("small"), a_job("late", second=60), a_job("gang", priority=gang_priority, second=30)]
    agents = [an_agent("a0", 8), an_agent("a1", 8)]
    return PoolSnapshot.build(a_policy(preemption=preemption), agents, jobs, [], now=NOW)


def decided(snapshot: PoolSnapshot) -> PoolSnapshot:
    """One plan carried out; who must leave has left at once."""
    snapshot = applied(snapshot, schedule(snapshot))
    for allocation in list(snapshot.leaving()):
        snapshot = snapshot.after(gone(allocation))
    return snapshot


def one_ends(snapshot: PoolSnapshot) -> PoolSnapshot:
    oldest = min(snapshot.running(), key=lambda a: (a.requested_at, a.id), default=None)
    return snapshot if oldest is None else snapshot.after(gone(oldest))


def starts_in_round(snapshot: PoolSnapshot, coming: list[list[int]]) -> int | None:
    """The round in which the gang starts. In each, more work comes that stands behind it, and the oldest that runs ends."""
    for number, sizes in enumerate(coming):
        for more, size in enumerate(sizes):
            snapshot = snapshot.after(waiting(f"{number:02}-{more}", "late", size, second=100 + number))
        snapshot = decided(snapshot)
        if not waits(snapshot.allocations[GANG]):
            return number
        snapshot = one_ends(snapshot)
    return None


@st.composite
def pools_with_a_gang(draw: st.DrawFn, *, preemption: bool) -> PoolSnapshot:
    """What was there before the gang runs or waits; the gang has just come."""
    snapshot = a_pool(draw(IMPORTANCE), preemption=preemption)
    for number, size in enumerate(draw(st.lists(SLOTS, max_size=20))):
        snapshot = snapshot.after(waiting(f"before-{number:02}", "small", size, second=number))
    snapshot = decided(snapshot)
    return snapshot.after(waiting("gang", "gang", draw(st.sampled_from([1, 3, 5, 8, 16])), second=30))


COMING = st.lists(st.lists(SLOTS, min_size=1, max_size=4), min_size=38, max_size=38)


@settings(max_examples=examples(50))
@given(st.booleans().flatmap(lambda on: pools_with_a_gang(preemption=on)), COMING)
def test_a_gang_starts_when_what_stood_before_it_has_ended_however_much_comes_behind_it(
    snapshot: PoolSnapshot, coming: list[list[int]]
) -> None:
    """All that stood before it ends, and then at most what ran when it had become the first."""
    before, ran = len(snapshot.allocations) - 1, 16
    leaving = 1 if snapshot.policy.preemption else 0  # work that was let in on reserved room leaves first
    started = starts_in_round(snapshot, coming)
    assert started is not None and started <= before + ran + leaving, "it waits for work that came later"


@settings(max_examples=examples(50))
@given(pools_with_a_gang(preemption=False), COMING)
def test_backfill_does_not_delay_a_reservation(snapshot: PoolSnapshot, coming: list[list[int]]) -> None:
    """The first that waits starts at the latest when what ran on its agents has ended; what comes behind it may run beside it."""
    for allocation in list(snapshot.pending()):
        if allocation.id != GANG:
            snapshot = snapshot.after(gone(allocation))  # nothing stands before the gang
    kept = next((hold.agents for hold in schedule(snapshot).holds if hold.allocation == GANG), ())
    agents = {agent for agent, _ in kept}
    there = {a.id for a in snapshot.running() if agents & {c.agent for c in a.containers}}
    longest = [a.id for a in sorted(snapshot.running(), key=lambda a: (a.requested_at, a.id))]
    ended = max((longest.index(id_) + 1 for id_ in there), default=0)
    started = starts_in_round(snapshot, coming)
    assert started is not None and started <= ended


def in_the_way(snapshot: PoolSnapshot, agents: set[AgentId]) -> bool:
    """Something there cannot be made to leave for the gang, however long it runs."""
    return any(
        agents & {container.agent for container in each.containers}
        and not yields(snapshot, each, snapshot.allocations[GANG])
        for each in snapshot.running()
    )


def kept_for_the_gang(plan: Plan) -> tuple[HoldKind, set[AgentId]] | None:
    return next(
        ((hold.kind, {agent for agent, _ in hold.agents}) for hold in plan.holds if hold.allocation == GANG), None
    )


@st.composite
def full_pools_that_preempt(draw: st.DrawFn) -> PoolSnapshot:
    """Whatever runs stood before the gang, and has begun now; so has the gang's grace."""
    policy = a_policy(
        preemption=True,
        min_runtime_s=draw(st.sampled_from([0.0, 150.0, 600.0])),
        preemption_grace_s=draw(st.sampled_from([0.0, 0.0, 400.0])),
    )
    jobs = [a_job("small"), a_job("late", second=60), a_job("gang", second=30)]
    snapshot = PoolSnapshot.build(policy, [an_agent("a0", 4), an_agent("a1", 4), an_agent("a2", 4)], jobs, now=NOW)
    for number, size in enumerate(draw(st.lists(st.sampled_from([1, 2, 4]), min_size=6, max_size=12))):
        snapshot = snapshot.after(waiting(f"before-{number:02}", "small", size, second=number))
    snapshot = applied(snapshot, schedule(snapshot))
    for allocation in list(snapshot.pending()):
        snapshot = snapshot.after(gone(allocation))
    gang = waiting("gang", "gang", draw(st.sampled_from([3, 4, 8, 12])))
    return snapshot.after(replace(gang, requested_at=NOW))


@settings(max_examples=examples(150))
@given(
    full_pools_that_preempt(),
    st.lists(st.lists(st.sampled_from([1, 1, 2]), max_size=4), min_size=40, max_size=40),
    st.lists(st.integers(0, 1000), min_size=40, max_size=40),
)
def test_with_preemption_a_reservation_waits_for_what_is_in_the_way_min_runtime_and_one_save(
    snapshot: PoolSnapshot, coming: list[list[int]], ends: list[int]
) -> None:
    """Each minute more work comes, which may run on the reserved room, and two that run end. Once nothing is there that the gang
    cannot make leave, and has not been for as long as `min_runtime`, and its grace is over, it starts or the others are leaving;
    and once they have left, it starts."""
    min_runtime, grace = snapshot.policy.min_runtime_s, snapshot.policy.preemption_grace_s
    clear_since, promised = None, False
    for number, sizes in enumerate(coming):
        snapshot = snapshot.at(NOW + timedelta(minutes=number))
        for more, size in enumerate(sizes):
            snapshot = snapshot.after(waiting(f"{number:02}-{more}", "late", size, second=100 + number))
        reserved = set(snapshot.allocations[GANG].reserved_agents)
        if reserved and clear_since is None and not in_the_way(snapshot, reserved):
            clear_since = snapshot.now
        plan = schedule(snapshot)
        had_left, snapshot = promised and not list(snapshot.leaving()), applied(snapshot, plan)
        if not waits(snapshot.allocations[GANG]):
            return
        assert not had_left, "those who were in the way have left"
        kept = kept_for_the_gang(plan)
        promised = kept is not None and kept[0] is not HoldKind.RUNNING
        due = max(clear_since + timedelta(seconds=min_runtime), NOW + timedelta(seconds=grace)) if clear_since else None
        assert promised or due is None or snapshot.now < due, "it waits for work that came later"
        for allocation in list(snapshot.leaving()) if number % 2 else ():
            snapshot = snapshot.after(gone(allocation))
        running = list(snapshot.running())
        if running:
            snapshot = snapshot.after(gone(running[ends[number] % len(running)]))
        snapshot = one_ends(snapshot)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 2, 4]), st.integers(0, 7200)), min_size=4, max_size=20),
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=3),
)
def test_an_arrival_preempts_only_victims_whose_slots_it_needs(
    equal: list[tuple[int, int]], important: list[int]
) -> None:
    """Who has left comes back at once. Of those that ran before, nobody leaves for him."""
    jobs = [a_job(f"e{n:02}", second=n) for n in range(len(equal))] + [a_job("important", priority=1)]
    snapshot = PoolSnapshot.build(
        a_policy(preemption=True), [an_agent("a0", 8), an_agent("a1", 8)], jobs, [], now=NOW - timedelta(hours=3)
    )
    for number, (slots, _) in enumerate(equal):
        snapshot = snapshot.after(waiting(f"e{number:02}", f"e{number:02}", slots, second=number))
    snapshot = applied(snapshot, schedule(snapshot)).at(NOW)
    ran = {
        a.id: replace(a, started_at=NOW - timedelta(seconds=equal[int(a.job_id[1:])][1])) for a in snapshot.running()
    }
    for allocation in list(snapshot.pending()):
        snapshot = snapshot.after(gone(allocation))
    for allocation in ran.values():
        snapshot = snapshot.after(allocation)
    for number, slots in enumerate(important):
        snapshot = snapshot.after(waiting(f"new{number}", "important", slots))
    for _ in range(100):
        plan = schedule(snapshot)
        for preemption in plan.preempt:
            assert preemption.allocation not in ran or preemption.for_allocation.startswith("new")
        snapshot = applied(snapshot, plan)
        for victim in list(snapshot.leaving()):
            snapshot = snapshot.after(gone(victim)).after(returned(victim))
        if not plan.place and not plan.preempt:
            return
    raise AssertionError("the pool does not come to rest")
