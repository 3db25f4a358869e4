"""The positions of jobs in their queues, as the scheduler orders them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from resolute.wire.rest.enums import JobState
from resolute.wire.rest.experiments import JobSummary
from resolute.wire.rest.jobs import QueueStats
from resolute.wire.states import ExperimentState
from resolute_master.api.context import ApiContext
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.event_loop import yielding
from resolute_master.scheduler import job_states as scheduler
from resolute_master.scheduler.job_states import JobStanding
from resolute_master.scheduler.snapshot import PoolSnapshot

_SHOWN = {
    scheduler.JobState.IDLE: JobState.QUEUED,
    scheduler.JobState.QUEUED: JobState.QUEUED,
    scheduler.JobState.SCHEDULED: JobState.SCHEDULED,
    scheduler.JobState.SCHEDULED_BACKFILLED: JobState.SCHEDULED_BACKFILLED,
}
"""Displayed states. A job between two runs is shown in the queue, because it will request slots soon."""

UNKNOWN = -1
"""The contract's number of jobs ahead where none is defined."""


def standing_without_pool(id_: JobId) -> JobStanding:
    """The position of a job whose pool was removed from the configuration: it has none."""
    state = scheduler.JobState.QUEUED
    return JobStanding(job=id_, state=state, jobs_ahead=UNKNOWN, requested_slots=0, allocated_slots=0)


class Moving(NamedTuple):
    """The pool that a job has left, in which runs of it still save and end, and the slots that they requested."""

    pool: PoolName
    slots: int


def moving_from(snapshots: Mapping[PoolName, PoolSnapshot], job: Job) -> Moving | None:
    """Where runs of a moved job still are. None if none is in another pool."""
    for pool, snapshot in snapshots.items():
        ids = snapshot.job_allocations.get(job.id) if pool != job.pool else None
        if ids:
            return Moving(pool, sum(snapshot.allocations[id_].slots_needed for id_ in ids))
    return None


def standing_while_moving(id_: JobId, slots: int) -> JobStanding:
    """Standing of a job that was moved to a pool in which none of its allocations is pending yet."""
    state = scheduler.JobState.IDLE
    return JobStanding(job=id_, state=state, jobs_ahead=UNKNOWN, requested_slots=slots, allocated_slots=0)


def summary_of(standing: JobStanding | None) -> JobSummary:
    if standing is None:
        return JobSummary(state=JobState.QUEUED, jobs_ahead=UNKNOWN)
    return JobSummary(state=_SHOWN[standing.state], jobs_ahead=standing.jobs_ahead)


async def job_summary(api: ApiContext, experiment: Experiment) -> JobSummary | None:
    """The number of jobs before a job of an active experiment. Call it in a thread, because it compares every job."""
    job = api.engine.state.get(Job, experiment.job_id)
    if experiment.state is not ExperimentState.ACTIVE or job is None:
        return None
    if job.pool not in api.engine.pools:
        return summary_of(standing_without_pool(job.id))
    snapshot = api.engine.snapshot(job.pool)
    return summary_of(await asyncio.to_thread(scheduler.job_standing, snapshot, job.id, walk=yielding))


def queue_stats(snapshot: PoolSnapshot) -> QueueStats:
    """The numbers of jobs of the pool that wait, and that have all or some of their slots. Call it in a thread."""
    jobs, queued = scheduler.count_jobs(snapshot, walk=yielding)
    return QueueStats(queued_count=queued, scheduled_count=jobs - queued)
