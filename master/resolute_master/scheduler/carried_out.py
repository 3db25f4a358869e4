"""A pool when a plan of it has been carried out, and when those who leave have left."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from resolute.wire.states import AllocationState, ContainerState
from resolute_master.domain.allocation import Allocation, Container, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, ContainerId
from resolute_master.scheduler.plan import Placement, Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


def carried_out(snapshot: PoolSnapshot, plan: Plan) -> PoolSnapshot:
    """Who is placed runs, who is to leave has been asked."""
    now = snapshot.now
    for preemption in plan.preempt:
        victim = snapshot.allocations[preemption.allocation]
        request = PreemptRequest(reason=preemption.reason, requested_at=now, deadline=now, for_another=True)
        snapshot = snapshot.with_allocation(replace(victim, preempt=request))
    for placement in plan.place:
        waits = snapshot.allocations[placement.allocation]
        snapshot = snapshot.with_allocation(placed(waits, placement, now))
    for reservation in plan.reserve:
        waits = snapshot.allocations[reservation.allocation]
        snapshot = snapshot.with_allocation(replace(waits, reserved_agents=reservation.agents))
    return snapshot


def placed(waits: Allocation, placement: Placement, now: datetime) -> Allocation:
    """It runs there from now on."""
    containers = tuple(
        Container(
            id=ContainerId(f"{waits.id}.{rank}"),
            rank=rank,
            agent=agent,
            slots=tuple(slot.index for slot in placement.slots if slot.agent == agent),
            state=ContainerState.RUNNING,
        )
        for rank, agent in enumerate(placement.agents)
    )
    return replace(waits, containers=containers, state=AllocationState.RUNNING, assigned_at=now)


def without_leavers(snapshot: PoolSnapshot, leavers: Iterable[AllocationId]) -> PoolSnapshot:
    """These have saved and ended. What was not killed waits again, as the next run of its task."""
    for id_ in leavers:
        ended = snapshot.allocations[id_]
        snapshot = snapshot.without_allocation(id_)
        if ended.killed_at is None:
            snapshot = snapshot.with_allocation(_next_run(ended, snapshot.now))
    return snapshot


def _next_run(ended: Allocation, now: datetime) -> Allocation:
    return replace(
        ended,
        requested_at=now,
        evictions=ended.evictions_by_now,
        state=AllocationState.PENDING,
        containers=(),
        reserved_agents=(),
        assigned_at=None,
        started_at=None,
        ready_at=None,
        saved_at=None,
        preempt=None,
        first_failure=None,
    )
