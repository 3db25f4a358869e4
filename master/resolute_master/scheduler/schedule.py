"""Snapshot in, plan out."""

from __future__ import annotations

from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler import fair_share, priority
from resolute_master.scheduler.outcome import Outcome
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


def schedule(snapshot: PoolSnapshot, *, starts: int | None = None) -> Plan:
    """Who starts where, who is asked to leave, and which machines are missing. The same snapshot gives the same plan.

    With `starts`, at most so many are placed; a plan that is `cut` there says nothing of those that come after.
    """
    return run(snapshot, starts=starts).plan


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """The plan, with what `explain` needs."""
    if snapshot.held or not len(snapshot.queue):
        return Outcome(plan=Plan(), verdicts={}, failed={})  # nobody may start, or nobody waits
    match snapshot.policy.scheduler:
        case SchedulerKind.PRIORITY:
            return priority.run(snapshot, starts=starts)
        case SchedulerKind.FAIR_SHARE:
            return fair_share.run(snapshot, starts=starts)
