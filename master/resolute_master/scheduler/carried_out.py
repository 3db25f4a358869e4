"""A pool after a plan was applied, and after its victims have ended."""

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
    """Placed allocations run, and victims have been asked to end."""
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
    """The allocation, running there from now on."""
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


def without_vacated(snapshot: PoolSnapshot, victims: Iterable[AllocationId]) -> PoolSnapshot:
    """These have saved and ended. Each that was not killed is pending again, as the next run of its task."""
    for id_ in victims:
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
