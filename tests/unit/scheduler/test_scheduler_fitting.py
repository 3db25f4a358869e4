"""Where work is placed: tight or wide, on one agent or on whole ones, and which slots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.domain.pool import Fitting, SchedulerKind
from resolute_master.scheduler.fitting import divide, side_by_side
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.pools import (
    NOW,
    a_job,
    a_policy,
    an_agent,
    applied,
    closed,
    evicts,
    gone,
    leaving,
    on,
    starts,
    waiting,
)


def places(agents: list[Agent], *allocations: Allocation, **policy: Any) -> dict[str, dict[str, tuple[int, ...]]]:
    jobs = [a_job(job, second=number) for number, job in enumerate(sorted({a.job_id for a in allocations}))]
    return starts(schedule(PoolSnapshot.build(a_policy(**policy), agents, jobs, allocations, now=NOW)))


def test_best_takes_the_tightest_agent_and_worst_the_emptiest() -> None:
    agents = [an_agent("a", 4), an_agent("b", 4)]
    busy = on(waiting("busy", "j", 2), {"a": (0, 1)})
    assert places(agents, busy, waiting("new", "j")) == {"new": {"a": (2,)}}
    assert places(agents, busy, waiting("new", "j"), fitting=Fitting.WORST) == {"new": {"b": (0,)}}


def test_equal_agents_are_taken_by_id_and_one_in_use_before_an_idle_one() -> None:
    assert places([an_agent("b", 2), an_agent("a", 2)], waiting("new", "j")) == {"new": {"a": (0,)}}
    agents = [an_agent("a", 2), an_agent("b", 4)]
    busy = on(waiting("busy", "j", 2), {"b": (0, 1)})
    assert places(agents, busy, waiting("new", "j")) == {"new": {"b": (2,)}}


def test_worst_looks_at_the_free_share_of_an_agent() -> None:
    agents = [an_agent("a", 8), an_agent("b", 2)]
    busy = on(waiting("busy", "j", 4), {"a": (0, 1, 2, 3)})
    assert places(agents, busy, waiting("new", "j"), fitting=Fitting.WORST) == {"new": {"b": (0,)}}


def test_a_gang_takes_whole_idle_agents_of_one_size_and_ranks_follow_size_and_id() -> None:
    agents = [an_agent("c", 4), an_agent("a", 4), an_agent("b", 4), an_agent("d", 2)]
    busy = on(waiting("busy", "j"), {"a": (0,)})
    assert places(agents, busy, waiting("gang", "j", 8)) == {"gang": {"b": (0, 1, 2, 3), "c": (0, 1, 2, 3)}}


def test_a_gang_that_does_not_divide_waits_unless_sizes_may_be_mixed() -> None:
    agents = [an_agent("a", 8), an_agent("b", 6), an_agent("c", 4)]
    gang = waiting("gang", "j", 12)
    assert places(agents, gang) == {}
    # Taking the largest first would stop at 8 + nothing: 8 + 4 is found, and the chief is on the largest.
    assert list(places(agents, gang, heterogeneous_fits=True)["gang"]) == ["a", "c"]


@pytest.mark.parametrize(("mixed", "kept"), [(True, {"a6", "a2"}), (False, {"b", "c"})])
def test_agents_that_a_gang_may_no_longer_use_together_are_kept_for_it_no_more(mixed: bool, kept: set[str]) -> None:
    agents = [an_agent("a6", 6), an_agent("a2", 2), an_agent("b", 4), an_agent("c", 4)]
    gang = waiting("gang", "gang", 8, second=1, reserved_agents=(AgentId("a6"), AgentId("a2")))
    busy = [on(waiting(f"on-{agent.id}", "busy", preemptible=False), {agent.id: (0,)}) for agent in agents]
    jobs = [a_job("busy"), a_job("gang", second=1)]
    policy = a_policy(heterogeneous_fits=mixed, preemption=False)
    (hold,) = schedule(PoolSnapshot.build(policy, agents, jobs, [*busy, gang], now=NOW)).holds
    assert {agent for agent, _ in hold.agents} == kept


def test_a_single_node_gang_is_never_split() -> None:
    agents = [an_agent("a", 4), an_agent("b", 4)]
    assert places(agents, waiting("gang", "j", 8, single_node=True)) == {}
    assert places(agents, waiting("gang", "j", 8)) != {}


def test_auxiliary_tasks_do_not_make_an_agent_busy_for_gangs() -> None:
    agents = [an_agent("a", 4), an_agent("b", 4)]
    aux = on(waiting("aux", "j", 0), {"a": ()})
    assert set(places(agents, aux, waiting("gang", "j", 8))["gang"]) == {"a", "b"}


def test_disabled_draining_blocked_and_lost_agents_and_slots_get_nothing() -> None:
    agents = [
        an_agent("disabled", enabled=False),
        an_agent("draining", draining=True),
        an_agent("lost", disconnected_at=NOW),
        an_agent("small", 2, off=(0,)),
        an_agent("blocked"),
    ]
    blocked = (AgentId("blocked"),)
    found = places(agents, waiting("one", "j", blocked_agents=blocked), waiting("two", "j", 2, blocked_agents=blocked))
    assert found == {"one": {"small": (1,)}}


def test_slots_of_those_that_are_leaving_are_not_free_yet() -> None:
    old = leaving(on(waiting("old", "j", 2), {"a": (0, 1)}))
    assert places([an_agent("a", 2)], old, waiting("new", "j")) == {}


@pytest.mark.parametrize("draining", [True, False])
@pytest.mark.parametrize("policy", [{}, {"preemption": True}, {"scheduler": SchedulerKind.FAIR_SHARE}])
def test_what_runs_on_a_slot_that_takes_no_more_work_is_in_no_gangs_way(draining: bool, policy: dict[str, Any]) -> None:
    """Nobody would be asked to leave for the gang either, so that it would wait for the end of what may run for long."""
    agents = [closed(an_agent("a", 3), 2, draining=draining), an_agent("b", 2)]
    gang = waiting("gang", "mine", 4)
    for old in (on(waiting("old", "other"), {"a": (2,)}), leaving(on(waiting("old", "other"), {"a": (2,)}))):
        assert set(places(agents, old, gang, **policy)["gang"]) == {"a", "b"}
    used = on(waiting("old", "other"), {"a": (1,)})
    assert places(agents, used, gang, **policy) == {}


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("policy", [{"preemption": True}, {"scheduler": SchedulerKind.FAIR_SHARE}])
def test_only_who_has_slots_that_take_work_is_asked_to_leave(policy: dict[str, Any], preemptible: bool) -> None:
    agents = [closed(an_agent("a", 3), 2), an_agent("b", 2)]
    jobs = [a_job("other", priority=50), a_job("more", priority=50), a_job("mine", priority=1, weight=8.0)]
    drained = on(waiting("drained", "other", preemptible=preemptible), {"a": (2,)}, second=3000)
    work = [drained, *(on(waiting(f"r{n}", "more"), {agent: (n % 2,)}) for n, agent in enumerate("aabb"))]
    snapshot = PoolSnapshot.build(a_policy(**policy), agents, jobs, [*work, waiting("gang", "mine", 4)], now=NOW)
    plan = schedule(snapshot)
    assert set(evicts(plan)) == {"r0", "r1", "r2", "r3"}
    asked = applied(snapshot, plan)
    for number in range(4):
        asked = asked.after(gone(asked.allocations[AllocationId(f"r{number}.1")]))
    assert set(starts(schedule(asked))["gang"]) == {"a", "b"}


def test_auxiliary_tasks_keep_the_limit_of_an_agent_and_gather_or_spread() -> None:
    agents = [an_agent("a", 2), an_agent("b", 2)]
    tasks = [waiting(f"t{n}", "j", 0, second=n) for n in range(5)]
    found = places(agents, *tasks, max_aux_containers_per_agent=2)
    assert found == {"t0": {"a": ()}, "t1": {"a": ()}, "t2": {"b": ()}, "t3": {"b": ()}}
    spread = places(agents, *tasks[:2], fitting=Fitting.WORST)
    assert spread == {"t0": {"a": ()}, "t1": {"b": ()}}


def test_a_waiting_task_with_slots_does_not_hold_up_one_without() -> None:
    agents = [an_agent("a", 2)]
    assert places(agents, waiting("large", "j", 64), waiting("aux", "k", 0)) == {"aux": {"a": ()}}


@pytest.mark.parametrize(
    ("free", "slots", "chosen"),
    [
        ((0, 1, 2, 3), 2, (0, 1)),
        ((0, 2, 3, 5, 6, 7), 2, (2, 3)),
        ((0, 2, 4), 2, (0, 2)),
        ((1, 3), 2, (1, 3)),
        ((5,), 1, (5,)),
    ],
)
def test_devices_are_taken_side_by_side_and_from_the_shortest_run(
    free: tuple[int, ...], slots: int, chosen: tuple[int, ...]
) -> None:
    assert side_by_side(free, slots) == chosen


def test_what_starts_is_given_devices_side_by_side() -> None:
    busy = on(waiting("busy", "j"), {"a": (1,)})
    assert places([an_agent("a", 4)], busy, waiting("new", "j", 2)) == {"new": {"a": (2, 3)}}


def test_one_size_is_preferred_even_if_it_takes_more_agents() -> None:
    assert divide(4, {2: 1, 1: 4}, mixed=True) == {1: 4}
    assert divide(8, {4: 2, 2: 4}, mixed=True) == {4: 2}


def test_more_slots_than_there_are_take_no_table_of_their_number() -> None:
    """A table of so many slots cannot be made: its length is no index."""
    assert divide(10**19, {4: 1, 6: 1, 8: 1}, mixed=True) is None
    assert divide(18, {4: 1, 6: 1, 8: 1}, mixed=True) == {4: 1, 6: 1, 8: 1}


@given(st.dictionaries(st.integers(1, 8), st.integers(0, 4), max_size=4), st.integers(1, 24))
def test_mixed_sizes_are_found_whenever_they_exist_with_the_fewest_agents(agents: dict[int, int], slots: int) -> None:
    reachable = {0: 0}
    for size, count in agents.items():
        for _ in range(count):
            for total, used in sorted(reachable.items(), reverse=True):
                reachable[total + size] = min(used + 1, reachable.get(total + size, used + 1))
    parts = divide(slots, agents, mixed=True)
    assert (parts is not None) == (slots in reachable)
    if parts is not None:
        assert sum(size * count for size, count in parts.items()) == slots
        assert all(0 < count <= agents[size] for size, count in parts.items())
        assert len(parts) == 1 or sum(parts.values()) == reachable[slots]
