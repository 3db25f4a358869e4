"""The calls of a search: the lengths that it assigns to its trials, and the progress of each."""

from __future__ import annotations

from typing import Any

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.searching import (
    CompleteOperationRequest,
    GetCurrentOperationResponse,
    GetSearchResponse,
    SearchedTrial,
    SearchOperation,
    ValidateAfter,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import experiment_at, trial_at
from resolute_master.domain.commands import CompleteOperation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.reports import better, number
from resolute_master.lifecycle.searching import method_of
from resolute_master.searcher.method import TrialState
from resolute_master.searcher.records import MemoryRecords
from resolute_master.store.base import TrialQuery

# -------------------------------------------------------------------------------------------------------- operations


async def current_operation(call: Call, trial: Trial) -> GetCurrentOperationResponse:
    """The length to which the search lets the trial train."""
    row = call.api.engine.state.get(SearchTrial, trial.task_id)
    if row is None or row.length is None:
        raise FailedPrecondition(
            f"trial {trial.id} is given no lengths: its configuration has no searcher.max_length; set it, or train to a "
            "length of your own"
        )
    op = SearchOperation(validate_after=ValidateAfter(length=str(row.length)))
    return GetCurrentOperationResponse(op=op, completed=row.completed or row.stopped or trial.state.stopping)


async def complete_operation(call: Call, trial: Trial) -> Empty:
    """Reports that the trial has trained to the length of its search, with its metric."""
    body = await call.body(CompleteOperationRequest)
    metric = number(body.searcher_metric)
    if metric is None:
        raise InvalidInput(f"searcherMetric: {body.searcher_metric!r} is no number; send the metric that was reached")
    length = _length(body.op.length)
    await call.api.engine.submit(CompleteOperation(trial=trial.id, length=length, metric=metric))
    return Empty()


def _length(value: Any) -> int:
    text = value if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"op.length: {value!r} is no whole number; send the length of the operation")
    return int(text)


# ----------------------------------------------------------------------------------------------------------- people


async def show_search(call: Call, experiment: Experiment) -> GetSearchResponse:
    """The state of the search of an experiment, also of one that has ended."""
    if experiment.unmanaged:
        raise FailedPrecondition(f"experiment {experiment.id} is unmanaged: its trials are not chosen by the master")
    rows = await call.api.store.search_rows(experiment.id)
    page = await call.api.store.page_trials(TrialQuery(experiment_id=experiment.id))
    trials = {trial.task_id: trial for trial in page.rows}
    records = _records(experiment.id, rows)
    method = method_of(experiment)
    shown: list[SearchedTrial] = []
    for row in rows:
        trial = trials.get(row.id)
        if trial is None:
            continue  # it was asked for when the experiment ended
        stage = method.stage(row, records)
        best = trial.best_validation
        shown.append(
            SearchedTrial(
                trial_id=trial.id,
                number=row.number,
                state=stage.state.value,
                reason=stage.reason,
                bracket=stage.bracket,
                rung=stage.rung,
                rungs=stage.rungs,
                rank=stage.rank,
                ranked=stage.ranked,
                length=row.length,
                metric=best.metric if best is not None else row.completed_metric,
                likelihood=row.worth.likelihood
                if stage.rung is not None and stage.state is TrialState.TRAINING
                else None,
            )
        )
    return GetSearchResponse(
        name=str(experiment.settings.searcher["name"]),
        metric=experiment.metric,
        smaller_is_better=experiment.smaller_is_better,
        progress=experiment.progress,
        trials=tuple(shown),
        best_trial_id=_best(shown, smaller=experiment.smaller_is_better),
    )


def _records(id_: ExperimentId, rows: tuple[SearchTrial, ...]) -> MemoryRecords:
    records = MemoryRecords(id_)
    for row in rows:
        records.put(row)
    return records


def _best(trials: list[SearchedTrial], *, smaller: bool) -> int | None:
    """The earliest trial with the best metric."""
    best: SearchedTrial | None = None
    for trial in trials:
        if trial.metric is not None and (best is None or better(trial.metric, best.metric or 0.0, smaller=smaller)):
            best = trial
    return None if best is None else best.trial_id


ROUTES = (
    Route(
        "GET",
        "/api/v1/trials/{trialId}/searcher/operation",
        Action.VIEW,
        trial_at("trialId"),
        current_operation,
    ),
    Route(
        "POST",
        "/api/v1/trials/{trialId}/searcher/completed_operation",
        Action.REPORT,
        trial_at("trialId"),
        complete_operation,
    ),
    Route("GET", "/api/v1/experiments/{experimentId}/search", Action.VIEW, experiment_at("experimentId"), show_search),
)
