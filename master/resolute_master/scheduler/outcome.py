"""The findings of one pass beside its plan, for explanations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId
from resolute_master.scheduler.order import QueueKey, Shape
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.snapshot import PoolSnapshot


class PlacementResult(IntEnum):
    """The result for a pending allocation, in the order of the steps."""

    PLACED = 0
    VACATING = 1
    COMING = 2
    LAUNCHABLE = 3
    PREEMPTING = 4
    RESERVED = 5
    WAITING = 6
    """Nothing could be held for the allocation."""
    CAPPED = 7
    """Its job holds as many slots as its cap allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The plan, and the result for each allocation that the pass has read. `failed` is for the rest: the first allocation of a
    shape that got nothing, after which the pass read no more of that shape. A shape that is not in it was served, or the pass
    ended before it because nothing was left."""

    plan: Plan
    results: dict[AllocationId, PlacementResult]
    failed: dict[Shape, tuple[QueueKey, PlacementResult]]

    def result(self, snapshot: PoolSnapshot, allocation: Allocation) -> PlacementResult:
        """The result of a pending allocation in the snapshot of the pass."""
        known = self.results.get(allocation.id)
        if known is not None:
            return known
        failed = self.failed.get(snapshot.shape(allocation))
        capped = snapshot.over_cap(allocation) if failed is None else failed[1] is PlacementResult.CAPPED
        return PlacementResult.CAPPED if capped else PlacementResult.WAITING
