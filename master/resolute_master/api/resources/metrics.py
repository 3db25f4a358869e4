"""Metric reports, and streams of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.metrics import (
    GetMetricsQuery,
    GetMetricsResponse,
    GetTrainingMetricsResponse,
    GetValidationMetricsResponse,
    MetricsReport,
    ReportTrialMetricsRequest,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.limits import (
    MAX_GROUP_LENGTH,
    MAX_METRIC_NAME_LENGTH,
    MAX_METRIC_NAMES,
    MAX_TRIALS_PER_STREAM,
)
from resolute_master.api.http.streaming import stream
from resolute_master.api.reading.finders import find_trial, trial_at
from resolute_master.api.submission.sent_reports import SentReport, decode_report
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.event_loop import yielding
from resolute_master.store.base import MetricOutcome

TRAINING = "training"
VALIDATION = "validation"
SYSTEM_GROUPS = frozenset({"gpu", "cpu", "memory", "disk", "network"})
"""Measurements of the machine: keyed by their time, not by a step."""
EPOCHS = ("epoch", "epochs")
BATCH = 1000
"""Reports per line of the stream."""
MAX_STEPS = 2**53
"""The largest count that every client reads exactly."""


async def report(call: Call, trial: Trial) -> Empty:
    """Stores a report and answers when it is durable. A repeat is harmless; a different value for the same step is refused."""
    sent = decode_report(await call.raw())
    request = sent if sent is not None else await call.body(ReportTrialMetricsRequest)
    _check(request)
    values = request.metrics
    if values.trial_run_id > trial.run_id:
        raise InvalidInput(f"metrics.trialRunId: trial {trial.id} is at run {trial.run_id}, not {values.trial_run_id}")
    outcome = await call.api.reporting.metrics(
        MetricReport(
            trial_id=trial.id,
            run_id=values.trial_run_id,
            group=request.group,
            steps_completed=None if request.group in SYSTEM_GROUPS else values.steps_completed,
            reported_at=values.report_time or call.api.clock.now(),
            metrics=values.metrics.avg_metrics,
            batch_metrics=values.metrics.batch_metrics or None,
        )
    )
    if outcome is MetricOutcome.CONFLICT:
        raise InvalidInput(
            f"metrics: group '{request.group}' of trial {trial.id} has other values at step {values.steps_completed} "
            "already; a step can be reported once"
        )
    return Empty()


def _check(request: ReportTrialMetricsRequest | SentReport) -> None:
    if not request.group or "." in request.group:
        raise InvalidInput(f"group: '{request.group}' must be a name without a dot")
    if len(request.group) > MAX_GROUP_LENGTH:
        raise InvalidInput(f"group: has {len(request.group)} characters, over the limit of {MAX_GROUP_LENGTH}")
    names = request.metrics.metrics.avg_metrics
    if len(names) > MAX_METRIC_NAMES:
        raise InvalidInput(
            f"metrics: {len(names)} metrics are over the limit of {MAX_METRIC_NAMES} of one report; split the report"
        )
    if max(map(len, names), default=0) > MAX_METRIC_NAME_LENGTH:
        raise InvalidInput(f"metrics: one has a name of more than {MAX_METRIC_NAME_LENGTH} characters; shorten it")
    steps = request.metrics.steps_completed
    if request.group not in SYSTEM_GROUPS and (steps is None or not 0 <= steps <= MAX_STEPS):
        raise InvalidInput(f"metrics.stepsCompleted: {steps} is no number of steps; send how many were done")
    for name in EPOCHS:
        value = names.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InvalidInput(f"metrics.{name}: {value!r} must be a number; use another name for it")


# --------------------------------------------------------------------------------------------------------- streams


async def _trials(call: Call) -> tuple[Trial, ...]:
    """The trials of the query, each found before the stream begins."""
    ids = call.query(GetMetricsQuery).trial_ids
    if not ids:
        raise InvalidInput("trialIds: name at least one trial")
    if len(ids) > MAX_TRIALS_PER_STREAM:
        raise InvalidInput(f"trialIds: {len(ids)} ids are over the limit of {MAX_TRIALS_PER_STREAM}; split the call")
    return tuple([await find_trial(call.api, id_) for id_ in sorted(set(ids))])


Item = Callable[[tuple[MetricsReport, ...]], object]

Numbered = tuple[int, Sequence[MetricReport]]
"""Reports, and the number of the first of them in the stream."""


async def any_group(call: Call, trials: tuple[Trial, ...]) -> web.StreamResponse:
    """Metrics of trials in any group, as a stream."""
    group = call.query(GetMetricsQuery).group
    if not group:
        raise InvalidInput("group: name a group of metrics, 'training' or 'validation' for example")
    return await _stream(call, trials, group, lambda rows: GetMetricsResponse(metrics=rows))


async def training(call: Call, trials: tuple[Trial, ...]) -> web.StreamResponse:
    """Training metrics of trials, as a stream."""
    return await _stream(call, trials, TRAINING, lambda rows: GetTrainingMetricsResponse(metrics=rows))


async def validation(call: Call, trials: tuple[Trial, ...]) -> web.StreamResponse:
    """Validation metrics of trials, as a stream."""
    return await _stream(call, trials, VALIDATION, lambda rows: GetValidationMetricsResponse(metrics=rows))


async def _stream(call: Call, trials: Sequence[Trial], group: str, item: Item) -> web.StreamResponse:
    def render(batch: Numbered) -> object:
        first, reports = batch
        return item(tuple(render_report(row, number) for number, row in enumerate(yielding(reports), first)))

    return await stream(call, _batches(call, [t.id for t in trials], group), render=render)


async def _batches(call: Call, trials: Sequence[TrialId], group: str) -> AsyncGenerator[Numbered, None]:
    """Reports by trial and step, in batches that are never empty. Reports of small trials share one."""
    number = 1
    waiting: list[MetricReport] = []
    for trial in trials:
        async for page in call.api.store.metric_pages(trial, group, include_archived=True):
            waiting += page
            while len(waiting) >= BATCH:
                yield number, waiting[:BATCH]
                number += BATCH
                waiting = waiting[BATCH:]
    if waiting:
        yield number, waiting


def render_report(row: MetricReport, number: int) -> MetricsReport:
    values: dict[str, Any] = {VALIDATION + "_metrics" if row.group == VALIDATION else "avg_metrics": row.metrics}
    if row.batch_metrics:
        values["batch_metrics"] = row.batch_metrics
    return MetricsReport(
        id=number,
        trial_id=row.trial_id,
        trial_run_id=row.run_id,
        group=row.group,
        total_batches=row.steps_completed or 0,
        end_time=row.reported_at,
        archived=row.archived,
        metrics=values,
    )


_STREAMS = "/api/v1/trials/metrics"

ROUTES = (
    Route("POST", "/api/v1/trials/{trialId}/metrics", Action.REPORT, trial_at("trialId"), report),
    Route("GET", f"{_STREAMS}/trial_metrics", Action.VIEW, _trials, any_group),
    Route("GET", f"{_STREAMS}/training_metrics", Action.VIEW, _trials, training),
    Route("GET", f"{_STREAMS}/validation_metrics", Action.VIEW, _trials, validation),
)
