"""Computes the plan of a snapshot."""

from __future__ import annotations

from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler import fair_share, priority
from resolute_master.scheduler.outcome import Outcome
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


def schedule(snapshot: PoolSnapshot, *, starts: int | None = None) -> Plan:
    """Placements, preemptions and the demand for machines. The same snapshot gives the same plan.

    `starts` limits the number of placements; a plan that is `cut` there contains no later allocations.
    """
    return run(snapshot, starts=starts).plan


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """The plan, with what `explain` needs."""
    if snapshot.held or not len(snapshot.queue):
        return Outcome(plan=Plan(), results={}, failed={})  # nothing may start, or nothing waits
    match snapshot.policy.scheduler:
        case SchedulerKind.PRIORITY:
            return priority.run(snapshot, starts=starts)
        case SchedulerKind.FAIR_SHARE:
            return fair_share.run(snapshot, starts=starts)
