"""Usage of pools with `usage_half_life`: recorded with each change of held slots, so that nothing is lost.

There is a row for each user of a workspace, from the first slot until the usage has decayed. A booking is in the same commit as its
cause, so a master that is killed resumes with exact figures, and an outage counts by what really ran.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, PoolName, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.usage import Usage, usage_id
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step


class Holder(NamedTuple):
    pool: PoolName
    workspace_id: int
    owner: UserId


def half_life_s(step: Step, pool: PoolName) -> float | None:
    """The half-life of usage in a pool; None for a pool without one, or that the configuration no longer has."""
    policy = step.pools.get(pool)
    return None if policy is None else policy.usage_half_life_s


def book(step: Step, before: ClusterState) -> None:
    """Books the changes of held slots by a step, relative to its initial state; the cost is proportional to the changes."""
    if all(policy.usage_half_life_s is None for policy in step.pools.values()):
        return
    gained: Counter[Holder] = Counter()
    for id_ in _touched(step, before):
        for state, sign in ((before, -1), (step, 1)):
            allocation = state.get(Allocation, id_)
            if allocation is not None:
                _add(gained, step, state, allocation, sign)
    for holder, slots in sorted(gained.items()):
        if slots:
            usage = step.get(Usage, usage_id(*holder))
            _hold(step, holder, slots + (0 if usage is None else usage.held))


def count_anew(step: Step) -> None:
    """At a start of the master, whose configuration may have changed: counts the held slots again, and deletes the usage of pools
    without a half-life."""
    held: Counter[Holder] = Counter()
    for allocation in step.all(Allocation):
        _add(held, step, step, allocation, 1)
    for usage in step.all(Usage):
        if half_life_s(step, usage.pool) is None:
            step.delete(usage)
        else:
            held.setdefault(Holder(usage.pool, usage.workspace_id, usage.owner), 0)
    for holder, slots in sorted(held.items()):
        _hold(step, holder, slots)


def measure(step: Step, pool: PoolName) -> None:
    """Charge every user of the pool by the average, all at the same moment."""
    half_life = half_life_s(step, pool)
    assert half_life is not None, "a pool without a usage half-life has no usage to measure"
    for usage in step.find(Usage, "usage_of_pool", pool):
        measured = usage.measured(step.now, half_life)
        if measured is None:
            step.delete(usage)
        else:
            step.put(measured)


def _touched(step: Step, before: ClusterState) -> set[AllocationId]:
    """Allocations that were changed, or whose job has another owner now."""
    found = {allocation.id for allocation in step.written_of(Allocation)}
    for job in step.written_of(Job):
        was = before.get(Job, job.id)
        if was is not None and (was.workspace_id, was.owner) != (job.workspace_id, job.owner):
            found.update(each.id for each in step.find(Allocation, "allocations_of_job", job.id))
    return found


def _add(sums: Counter[Holder], step: Step, state: ClusterState | Step, allocation: Allocation, sign: int) -> None:
    if half_life_s(step, allocation.pool) is not None and (slots := len(allocation.held_slots)):
        job = state.get(Job, allocation.job_id)
        assert job is not None, f"{allocation.id} holds slots for a job that is not there"
        sums[Holder(allocation.pool, job.workspace_id, job.owner)] += sign * slots


def _hold(step: Step, holder: Holder, slots: int) -> None:
    half_life = half_life_s(step, holder.pool)
    assert half_life is not None
    usage = step.get(Usage, usage_id(*holder)) or Usage.none_yet(*holder, now=step.now)
    if usage.held != slots:
        step.put(usage.holding(slots, step.now, half_life))
