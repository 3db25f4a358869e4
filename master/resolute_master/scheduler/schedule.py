"""Snapshot in, plan out."""

from __future__ import annotations

from resolute.errors import InvalidInput
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler import priority
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


def schedule(snapshot: PoolSnapshot) -> Plan:
    """Who starts where, who is asked to leave, and which machines are missing. The same snapshot gives the same plan.

    Raises `InvalidInput` for a kind of scheduling that is not there.
    """
    match snapshot.policy.scheduler:
        case SchedulerKind.PRIORITY:
            return priority.schedule(snapshot)
        case other:
            raise InvalidInput(
                f"scheduler.type: '{other}' is not available yet (resource pool '{snapshot.policy.name}'); use 'priority'"
            )
