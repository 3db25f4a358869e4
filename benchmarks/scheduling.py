"""Decision time of the priority scheduler, beside a heap sort of the same queue in the same process."""

from __future__ import annotations

import heapq
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from benchmarks.report import Row, Spread, ratio
from benchmarks.timing import interleaved
from resolute.wire.agent_link import Device
from resolute.wire.states import SlotKind, TaskType
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = PoolName("default")
SLOTS = 8
SIZES = ((125, 1_250), (500, 5_000), (1_000, 10_000))


def main() -> list[Row]:
    return [row for agents, queued in SIZES for row in _rows(agents, queued)]


def _rows(agents: int, queued: int) -> list[Row]:
    jobs, waiting = _jobs(queued), _allocations(queued)
    snapshot = PoolSnapshot.build(PoolPolicy(name=POOL), _agents(agents), jobs, waiting, now=NOW)
    newcomer = replace(waiting[0], id=AllocationId("newcomer.1"), task_id=TaskId("newcomer"))
    keys = [(job.priority, job.queue_position, job.id) for job in jobs]
    found = interleaved(
        {
            "full pass": lambda: schedule(snapshot),
            "one arrival into the snapshot": lambda: snapshot.with_allocation(newcomer),
            "sort": lambda: _heap_sort(keys),
        }
    )
    bound = found.pop("sort")
    return [
        Row(
            name=f"{name}, {agents} agents, {queued} queued",
            subject=Spread.of([1000 * second for second in seconds], "ms"),
            bound_name="heap sort of the same queue",
            bound=Spread.of([1000 * second for second in bound], "ms"),
            result=ratio(seconds, bound),
        )
        for name, seconds in found.items()
    ]


def _heap_sort(keys: list[tuple[int, float, JobId]]) -> list[tuple[int, float, JobId]]:
    heap = list(keys)
    heapq.heapify(heap)
    return [heapq.heappop(heap) for _ in range(len(heap))]


def _agents(count: int) -> list[Agent]:
    slots = tuple(
        Slot(device=Device(index=i, kind=SlotKind.CUDA, brand="bench", uuid=f"gpu-{i}")) for i in range(SLOTS)
    )
    return [
        Agent(
            id=AgentId(f"agent-{n:05}"),
            pool=POOL,
            slots=slots,
            incarnation="1",
            address="10.0.0.1",
            version="0",
            registered_at=NOW,
            connected_at=NOW,
        )
        for n in range(count)
    ]


def _jobs(count: int) -> list[Job]:
    return [
        Job(
            id=JobId(f"job-{n:06}"),
            kind="EXPERIMENT",
            name="bench",
            owner=UserId(1),
            workspace_id=1,
            project_id=1,
            pool=POOL,
            priority=1 + n % 99,
            weight=1.0,
            max_slots=None,
            submitted_at=NOW + timedelta(seconds=n),
            queue_position=float(n),
        )
        for n in range(count)
    ]


def _allocations(count: int) -> list[Allocation]:
    return [
        Allocation(
            id=AllocationId(f"task-{n:06}.1"),
            task_id=TaskId(f"task-{n:06}"),
            task_type=TaskType.TRIAL,
            job_id=JobId(f"job-{n:06}"),
            pool=POOL,
            slots_needed=(1, 2, 4, 8)[n % 4],
            requested_at=NOW + timedelta(seconds=n),
        )
        for n in range(count)
    ]
