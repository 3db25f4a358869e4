"""What one pass found out beside its plan, for those who ask why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


class Verdict(IntEnum):
    """What became of a waiting allocation, in the order in which it is tried."""

    PLACED = 0
    VACATING = 1
    COMING = 2
    LAUNCHABLE = 3
    PREEMPTING = 4
    RESERVED = 5
    WAITING = 6
    """There is nothing that could be kept for it."""
    CAPPED = 7
    """Its job has as many slots as it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The plan, and what became of each allocation that the pass has looked at. `failed` is for the rest: the first of a
    shape that got nothing, after which nothing of that shape was looked at. A shape that is not in it was served, or the pass
    ended before it, when nothing was left for anybody."""

    plan: Plan
    verdicts: dict[AllocationId, Verdict]
    failed: dict[Shape, tuple[QueueKey, Verdict]]

    def verdict(self, snapshot: PoolSnapshot, allocation: Allocation) -> Verdict:
        """Of any that waits in the snapshot of the pass."""
        known = self.verdicts.get(allocation.id)
        if known is not None:
            return known
        failed = self.failed.get(snapshot.shape(allocation))
        capped = snapshot.over_cap(allocation) if failed is None else failed[1] is Verdict.CAPPED
        return Verdict.CAPPED if capped else Verdict.WAITING
