"""What a pool that is ordered by priority promises over time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.ids import AllocationId
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from support.pools import NOW, a_job, a_policy, an_agent, applied, gone, waiting

GANG = AllocationId("gang.1")
SLOTS = st.sampled_from([1, 2, 4, 8])
IMPORTANCE = st.sampled_from([10, 42, 42])
"""Of the gang, where the small ones have 42."""


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


@settings(max_examples=50, deadline=None)
@given(st.booleans().flatmap(lambda on: pools_with_a_gang(preemption=on)), COMING)
def test_a_gang_starts_when_what_stood_before_it_has_ended_however_much_comes_behind_it(
    snapshot: PoolSnapshot, coming: list[list[int]]
) -> None:
    """All that stood before it ends, and then at most what ran when it had become the first."""
    before, ran = len(snapshot.allocations) - 1, 16
    leaving = 1 if snapshot.policy.preemption else 0  # work that was let in on reserved room leaves first
    started = starts_in_round(snapshot, coming)
    assert started is not None and started <= before + ran + leaving, "it waits for work that came later"


@settings(max_examples=50, deadline=None)
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
