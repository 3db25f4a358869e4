"""The job queue."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute.wire.rest.enums import JobState, JobType, OrderBy
from resolute.wire.rest.experiments import JobSummary
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with everything about it. `reason`: why none of it runs, as in `ExplainJobResponse.reason`; None when it runs, or
    when the query did not request it (`GetJobsQuery.reasons`). An extension of the contract."""

    allocated_slots: int
    entity_id: str
    is_preemptible: bool
    job_id: str
    name: str
    requested_slots: int
    resource_pool: str
    submission_time: datetime
    type: JobType
    username: str
    workspace_id: int
    priority: int | None = None
    progress: float | None = None
    reason: str | None = None
    summary: JobSummary | None = None
    user_id: int | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedJob:
    """A job for callers without access to its details."""

    allocated_slots: int
    is_preemptible: bool
    job_id: str
    requested_slots: int
    resource_pool: str
    type: JobType
    workspace_id: int
    priority: int | None = None
    progress: float | None = None
    summary: JobSummary | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RBACJob:
    """Exactly one of the two is set."""

    full: Job | None = None
    limited: LimitedJob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetJobsV2Response:
    """A page of the queue."""

    jobs: tuple[RBACJob, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class GetJobsResponse:
    """A page of the queue, in the older shape."""

    jobs: tuple[Job, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueControl:
    """One change of a job; None leaves a field as it is."""

    job_id: str
    ahead_of: str | None = None
    behind_of: str | None = None
    priority: int | None = None
    resource_pool: str | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJobQueueRequest:
    """Changes to make, in order."""

    updates: tuple[QueueControl, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """How many jobs wait and run."""

    queued_count: int
    scheduled_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateQueueStats:
    """Mean waiting time of a period."""

    period_start: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RPQueueStat:
    """The queue of one pool."""

    resource_pool: str
    stats: QueueStats
    aggregates: tuple[AggregateQueueStats, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetJobQueueStatsResponse:
    """The queues of all pools asked for."""

    results: tuple[RPQueueStat, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetJobsQuery:
    """Query of the queue; `limit` 0 means 100. `reasons`: include why none of a job runs, which requires a new decision."""

    limit: int = 0
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    reasons: bool = False
    resource_pool: str | None = None
    states: tuple[JobState, ...] = ()
