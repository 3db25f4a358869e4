"""The progress of an experiment: its validations that were better than all before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime

from resolute.wire.rest.series import GetExperimentValidationHistoryResponse, ValidationHistoryEntry
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import experiment_at, trials_of
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.lifecycle.checkpoints import searcher_metric
from resolute_master.lifecycle.reports import better
from resolute_master.store.metric_rows import VALIDATION

READ_AT_ONCE = 1_000
"""Reports of several trials that are read together; one with more is read by page."""

TRIALS_AT_ONCE = 200
LAST_STEP = 2**63 - 1

Result = tuple[datetime, int, float]
"""Time of a validation, its trial and its metric."""


async def history(call: Call, experiment: Experiment) -> GetExperimentValidationHistoryResponse:
    """The validations of an experiment that were the best at their time."""
    found: list[Result] = []
    async for reports in _validations(call.api, [trial.id for trial in await trials_of(call.api, experiment)]):
        found = improvements([*found, *_results(reports, experiment.metric)], smaller=experiment.smaller_is_better)
    entries = (ValidationHistoryEntry(end_time=at, trial_id=trial, searcher_metric=value) for at, trial, value in found)
    return GetExperimentValidationHistoryResponse(validation_history=tuple(entries))


def improvements(results: Iterable[Result], *, smaller: bool) -> list[Result]:
    """The results that are better than all before them, by time. To combine several parts, the improvements of each part are
    enough."""
    found: list[Result] = []
    for result in sorted(results):
        if not found or better(result[2], found[-1][2], smaller=smaller):
            found.append(result)
    return found


def _results(reports: Sequence[MetricReport], metric: str) -> list[Result]:
    values = ((report, searcher_metric(report.metrics, metric)) for report in reports)
    return [
        (report.reported_at, report.trial_id, value) for report, value in values if value is not None and value == value
    ]


async def _validations(api: ApiContext, trials: Sequence[TrialId]) -> AsyncIterator[Sequence[MetricReport]]:
    """The validations that count, in batches, in any order."""
    together: list[TrialId] = []
    held = 0
    async for trial, reports in _counts(api, trials):
        if reports > READ_AT_ONCE:
            async for page in api.store.metric_pages(trial, VALIDATION):
                yield page
            continue
        if held + reports > READ_AT_ONCE:
            yield await api.store.metrics_between(together, VALIDATION, first_step=0, last_step=LAST_STEP)
            together, held = [], 0
        together.append(trial)
        held += reports
    if together:
        yield await api.store.metrics_between(together, VALIDATION, first_step=0, last_step=LAST_STEP)


async def _counts(api: ApiContext, trials: Sequence[TrialId]) -> AsyncIterator[tuple[TrialId, int]]:
    """Trials with validations, and their number."""
    for first in range(0, len(trials), TRIALS_AT_ONCE):
        some = trials[first : first + TRIALS_AT_ONCE]
        chunks = await api.store.metric_chunks(some, [VALIDATION])
        for trial in some:
            reports = sum(chunk.reports for chunk in chunks.get((trial, VALIDATION), ()))
            if reports:
                yield trial, reports


ROUTES = (
    Route(
        "GET",
        "/api/v1/experiments/{experimentId}/validation-history",
        Action.VIEW,
        experiment_at("experimentId"),
        history,
    ),
)
