"""The order of each pool's jobs, kept while its jobs are the same."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.event_loop import yielding
from resolute_master.scheduler.job_states import JobOrder
from resolute_master.scheduler.snapshot import PoolSnapshot

Row = tuple[PoolName, int, JobId]
"""The place of a job: its pool, the number of jobs before it there, and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolQueue:
    """`rows` are the places of the pool's own jobs: one that was moved may still have its work in the pool that it has left.
    `own` are their ids."""

    order: JobOrder
    rows: Sequence[Row]
    own: Set[JobId]


class QueueOrders:
    """Cache of the order of each pool's queue while its jobs are the same. To sort ten thousand jobs takes longer than the rest
    of a page."""

    def __init__(self) -> None:
        self._known: dict[PoolName, PoolQueue] = {}

    def of(self, pool: PoolName, snapshot: PoolSnapshot) -> PoolQueue:
        """Call it in a thread. Two concurrent calls may both sort."""
        known = self._known.get(pool)
        if known is not None and known.order.is_of(snapshot):
            return replace(known, order=known.order.at(snapshot))
        order = JobOrder(snapshot, walk=yielding)
        here = {job.id for job in yielding(snapshot.jobs.values()) if job.pool == pool}
        rows = [(pool, ahead, id_) for ahead, id_ in yielding(enumerate(order.jobs)) if id_ in here]
        found = PoolQueue(order=order, rows=rows, own=frozenset(id_ for _, _, id_ in rows))
        self._known[pool] = found
        return found
