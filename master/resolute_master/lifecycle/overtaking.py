"""The jobs that a change of a job's place in the queue would put it ahead of."""

from __future__ import annotations

from datetime import datetime

from resolute.wire.states import ExperimentState
from resolute_master.domain.commands import UpdateJob
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import JobId
from resolute_master.domain.job import Job
from resolute_master.lifecycle.cluster import ClusterState

Standing = tuple[int, tuple[float, datetime, JobId]]


def overtaken(state: ClusterState, change: UpdateJob) -> tuple[Job, ...]:
    """The queued jobs that are ahead of `change.job` now and would be behind it. In a fair-share pool place and priority have no
    meaning, and a change of them is refused or has no effect; in another pool the place of a job follows from its submission."""
    job = state.get(Job, change.job)
    if job is None or job.ended or change.pool is not None:
        return ()
    bounds = _bounds(state, job, change)
    if bounds is None:
        return ()
    new, inclusive = bounds
    passed = (
        other
        for other in state.all(Job)
        if other.pool == job.pool
        and other.id != job.id
        and _is_queued(state, other)
        and _standing(other) < _standing(job)
    )
    return tuple(other for other in passed if _standing(other) > new or (inclusive and _standing(other) == new))


def _bounds(state: ClusterState, job: Job, change: UpdateJob) -> tuple[Standing, bool] | None:
    """The place that the job would get, and whether it is put ahead of the job there; None if its place does not change."""
    anchor_id = change.ahead_of if change.ahead_of is not None else change.behind_of
    if anchor_id is not None:
        anchor = state.get(Job, anchor_id)
        return None if anchor is None else (_standing(anchor), change.ahead_of is not None)
    if change.priority is None:
        return None
    return _standing(replace(job.at_its_time, priority=change.priority)), False


def _standing(job: Job) -> Standing:
    return job.priority, job.place


def _is_queued(state: ClusterState, job: Job) -> bool:
    """Whether the job is in the queue. Jobs of paused experiments are not."""
    if job.ended or job.experiment_id is None:
        return not job.ended
    experiment = state.get(Experiment, job.experiment_id)
    return experiment is not None and experiment.state is ExperimentState.ACTIVE
