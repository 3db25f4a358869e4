"""The job queue as users see it: the place and state of each job."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Protocol, TypeVar

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.domain.job import Job
from resolute_master.scheduler.snapshot import PoolSnapshot, waits


class JobState(StrEnum):
    """State of a job: that of its furthest allocation."""

    IDLE = "IDLE"
    """The job has no pending or running allocation."""
    QUEUED = "QUEUED"
    SCHEDULED_BACKFILLED = "SCHEDULED_BACKFILLED"
    """The job started while a more important one was pending, which still is."""
    SCHEDULED = "SCHEDULED"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """`jobs_ahead` counts the jobs before it in the pool's order, whether they wait or run. Slots are sums over all its
    allocations that have not ended; `allocated_slots` is what it holds now."""

    job: JobId
    state: JobState
    jobs_ahead: int
    requested_slots: int
    allocated_slots: int


T = TypeVar("T")


class Walk(Protocol):
    """Iterates over the same items; a caller that shares the processor may pause between two of them."""

    def __call__(self, items: Iterable[T], /) -> Iterator[T]: ...


class JobOrder:
    """The jobs with pending or running allocations, in the pool's order. The standing of each is computed on request."""

    def __init__(self, snapshot: PoolSnapshot, *, walk: Walk = iter) -> None:
        self._snapshot = snapshot
        self._line = _WaitingLine(snapshot)
        self.jobs = [id_ for _, _, id_ in _in_order([_rank(snapshot, job) for job in walk(_present(snapshot))])]
        self._ahead = {id_: number for number, id_ in enumerate(self.jobs)}

    def is_of(self, snapshot: PoolSnapshot) -> bool:
        """Whether the jobs of that snapshot are the same in the same order, without reading each."""
        mine = self._snapshot
        return (
            snapshot.jobs is mine.jobs
            and snapshot.job_allocations is mine.job_allocations
            and snapshot.shares is mine.shares
        )

    def at(self, snapshot: PoolSnapshot) -> JobOrder:
        """This order for another snapshot, of which `is_of` holds."""
        if snapshot is self._snapshot:
            return self
        other = object.__new__(JobOrder)
        other._snapshot, other._line = snapshot, _WaitingLine(snapshot)
        other.jobs, other._ahead = self.jobs, self._ahead
        return other

    def __contains__(self, id_: JobId) -> bool:
        return id_ in self._ahead

    def standing(self, id_: JobId) -> JobStanding | None:
        """The standing of a job; None if it has no pending or running allocation."""
        ahead = self._ahead.get(id_)
        if ahead is None:
            return None
        allocations = [self._snapshot.allocations[a] for a in self._snapshot.job_allocations[id_]]
        held = self._snapshot.job_slots.get(id_) or 0
        return _standing(self._snapshot, id_, allocations, held, ahead, self._line)


def job_states(snapshot: PoolSnapshot, *, walk: Walk = iter) -> dict[JobId, JobStanding]:
    """Every job with a pending or running allocation, in the pool's order (fair share: the least for its weight first)."""
    order = JobOrder(snapshot, walk=walk)
    found = ((id_, order.standing(id_)) for id_ in walk(order.jobs))
    return {id_: standing for id_, standing in found if standing is not None}


_Rank = tuple[tuple[float | str, ...], tuple[float, datetime], JobId]

SORTED_AT_ONCE = 1000
"""Sorting ten thousand takes forty milliseconds without releasing the interpreter; sorting a thousand takes two."""


def _in_order(ranks: Sequence[_Rank]) -> list[_Rank]:
    """Sorts in parts, then merges the parts with few comparisons (timsort, Peters 2002)."""
    parts = [sorted(ranks[at : at + SORTED_AT_ONCE]) for at in range(0, len(ranks), SORTED_AT_ONCE)]
    return sorted(chain.from_iterable(parts))


