"""Room for a gang of half the cluster, in a pool full of small work: by the pools that the benchmark measures."""

from __future__ import annotations

import pytest
from benchmarks import reclaim
from benchmarks.scheduling_pools import SLOTS

from resolute_master.scheduler.schedule import schedule

AGENTS = 40
GANG = AGENTS * SLOTS // 2


@pytest.mark.parametrize("kind", reclaim.POLICIES)
def test_half_of_the_cluster_is_emptied_and_nobody_leaves_elsewhere(kind: str) -> None:
    snapshot = reclaim.crowded(reclaim.POLICIES[kind], AGENTS)
    assert len(list(snapshot.running())) == AGENTS * SLOTS
    come = reclaim.with_gang(snapshot, GANG)
    plan = schedule(come)
    (hold,) = plan.holds
    assert (plan.place, len(plan.preempt), len(hold.agents)) == ((), GANG, GANG // SLOTS)
    kept = {agent for agent, _ in hold.agents}
    left = {c.agent for victim in plan.preempt for c in come.allocations[victim.allocation].containers}
    assert left == kept


@pytest.mark.parametrize("kind", reclaim.POLICIES)
def test_agents_that_are_idle_or_being_left_already_need_nobody_to_leave(kind: str) -> None:
    snapshot = reclaim.crowded(reclaim.POLICIES[kind], AGENTS)
    idle = {f"agent-{number:05}" for number in range(5)}
    for allocation in list(snapshot.running()):
        if any(container.agent in idle for container in allocation.containers):
            snapshot = snapshot.without_allocation(allocation.id)
    plan = schedule(reclaim.with_gang(snapshot, GANG))
    assert len(plan.preempt) == GANG - len(idle) * SLOTS
