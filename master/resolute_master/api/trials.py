"""Trials: show, kill, their timeline; what their runs report besides metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resolute.errors import InvalidInput
from resolute.wire.rest.checkpoints import GetCheckpointsQuery, GetTrialCheckpointsResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import EarlyExitReason, MetricType, OrderBy, WorkloadFilter
from resolute.wire.rest.trials import (
    GetTrialResponse,
    GetTrialWorkloadsQuery,
    GetTrialWorkloadsResponse,
    ReportTrialProgressRequest,
    TrialEarlyExit,
    TrialRunnerMetadata,
    WorkloadContainer,
)
from resolute.wire.states import CheckpointState
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route
from resolute_master.api.finders import find_experiment, trial_at
from resolute_master.api.listing import page_of_checkpoints
from resolute_master.api.paging import page_of
from resolute_master.api.render.trials import checkpoint_workload, metrics_workload
from resolute_master.api.showing import show_trial
from resolute_master.domain.commands import KillTrial, ReportEarlyExit, ReportProgress, ReportRunnerState
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.checkpoints import searcher_metric
from resolute_master.store.base import CheckpointQuery

TRAINING = "training"
VALIDATION = "validation"
INVALID_HPARAMS = (EarlyExitReason.INVALID_HP, EarlyExitReason.INIT_INVALID_HP)
MAX_RUNNER_STATE = 1000
"""A sentence on what the trial is doing; more belongs into the log."""


async def get_trial(call: Call, trial: Trial) -> GetTrialResponse:
    return GetTrialResponse(trial=await show_trial(call.api, trial, with_summaries=True))


async def kill(call: Call, trial: Trial) -> Empty:
    await call.api.engine.submit(KillTrial(trial=trial.id))
    return Empty()


async def list_checkpoints(call: Call, trial: Trial) -> GetTrialCheckpointsResponse:
    query = call.query(GetCheckpointsQuery)
    rows, pages = await page_of_checkpoints(call.api, CheckpointQuery(trial_id=trial.id), query)
    return GetTrialCheckpointsResponse(checkpoints=rows, pagination=pages)


# -------------------------------------------------------------------------------------------------------- timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One entry of the timeline: after `steps`, training before validation before checkpoint."""

    steps: int
    rank: int
    metric: float | None
    shown: WorkloadContainer


async def workloads(call: Call, trial: Trial) -> GetTrialWorkloadsResponse:
    query = call.query(GetTrialWorkloadsQuery)
    entries = [*await _reports(call, trial, query), *await _checkpoints(call, trial, query)]
    rows, pages = page_of(_sorted(entries, query), offset=query.offset, limit=query.limit)
    return GetTrialWorkloadsResponse(workloads=tuple(entry.shown for entry in rows), pagination=pages)


async def _reports(call: Call, trial: Trial, query: GetTrialWorkloadsQuery) -> list[_Entry]:
    wanted = {
        MetricType.TRAINING: (TRAINING,),
        MetricType.VALIDATION: (VALIDATION,),
        MetricType.PROFILING: (),
    }.get(query.metric_type, (TRAINING, VALIDATION))
    groups = {query.group} if query.group else set(wanted)
    if query.filter is WorkloadFilter.CHECKPOINT:
        return []
    if query.filter in (WorkloadFilter.VALIDATION, WorkloadFilter.CHECKPOINT_OR_VALIDATION):
        groups &= {VALIDATION}
    reports = await call.api.store.metrics(trial.id)
    return [_report_entry(r, query) for r in reports if r.group in groups]


def _report_entry(report: MetricReport, query: GetTrialWorkloadsQuery) -> _Entry:
    shown = metrics_workload(report, with_batches=query.include_batch_metrics)
    is_validation = report.group == VALIDATION
    return _Entry(
        steps=report.steps_completed or 0,
        rank=1 if is_validation else 0,
        metric=searcher_metric(report.metrics, query.sort_key or ""),
        shown=WorkloadContainer(validation=shown) if is_validation else WorkloadContainer(training=shown),
    )


async def _checkpoints(call: Call, trial: Trial, query: GetTrialWorkloadsQuery) -> list[_Entry]:
    only_metrics = query.metric_type is not MetricType.UNSPECIFIED or query.filter is WorkloadFilter.VALIDATION
    if only_metrics or query.group:
        return []
    states = () if query.remove_deleted_checkpoints else tuple(CheckpointState)
    found = await call.api.store.checkpoints(CheckpointQuery(trial_id=trial.id, states=states))
    return [
        _Entry(steps=c.steps_completed, rank=2, metric=None, shown=WorkloadContainer(checkpoint=checkpoint_workload(c)))
        for c in found
    ]


def _sorted(entries: list[_Entry], query: GetTrialWorkloadsQuery) -> list[_Entry]:
    """By steps, or by a metric with the entries that lack it last."""
    descending = query.order_by is OrderBy.DESC
    entries = sorted(entries, key=lambda e: (e.steps, e.rank), reverse=descending)
    if not query.sort_key or query.sort_key == "batches":
        return entries
    having = [e for e in entries if e.metric is not None and not math.isnan(e.metric)]
    having.sort(key=lambda e: e.metric or 0.0, reverse=descending)
    return having + [e for e in entries if e.metric is None or math.isnan(e.metric)]


# --------------------------------------------------------------------------------------------------------- reports


async def report_progress(call: Call, trial: Trial) -> Empty:
    """The contract's clients send a fraction, or where it is not raw, steps out of the searcher's length."""
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
    report = await call.body(TrialEarlyExit)
    if report.reason not in INVALID_HPARAMS:
        raise InvalidInput(f"reason: {report.reason} cannot be reported; a trial that is done only has to exit with 0")
    await call.api.engine.submit(ReportEarlyExit(trial=trial.id, invalid_hparams=True))
    return Empty()


async def report_runner_state(call: Call, trial: Trial) -> Empty:
    report = await call.body(TrialRunnerMetadata)
    await call.api.engine.submit(ReportRunnerState(trial=trial.id, state=report.state[:MAX_RUNNER_STATE]))
    return Empty()


_AT = "/api/v1/trials/{trialId}"
_one = trial_at("trialId")

ROUTES = (
    Route("GET", _AT, Action.VIEW, _one, get_trial),
    Route("POST", f"{_AT}/kill", Action.KILL, _one, kill),
    Route("GET", f"{_AT}/checkpoints", Action.VIEW, _one, list_checkpoints),
    Route("GET", f"{_AT}/workloads", Action.VIEW, _one, workloads),
    Route("POST", f"{_AT}/progress", Action.REPORT, _one, report_progress),
    Route("POST", f"{_AT}/early_exit", Action.REPORT, _one, report_early_exit),
    Route("POST", f"{_AT}/runner/metadata", Action.REPORT, _one, report_runner_state),
)
