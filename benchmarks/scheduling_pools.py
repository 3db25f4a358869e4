"""Pools for benchmarks of the scheduler: agents of 8 slots, work of 1 to 8 slots, and single events."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from resolute.wire.agent_link import Device
from resolute.wire.states import AllocationState, ContainerState, SlotKind, TaskType
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.plan import Placement, Plan
from resolute_master.scheduler.snapshot import PoolSnapshot

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(days=30)
"""Time of the decisions, after all submissions."""
POOL = PoolName("default")
SLOTS = 8
"""Slots of each agent."""
SIZES = (1, 2, 4, 8)
"""Requested slots, with equal frequency."""
PRIORITIES = 99
USERS = 100
WORKSPACES = 10

Arrival = tuple[Job, Allocation]


def agents(count: int, slots: int = SLOTS) -> list[Agent]:
    devices = tuple(Slot(device=Device(index=i, kind=SlotKind.CUDA, brand="bench", uuid=f"{i}")) for i in range(slots))
    return [
        Agent(
            id=AgentId(f"agent-{n:05}"),
            pool=POOL,
            slots=devices,
            incarnation="1",
            address="10.0.0.1",
            version="0",
            registered_at=START,
            connected_at=START,
        )
        for n in range(count)
    ]


def arrival(number: int, *, priority: int, slots: int, user: int = 1, workspace: int = 1) -> Arrival:
    """One job of one allocation, `number` seconds after the start."""
    asked_at = START + timedelta(seconds=number)
    job = Job(
        id=JobId(f"job-{number:06}"),
        kind="EXPERIMENT",
        name="bench",
        owner=UserId(user),
        workspace_id=workspace,
        project_id=1,
        pool=POOL,
        priority=priority,
        weight=1.0,
        max_slots=None,
        submitted_at=asked_at,
        queue_position=asked_at.timestamp(),
    )
    allocation = Allocation(
        id=AllocationId(f"task-{number:06}.1"),
        task_id=TaskId(f"task-{number:06}"),
        task_type=TaskType.TRIAL,
        job_id=job.id,
        pool=POOL,
        slots_needed=slots,
        requested_at=asked_at,
    )
    return job, allocation


def arrivals(random: Random, first: int = 0) -> Iterator[Arrival]:
    """Endless jobs of random sizes, priorities and owners."""
    number = first
    while True:
        user = random.randrange(USERS)
        yield arrival(
            number,
            priority=random.randint(1, PRIORITIES),
            slots=random.choice(SIZES),
            user=1 + user,
            workspace=1 + user % WORKSPACES,
        )
        number += 1


def pool(policy: PoolPolicy, members: list[Agent], work: list[Arrival]) -> PoolSnapshot:
    return PoolSnapshot.build(policy, members, [job for job, _ in work], [a for _, a in work], now=NOW)


def with_arrival(snapshot: PoolSnapshot, come: Arrival) -> PoolSnapshot:
    job, allocation = come
    return snapshot.with_job(job).with_allocation(allocation)


def applied(snapshot: PoolSnapshot, plan: Plan) -> PoolSnapshot:
    """Applies a plan to the snapshot: starts, preemptions and reservations."""
    for placement in plan.place:
        snapshot = snapshot.with_allocation(_running(snapshot, placement))
    for preemption in plan.preempt:
        snapshot = snapshot.with_allocation(_leaving(snapshot, preemption.allocation))
    for reservation in plan.reserve:
        waits = snapshot.allocations[reservation.allocation]
        snapshot = snapshot.with_allocation(replace(waits, reserved_agents=reservation.agents))
    return snapshot


def ended(allocation: Allocation) -> Allocation:
    containers = tuple(replace(c, state=ContainerState.TERMINATED) for c in allocation.containers)
    return replace(allocation, containers=containers, state=AllocationState.TERMINATED)


def _running(snapshot: PoolSnapshot, placement: Placement) -> Allocation:
    containers = tuple(
        Container(
            id=ContainerId(f"{placement.allocation}/{rank}"),
            rank=rank,
            agent=agent,
            slots=tuple(sorted(slot.index for slot in placement.slots if slot.agent == agent)),
            state=ContainerState.RUNNING,
        )
        for rank, agent in enumerate(placement.agents)
    )
    return replace(
        snapshot.allocations[placement.allocation],
        containers=containers,
        state=AllocationState.RUNNING,
        assigned_at=snapshot.now,
        started_at=snapshot.now,
    )


def _leaving(snapshot: PoolSnapshot, id_: AllocationId) -> Allocation:
    request = PreemptRequest(reason="", requested_at=snapshot.now, deadline=snapshot.now + timedelta(hours=1))
    return replace(snapshot.allocations[id_], preempt=request)
