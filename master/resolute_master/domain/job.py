"""The unit that scheduling policies apply to: an experiment, or a single interactive task."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId, JobId, PoolName, UserId


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """The owner, pool and importance of work. Priority 1 is the most important, 99 the least.

    `queue_position` orders jobs of one priority; smaller is earlier. It starts as the submission time in seconds since 1970,
    changes when the job, or one beside it, is moved by hand, and is the submission time again after a change of priority or pool.
    """

    id: JobId
    kind: str
    """`EXPERIMENT` or the task type of an interactive task."""
    name: str
    owner: UserId
    workspace_id: int
    project_id: int
    pool: PoolName
    priority: int
    weight: float
    max_slots: int | None
    submitted_at: datetime
    queue_position: float
    experiment_id: ExperimentId | None = None
    ended: bool = False
    hold: str = ""
    """Why nothing more of it may start for now; empty when it may."""

    @property
    def as_scheduled(self) -> Job:
        """As the scheduler takes it: one that is held may have no slot more than it has."""
        return replace(self, max_slots=0) if self.hold else self

    def hold_of(self, slots: int) -> str:
        """Why an allocation with this number of slots may not start for now: without slots it costs nothing, and is never held."""
        return self.hold if slots else ""

    @property
    def at_its_time(self) -> Job:
        """Without a place that was given by hand: that was one among other jobs, of this priority and pool."""
        return replace(self, queue_position=self.submitted_at.timestamp())

    def moved_to(self, pool: PoolName) -> Job:
        return replace(self.at_its_time, pool=pool)

    @property
    def place(self) -> tuple[float, datetime, JobId]:
        """The order of the jobs of one priority in one pool."""
        return self.queue_position, self.submitted_at, self.id
