"""The retention of logs, and the removal of expired logs."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from resolute.wire.rest.empty import Empty
from resolute.wire.rest.experiment_changes import PutExperimentRetainLogsRequest
from resolute.wire.rest.logs import CleanupLogsResponse
from resolute.wire.rest.trials import GetTrialRemainingLogRetentionDaysResponse, PutTrialRetainLogsRequest
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.finders import experiment_at, trial_at
from resolute_master.domain.commands import SetExperimentLogRetention, SetTrialLogRetention
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from resolute_master.store.base import ExperimentQuery, TrialQuery

FOR_EVER = -1
PAGE = 100
"""Experiments that are read at once."""

ENDED = tuple(state for state in ExperimentState if state.terminal)


async def retain_logs_of_experiment(call: Call, experiment: Experiment) -> Empty:
    """Sets the log retention of all trials of an experiment."""
    days = (await call.body(PutExperimentRetainLogsRequest)).num_days
    await call.api.engine.submit(SetExperimentLogRetention(experiment=experiment.id, days=days))
    return Empty()


async def retain_logs_of_trial(call: Call, trial: Trial) -> Empty:
    """Sets the log retention of a trial."""
    days = (await call.body(PutTrialRetainLogsRequest)).num_days
    await call.api.engine.submit(SetTrialLogRetention(trial=trial.id, days=days))
    return Empty()


async def remaining_days(call: Call, trial: Trial) -> GetTrialRemainingLogRetentionDaysResponse:
    """Days until the log of a trial is removed."""
    now, cluster = call.api.clock.now(), call.api.config.retention_policy.log_retention_days
    return GetTrialRemainingLogRetentionDaysResponse(remaining_days=days_left(trial, now, cluster_days=cluster))


async def clean_up(call: Call, _: None) -> CleanupLogsResponse:
    """Removes expired logs one trial at a time, so that transactions are short. The next clean-up completes an interrupted one."""
    now = call.api.clock.now()
    removed = 0
    async for trial in _ended_trials(call.api):
        if is_due(trial, now, cluster_days=call.api.config.retention_policy.log_retention_days):
            removed += await call.api.store.remove_logs([trial.task_id])
    return CleanupLogsResponse(removed_count=removed)


async def _ended_trials(api: ApiContext) -> AsyncIterator[Trial]:
    offset = 0
    while True:
        page = await api.store.page_experiments(ExperimentQuery(offset=offset, limit=PAGE, states=ENDED))
        for experiment in page.rows:
            for trial in (await api.store.page_trials(TrialQuery(experiment_id=experiment.id))).rows:
                yield trial
        offset += len(page.rows)
        if not page.rows or offset >= page.total:
            return


def is_due(trial: Trial, now: datetime, *, cluster_days: int) -> bool:
    """Whether the retention period of the trial's log has passed."""
    return trial.ended_at is not None and days_left(trial, now, cluster_days=cluster_days) == 0


def days_left(trial: Trial, now: datetime, *, cluster_days: int) -> int:
    """Days until the log is removed, rounded up, from the end of the trial. The trial's setting takes precedence over the
    cluster's."""
    days = cluster_days if trial.log_retention_days is None else trial.log_retention_days
    if days == FOR_EVER or trial.ended_at is None:
        return days
    return max(0, math.ceil((trial.ended_at + timedelta(days=days) - now) / timedelta(days=1)))


ROUTES = (
    Route(
        "PUT",
        "/api/v1/experiments/{experimentId}/retain_logs",
        Action.CONTROL_EXPERIMENT,
        experiment_at("experimentId"),
        retain_logs_of_experiment,
    ),
    Route(
        "PUT",
        "/api/v1/trials/{trialId}/retain_logs",
        Action.CONTROL_EXPERIMENT,
        trial_at("trialId"),
        retain_logs_of_trial,
    ),
    Route(
        "GET", "/api/v1/trials/{trialId}/remaining_log_retention_days", Action.VIEW, trial_at("trialId"), remaining_days
    ),
    Route("POST", "/api/v1/cleanup_logs", Action.CLEAN_UP, nothing, clean_up),
)
