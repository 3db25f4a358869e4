"""Who is made to leave wastes the least, of all who could: compared with every possible set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import EVICTION_COUNTS_S, Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.worth import Worth
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import ComingMachine, Supply
from support.effort import examples
from support.pools import NOW, a_job, a_policy, an_agent, at, on, waiting

SLOTS = 8
SECONDS = st.integers(0, 3599)
PRIORITIES = (50, 60, 70)
CLAIM = "claim"

Cost = tuple[int, float]
"""Importance of the most important victim, and the slot-seconds that are wasted, with those that former evictions count as, in the
proportion in which their searches need them."""


@st.composite
def what_runs(draw: st.DrawFn, agent: str, sizes: Sequence[int]) -> list[Allocation]:
    """Side by side, until the agent is full or no more is drawn."""
    found: list[Allocation] = []
    free = list(range(SLOTS))
    while free and (size := draw(st.sampled_from(sizes))) <= len(free):
        begun = draw(SECONDS)
        ready = draw(st.none() | st.integers(begun, 3600))
        saved = draw(st.none() | st.integers(ready, 3600)) if ready is not None else None
        job = f"p{draw(st.sampled_from(PRIORITIES))}"
        one = on(waiting(f"{agent}-{len(found)}", job, size), {agent: tuple(free[:size])}, second=begun)
        ready_at, saved_at = (None if second is None else at(second) for second in (ready, saved))
        evictions = draw(st.integers(0, 3))
        worth = Worth(likelihood=draw(st.sampled_from([1.0, 1.0, 0.25, 0.0])))
        found.append(replace(one, ready_at=ready_at, saved_at=saved_at, evictions=evictions, worth=worth))
        free = free[size:]
    return found


@st.composite
def pools(draw: st.DrawFn, *, agents: int, sizes: Sequence[int], claim: int) -> PoolSnapshot:
    names = [f"a{number}" for number in range(agents)]
    jobs = [a_job(CLAIM, priority=1), *(a_job(f"p{priority}", priority=priority) for priority in PRIORITIES)]
    running = [each for name in names for each in draw(what_runs(name, sizes))]
    work = [*running, waiting(CLAIM, CLAIM, claim)]
    return PoolSnapshot.build(a_policy(preemption=True), [an_agent(n, SLOTS) for n in names], jobs, work, now=NOW)


def cost(snapshot: PoolSnapshot, victims: Iterable[Allocation]) -> Cost:
    leave = list(victims)
    wasted = sum(
        ((NOW - each.wasted_since).total_seconds() + EVICTION_COUNTS_S * each.evictions)
        * each.slots_needed
        * each.worth.likelihood
        for each in leave
    )
    return -min((snapshot.priority_of(each.job_id) for each in leave), default=100), wasted


def cheapest(snapshot: PoolSnapshot, slots: int) -> Cost:
    """Least cost of all sets of victims on one agent that free this number of slots."""
    found = []
    for agent in snapshot.agents:
        there = [each for each in snapshot.running() if each.containers[0].agent == agent]
        free = SLOTS - sum(each.slots_needed for each in there)
        for count in range(len(there) + 1):
            for victims in combinations(there, count):
                if free + sum(each.slots_needed for each in victims) >= slots:
                    found.append(cost(snapshot, victims))
    return min(found)


def asked(snapshot: PoolSnapshot) -> Cost:
    return cost(snapshot, (snapshot.allocations[each.allocation] for each in schedule(snapshot).preempt))


@settings(max_examples=examples(100))
@given(st.data(), st.sampled_from([1, 2, 3, 5, 8]))
def test_on_one_agent_no_set_wastes_less(data: st.DataObject, slots: int) -> None:
    snapshot = data.draw(pools(agents=4, sizes=[1, 2, 3, 4, 8], claim=slots))
    assert asked(snapshot) == cheapest(snapshot, slots)


@settings(max_examples=15)
@given(st.data())
def test_among_very_many_the_one_that_wastes_least_leaves(data: st.DataObject) -> None:
    """More of one importance than are ever compared at a time."""
    snapshot = data.draw(pools(agents=12, sizes=[1], claim=1))
    assert asked(snapshot) == cheapest(snapshot, 1)


@settings(max_examples=examples(100))
@given(st.data())
def test_for_a_gang_the_agents_are_emptied_that_waste_least(data: st.DataObject) -> None:
    snapshot = data.draw(pools(agents=5, sizes=[2, 3, 8], claim=2 * SLOTS))
    by_agent = [[each for each in snapshot.running() if each.containers[0].agent == a] for a in snapshot.agents]
    sets = ([*first, *second] for first, second in combinations(by_agent, 2))
    assert asked(snapshot) == min(cost(snapshot, victims) for victims in sets)


def test_time_that_a_checkpoint_keeps_is_not_wasted_and_a_start_is() -> None:
    begun = on(waiting("t", "j"), {"a": (0,)}, second=0)
    assert begun.wasted_since == at(0)
    ready = replace(begun, ready_at=at(30))
    assert ready.wasted_since == at(0)
    assert replace(ready, saved_at=at(130)).wasted_since == at(100)
    # A clock that has gone back makes nobody the cheaper.
    assert replace(ready, saved_at=at(10)).wasted_since == at(0)


def test_work_with_a_fresh_checkpoint_is_preempted_before_newer_work_without_one() -> None:
    long_ago = on(waiting("old", "p50"), {"a": (0,)}, second=0)
    lately = on(waiting("new", "p50"), {"a": (1,)}, second=3000)
    saved = replace(long_ago, ready_at=at(10), saved_at=NOW - timedelta(seconds=60))
    jobs = [a_job(CLAIM, priority=1), a_job("p50", priority=50)]
    agents = [an_agent("a", 2)]
    for older, victim in ((long_ago, "new.1"), (saved, "old.1")):
        work = [older, lately, waiting(CLAIM, CLAIM)]
        plan = schedule(PoolSnapshot.build(a_policy(preemption=True), agents, jobs, work, now=NOW))
        assert [each.allocation for each in plan.preempt] == [victim]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3600)), min_size=2, max_size=6))
def test_a_former_victim_is_preempted_again_only_if_all_others_would_lose_more(past: list[tuple[int, int]]) -> None:
    """Ten minutes more, for each time that they have made room less often."""
    running = [
        replace(on(waiting(f"t{number}", "p50"), {"a": (number,)}, second=3600 - lost), evictions=evictions)
        for number, (evictions, lost) in enumerate(past)
    ]
    jobs, agents = [a_job(CLAIM, priority=1), a_job("p50", priority=50)], [an_agent("a", len(past))]
    snapshot = PoolSnapshot.build(a_policy(preemption=True), agents, jobs, [*running, waiting(CLAIM, CLAIM)], now=NOW)
    (victim,) = (snapshot.allocations[each.allocation] for each in schedule(snapshot).preempt)
    for other in running:
        more_s = (victim.wasted_since - other.wasted_since).total_seconds()
        assert more_s >= EVICTION_COUNTS_S * (victim.evictions - other.evictions)


@pytest.mark.parametrize("others", [0, 1])
def test_former_evictions_do_not_make_the_more_important_wait_for_a_machine(others: int) -> None:
    """They tell who leaves, and not whether anybody does: also where it would not pay to make the others leave."""
    jobs, agents = [a_job(CLAIM, priority=1), a_job("p50", priority=50)], [an_agent("a", 1 + others)]
    spared = [on(waiting(f"other-{each}", "p50"), {"a": (1 + each,)}, second=3100) for each in range(others)]
    for evictions in (0, 1):
        runs = replace(on(waiting("t", "p50"), {"a": (0,)}, second=3590), evictions=evictions)
        coming = ComingMachine(instance=InstanceId("m"), slots=1, expected_at=NOW + timedelta(seconds=300))
        work, supply = [runs, *spared, waiting(CLAIM, CLAIM)], Supply(machines=(coming,))
        snapshot = PoolSnapshot.build(a_policy(preemption=True), agents, jobs, work, supply, now=NOW)
        assert [each.allocation for each in schedule(snapshot).preempt] == ["t.1"]
