"""The order of each pool's jobs, kept while its jobs are the same."""

from __future__ import annotations

from resolute_master.domain.ids import PoolName
from resolute_master.event_loop import giving_way
from resolute_master.scheduler.job_states import JobOrder
from resolute_master.scheduler.snapshot import PoolSnapshot


class QueueOrders:
    """The order of each pool's jobs as it was found last, and is while its jobs are the same: to sort ten thousand takes as long as
    all the rest of a page."""

    def __init__(self) -> None:
        self._known: dict[PoolName, JobOrder] = {}

    def of(self, pool: PoolName, snapshot: PoolSnapshot) -> JobOrder:
        """For a thread. Two that ask at once may both sort."""
        known = self._known.get(pool)
        if known is not None and known.is_of(snapshot):
            return known.at(snapshot)
        found = self._known[pool] = JobOrder(snapshot, walk=giving_way)
        return found
