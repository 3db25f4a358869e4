"""Trials: show, kill; what their runs report besides metrics."""

from __future__ import annotations

import math

from resolute.errors import InvalidInput
from resolute.wire.rest.checkpoints import GetCheckpointsQuery, GetTrialCheckpointsResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import EarlyExitReason
from resolute.wire.rest.trials import (
    GetTrialResponse,
    ReportTrialProgressRequest,
    TrialEarlyExit,
    TrialRunnerMetadata,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import find_experiment, trial_at
from resolute_master.api.reading.listing import page_of_checkpoints
from resolute_master.api.reading.showing import show_trial
from resolute_master.domain.commands import KillTrial, ReportEarlyExit, ReportProgress, ReportRunnerState
from resolute_master.domain.trial import Trial
from resolute_master.store.base import CheckpointQuery

INVALID_HPARAMS = (EarlyExitReason.INVALID_HP, EarlyExitReason.INIT_INVALID_HP)
MAX_RUNNER_STATE = 1000
"""Most characters of the text that describes what the trial does. Longer texts belong in the log."""


async def get_trial(call: Call, trial: Trial) -> GetTrialResponse:
    """A trial."""
    return GetTrialResponse(trial=await show_trial(call.api, trial, with_summaries=True))


async def kill(call: Call, trial: Trial) -> Empty:
    """Kills a trial. Its checkpoints stay."""
    await call.api.engine.submit(KillTrial(trial=trial.id))
    return Empty()


async def list_checkpoints(call: Call, trial: Trial) -> GetTrialCheckpointsResponse:
    """One page of the checkpoints of a trial, by state and order."""
    query = call.query(GetCheckpointsQuery)
    rows, pages = await page_of_checkpoints(call.api, CheckpointQuery(trial_id=trial.id), query)
    return GetTrialCheckpointsResponse(checkpoints=rows, pagination=pages)


# --------------------------------------------------------------------------------------------------------- reports


async def report_progress(call: Call, trial: Trial) -> Empty:
    """Stores the progress of a trial: a fraction, or steps of the searcher's length if the value is not raw."""
    report = await call.body(ReportTrialProgressRequest)
    if not math.isfinite(report.progress) or report.progress < 0:
        raise InvalidInput(f"progress: {report.progress} is no share of the work; send a number from 0 to 1")
    progress = report.progress
    if not report.is_raw:
        progress = progress / await _length(call, trial)
    await call.api.engine.submit(ReportProgress(trial=trial.id, progress=min(progress, 1.0)))
    return Empty()


async def _length(call: Call, trial: Trial) -> float:
    experiment = await find_experiment(call.api, trial.experiment_id)
    searcher = experiment.config["searcher"]
    length = searcher.get("max_length") or searcher.get("length_per_round")
    if isinstance(length, dict):
        length = next(iter(length.values()), None)
    if not isinstance(length, int) or length <= 0:
        raise InvalidInput("progress: this search has no length to compare with; send a fraction and isRaw true")
    return float(length)


async def report_early_exit(call: Call, trial: Trial) -> Empty:
    """Reports from inside the trial that it ends before its search expects it."""
    report = await call.body(TrialEarlyExit)
    if report.reason not in INVALID_HPARAMS:
        raise InvalidInput(f"reason: {report.reason} cannot be reported; a trial that has completed exits with 0")
    await call.api.engine.submit(ReportEarlyExit(trial=trial.id, invalid_hparams=True))
    return Empty()


async def report_runner_state(call: Call, trial: Trial) -> Empty:
    """Reports the state of the process of a trial."""
    report = await call.body(TrialRunnerMetadata)
    await call.api.engine.submit(ReportRunnerState(trial=trial.id, state=report.state[:MAX_RUNNER_STATE]))
    return Empty()


_AT = "/api/v1/trials/{trialId}"
_one = trial_at("trialId")

ROUTES = (
    Route("GET", _AT, Action.VIEW, _one, get_trial),
    Route("POST", f"{_AT}/kill", Action.KILL, _one, kill),
    Route("GET", f"{_AT}/checkpoints", Action.VIEW, _one, list_checkpoints),
    Route("POST", f"{_AT}/progress", Action.REPORT, _one, report_progress),
    Route("POST", f"{_AT}/early_exit", Action.REPORT, _one, report_early_exit),
    Route("POST", f"{_AT}/runner/metadata", Action.REPORT, _one, report_runner_state),
)
