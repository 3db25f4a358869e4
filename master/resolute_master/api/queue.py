"""Where jobs stand in their queues, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass

from resolute.wire.rest.enums import JobState
from resolute.wire.rest.experiments import JobSummary
from resolute.wire.rest.jobs import QueueStats
from resolute.wire.states import ExperimentState
from resolute_master.api.context import ApiContext
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    state: JobState
    jobs_ahead: int
    requested_slots: int
    allocated_slots: int


def standings(api: ApiContext, pool: PoolName) -> dict[str, JobStanding]:
    """Of every job of the pool that waits or runs, by its id."""
    found: dict[str, JobStanding] = {}
    ahead = 0
    jobs = [job for job in api.engine.state.all(Job) if job.pool == pool and not job.ended]
    for job in sorted(jobs, key=lambda job: (job.priority, job.queue_position, job.id)):
        open_ = [a for a in api.engine.state.find(Allocation, "allocations_of_job", job.id) if not a.ended]
        held = sum(len(a.held_slots) for a in open_)
        waiting = any(a.assigned_at is None for a in open_)
        if not open_:
            continue
        state = JobState.QUEUED if waiting and not held else JobState.SCHEDULED
        found[job.id] = JobStanding(
            state=state,
            jobs_ahead=ahead,
            requested_slots=sum(a.slots_needed for a in open_),
            allocated_slots=held,
        )
        ahead += state is JobState.QUEUED
    return found


def summary_of(standing: JobStanding | None) -> JobSummary:
    """A job that the scheduler does not know (paused, between two runs) is queued behind nobody."""
    if standing is None:
        return JobSummary(state=JobState.QUEUED, jobs_ahead=0)
    return JobSummary(state=JobState[standing.state.name], jobs_ahead=standing.jobs_ahead)


def job_summary(api: ApiContext, experiment: Experiment) -> JobSummary | None:
    """Only of an active experiment."""
    job = api.engine.state.get(Job, experiment.job_id)
    if experiment.state is not ExperimentState.ACTIVE or job is None or job.pool not in api.engine.pools:
        return None
    return summary_of(standings(api, job.pool).get(job.id))


def queue_stats(api: ApiContext, pool: PoolName) -> QueueStats:
    """How many jobs of the pool wait, and how many have all or some of their slots."""
    states = [standing.state.name for standing in standings(api, pool).values()]
    queued = sum(state == JobState.QUEUED.name for state in states)
    return QueueStats(queued_count=queued, scheduled_count=len(states) - queued)
