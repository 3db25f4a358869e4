"""Builders of pools for tests of the scheduler: agents, jobs and allocations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from resolute.wire.agent_link import Device, Exit
from resolute.wire.states import AllocationState, ContainerState, SlotKind, TaskType
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, InstanceId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.plan import Placement, Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Market, Offer, PoolScaling

POOL = PoolName("default")
START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(hours=1)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def a_policy(**changes: Any) -> PoolPolicy:
    return replace(PoolPolicy(name=POOL), **changes)


def elastic(slots: int = 8, max_instances: int = 5) -> PoolScaling:
    offer = Offer(offer_id="m", instance_type="m", zone="z", market=Market.ON_DEMAND, slots=slots, price_per_hour=1.0)
    return PoolScaling(pool=POOL, offers=(offer,), max_instances=max_instances)


def an_agent(
    name: str, slots: int = 8, *, off: tuple[int, ...] = (), instance: str | None = None, **changes: Any
) -> Agent:
    """`off` contains the numbers of disabled slots."""
    devices = (Device(index=i, kind=SlotKind.CPU, brand="", uuid=f"{name}-{i}") for i in range(slots))
    agent = Agent(
        id=AgentId(name),
        pool=POOL,
        slots=tuple(Slot(device=device, enabled=device.index not in off) for device in devices),
        incarnation="1",
        address="127.0.0.1",
        version="1",
        registered_at=START,
        connected_at=START,
        instance_id=None if instance is None else InstanceId(instance),
    )
    return replace(agent, **changes)


def closed(agent: Agent, *indices: int, draining: bool = True) -> Agent:
    """The agent with these slots drained or disabled."""
    part = {"draining": True} if draining else {"enabled": False}
    slots = tuple(replace(slot, **part) if slot.index in indices else slot for slot in agent.slots)
    return replace(agent, slots=slots)


def a_job(name: str, *, priority: int = 42, second: float = 0.0, max_slots: int | None = None, **changes: Any) -> Job:
    job = Job(
        id=JobId(name),
        kind="EXPERIMENT",
        name=name,
        owner=UserId(1),
        workspace_id=1,
        project_id=1,
        pool=POOL,
        priority=priority,
        weight=1.0,
        max_slots=max_slots,
        submitted_at=at(second),
        queue_position=at(second).timestamp(),
    )
    return replace(job, **changes)


def waiting(name: str, job: str, slots: int = 1, *, second: float = 0.0, **changes: Any) -> Allocation:
    allocation = Allocation(
        id=AllocationId(f"{name}.1"),
        task_id=TaskId(name),
        task_type=TaskType.TRIAL,
        job_id=JobId(job),
        pool=POOL,
        slots_needed=slots,
        requested_at=at(second),
    )
    return replace(allocation, **changes)


def on(allocation: Allocation, places: Mapping[str, tuple[int, ...]], *, second: float = 0.0) -> Allocation:
    """The allocation, running on these slots of these agents."""
    containers = tuple(
        Container(
            id=ContainerId(f"{allocation.id}/{rank}"),
            rank=rank,
            agent=AgentId(agent),
            slots=slots,
            state=ContainerState.RUNNING,
        )
        for rank, (agent, slots) in enumerate(places.items())
    )
    return replace(
        allocation, containers=containers, state=AllocationState.RUNNING, assigned_at=at(second), started_at=at(second)
    )


def leaving(allocation: Allocation, *, reason: str = "preempted") -> Allocation:
    """The allocation, preempted for another one."""
    request = PreemptRequest(reason=reason, requested_at=NOW, deadline=NOW + timedelta(hours=1), for_another=True)
    return replace(allocation, preempt=request)


def gone(allocation: Allocation) -> Allocation:
    """The allocation after its end."""
    containers = tuple(replace(c, state=ContainerState.TERMINATED, exit=Exit(code=0)) for c in allocation.containers)
    return replace(allocation, containers=containers, state=AllocationState.TERMINATED)


def placed(allocation: Allocation, placement: Placement, now: datetime = NOW) -> Allocation:
    """The allocation after the engine has applied the placement."""
    places: dict[str, tuple[int, ...]] = {
        a: tuple(sorted(s.index for s in placement.slots if s.agent == a)) for a in placement.agents
    }
    return replace(on(allocation, places), assigned_at=now, started_at=now)


def applied(snapshot: PoolSnapshot, plan: Plan) -> PoolSnapshot:
    """The snapshot after the engine has applied the plan."""
    for placement in plan.place:
        snapshot = snapshot.with_allocation(placed(snapshot.allocations[placement.allocation], placement, snapshot.now))
    for preemption in plan.preempt:
        snapshot = snapshot.with_allocation(
            leaving(snapshot.allocations[preemption.allocation], reason=preemption.reason)
        )
    for reservation in plan.reserve:
        known = snapshot.allocations[reservation.allocation]
        snapshot = snapshot.with_allocation(replace(known, reserved_agents=reservation.agents))
    return snapshot


def starts(plan: Plan) -> dict[str, dict[str, tuple[int, ...]]]:
    """Task -> agent -> slots, in rank order."""
    return {
        p.allocation.removesuffix(".1"): {a: tuple(s.index for s in p.slots if s.agent == a) for a in p.agents}
        for p in plan.place
    }


def evicts(plan: Plan) -> dict[str, str]:
    """Victim -> beneficiary, as tasks."""
    return {p.allocation.removesuffix(".1"): p.for_allocation.removesuffix(".1") for p in plan.preempt}


def at_rest(snapshot: PoolSnapshot) -> PoolSnapshot:
    """Applies plans until nothing changes. Victims end at once and are requested again."""
    for number in range(100):
        plan = schedule(snapshot)
        if not plan.place and not plan.preempt:
            return snapshot
        snapshot = applied(snapshot, plan)
        for allocation in list(snapshot.leaving()):
            again = waiting(f"{allocation.task_id}+{number}", allocation.job_id, allocation.slots_needed, second=3600)
            snapshot = snapshot.after(gone(allocation)).after(again)
    raise AssertionError("the pool does not come to rest")