def count_jobs(snapshot: PoolSnapshot, *, walk: Walk = iter) -> tuple[int, int]:
    """The number of jobs in `job_states`, and of those that are IDLE or QUEUED, without sorting."""
    present = {job.id for job in walk(_present(snapshot))}
    scheduled = {a.job_id for a in walk(snapshot.allocations.values()) if a.containers and not waits(a)}
    return len(present), len(present - scheduled)


def job_standing(snapshot: PoolSnapshot, id_: JobId, *, walk: Walk = iter) -> JobStanding | None:
    """One of `job_states`; None if the job has no pending or running allocation."""
    job = snapshot.jobs.get(id_)
    if job is None or id_ not in snapshot.job_allocations:
        return None
    mine = _rank(snapshot, job)
    ahead = sum(_rank(snapshot, other) < mine for other in walk(_present(snapshot)))
    allocations = [snapshot.allocations[a] for a in snapshot.job_allocations[id_]]
    return _standing(snapshot, id_, allocations, snapshot.job_slots.get(id_) or 0, ahead, _WaitingLine(snapshot))


def _present(snapshot: PoolSnapshot) -> Iterator[Job]:
    present = set(snapshot.job_allocations)
    return (job for job in snapshot.jobs.values() if job.id in present)


def _rank(snapshot: PoolSnapshot, job: Job) -> _Rank:
    """Sort key: priority and place; with fair share, the charges of the enclosing groups, the job's own charge, and submission."""
    if snapshot.shares is None:
        return (job.priority,), job.place[:2], job.id
    member = snapshot.member_of(job)
    groups = (member.parents[: n + 1] for n in range(len(member.parents)))
    shares = snapshot.shares
    charges = (part for group in groups for part in (shares.burden(group), shares.since(group).timestamp(), group[-1]))
    return (*charges, shares.charge(member)), (0.0, job.submitted_at), job.id


class _WaitingLine:
    """Pending allocations with slots that the present agents could hold, the most important first, and their request times. Empty
    with fair share, which has no queue order."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._known: tuple[list[tuple[int, float]], list[datetime]] | None = None

    def _places(self) -> tuple[list[tuple[int, float]], list[datetime]]:
        """Each place, and the earliest request up to it; computed on first use."""
        if self._known is None:
            self._known = self._found() if self._snapshot.shares is None else ([], [])
        return self._known

    def _found(self) -> tuple[list[tuple[int, float]], list[datetime]]:
        snapshot = self._snapshot
        places: list[tuple[int, float]] = []
        since: list[datetime] = []
        largest = sum(size * count for size, count in snapshot.sizes.items())
        for allocation in snapshot.pending():
            if 0 < allocation.slots_needed <= largest and not snapshot.over_cap(allocation):
                places.append(snapshot.standing(allocation)[:2])
                since.append(min(since[-1], allocation.requested_at) if since else allocation.requested_at)
        return places, since

    def overtaken_by(self, allocation: Allocation) -> bool:
        """Whether a more important one waited already when the allocation got its slots."""
        if not allocation.slots_needed or allocation.assigned_at is None:
            return False
        places, since = self._places()
        ahead = bisect_left(places, self._snapshot.standing(allocation)[:2])
        return ahead > 0 and since[ahead - 1] < allocation.assigned_at


_FURTHER = {state: number for number, state in enumerate(JobState)}


def _standing(
    snapshot: PoolSnapshot, id_: JobId, allocations: Sequence[Allocation], held: int, ahead: int, line: _WaitingLine
) -> JobStanding:
    """The standing of a job. `allocations` are all its allocations, which hold `held` slots."""
    return JobStanding(
        job=id_,
        state=max((_state(a, line) for a in allocations), key=_FURTHER.__getitem__),
        jobs_ahead=ahead,
        requested_slots=sum(a.slots_needed for a in allocations),
        allocated_slots=held,
    )


def _state(allocation: Allocation, line: _WaitingLine) -> JobState:
    if waits(allocation):
        return JobState.QUEUED
    if not allocation.containers:
        return JobState.IDLE
    return JobState.SCHEDULED_BACKFILLED if line.overtaken_by(allocation) else JobState.SCHEDULED
