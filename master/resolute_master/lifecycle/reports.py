"""Reports of training code: metrics that are durable already, checkpoints, progress, metadata. Reports of older runs are
refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from resolute.errors import AlreadyExists, Conflict, FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import CheckpointState
from resolute.wire.states import ExperimentState as S
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import ReportCheckpoint, StoredReport
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, TrialId, task_of
from resolute_master.domain.trial import CheckpointRef, Pace, Trial, Validation
from resolute_master.lifecycle import allocation_fsm, allocations, experiments, searching, unmanaged
from resolute_master.lifecycle.step import Step
from resolute_master.searcher import events as search

NAMES_SHOWN = 8
"""Number of metrics that a warning names."""


def need_trial(step: Step, id_: TrialId) -> Trial:
    trial = step.get(Trial, id_)
    if trial is None:
        raise NotFound("trial", id_)
    return trial


# --------------------------------------------------------------------------------------------------------- metrics


def record(step: Step, report: StoredReport) -> None:
    """Advance the trial; the search receives a new validation. Repeats change nothing."""
    trial = step.get(Trial, report.trial)
    if trial is None or report.run_id < trial.run_id:
        return
    pace = _pace(trial.pace, report)
    if report.run_id > trial.reported_run:
        # A new run begins where its checkpoint was: what older runs did past that does not count any more.
        step.put(replace(trial, steps_completed=report.steps_completed, reported_run=report.run_id, pace=pace))
    elif report.steps_completed > trial.steps_completed:
        step.put(replace(trial, steps_completed=report.steps_completed, pace=pace))
    if trial.last_report_at is not None:
        unmanaged.record_contact(step, report.trial, None)
    if report.validation is not None:
        _validated(step, need_trial(step, report.trial), report, report.validation)


def _pace(before: Pace | None, report: StoredReport) -> Pace:
    steps, at = report.steps_completed, report.reported_at
    if before is None:
        return Pace(run_id=report.run_id, first_steps=steps, first_at=at, steps=steps, at=at)
    return before.reported(report.run_id, steps, at)


def _validated(step: Step, trial: Trial, report: StoredReport, metrics: Mapping[str, Any]) -> None:
    experiment = step.need(Experiment, trial.experiment_id)
    metric = number(metrics.get(experiment.metric))
    news = report.steps_completed > trial.searched_steps
    if metric is None:
        _not_ranked(step, experiment, trial, report.steps_completed, metrics)
    else:
        _keep_validation(step, trial, report, metrics, metric)
    if not news or experiment.state.gone:
        return
    time_metric = experiment.settings.searcher.get("time_metric")
    event = search.ValidationCompleted(
        request_id=trial.request_id,
        metric=metric,
        steps_completed=report.steps_completed,
        time=None if time_metric is None else number(metrics.get(time_metric)),
    )
    experiments.notify_search(step, experiment.id, event)


def _keep_validation(step: Step, trial: Trial, report: StoredReport, metrics: Mapping[str, Any], metric: float) -> None:
    """Records a validation as the trial's latest and, if it is, as the trial's best and the experiment's best."""
    experiment = step.need(Experiment, trial.experiment_id)
    validation = Validation(
        steps_completed=report.steps_completed, metric=metric, at=report.reported_at, metrics=metrics
    )
    best = trial.best_validation
    if best is None or better(metric, best.metric, smaller=experiment.smaller_is_better):
        best = validation
    step.put(
        replace(
            trial,
            latest_validation=validation,
            best_validation=best,
            searched_steps=max(trial.searched_steps, report.steps_completed),
        )
    )
    top = experiment.best_validation
    if top is None or better(metric, top, smaller=experiment.smaller_is_better):
        experiment = replace(experiment, best_validation=metric, best_trial=trial.id)
    step.put(replace(experiment, metric_warning=""))


def _not_ranked(step: Step, experiment: Experiment, trial: Trial, steps: int, metrics: Mapping[str, Any]) -> None:
    """Warn once that the search cannot rank these validations."""
    if experiment.metric_warning or experiment.best_validation is not None:
        return
    text = metric_warning(experiment.metric, trial.id, steps, metrics)
    step.put(replace(experiment, metric_warning=text))
    step.log(trial.task_id, None, text, level="WARNING")


def metric_warning(wanted: str, trial: TrialId, steps: int, metrics: Mapping[str, Any]) -> str:
    """A warning that a validation does not contain the searcher's metric, with its metrics and the remedy."""
    where = f"the validation of trial {trial} at step {steps}"
    if wanted in metrics:
        said = f"{where} reported {metrics[wanted]!r} for it, which is no number"
        return f"searcher.metric is '{wanted}', but {said}: report a number, else no result can be ranked"
    names = sorted(name for name, value in metrics.items() if number(value) is not None)
    if not names:
        return f"searcher.metric is '{wanted}', but {where} reported no metric: report '{wanted}', else no result can be ranked"
    shown = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN]) + (" and others" if len(names) > NAMES_SHOWN else "")
    return (
        f"searcher.metric is '{wanted}', but {where} reported {shown}: no result can be ranked; set searcher.metric to a "
        f"reported name, or report '{wanted}'"
    )


def number(value: object) -> float | None:
    """A metric's value as a number: reports spell what JSON cannot as NaN, Infinity, -Infinity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity"):
        return float(value)
    return None


def better(new: float, old: float, *, smaller: bool) -> bool:
    if math.isnan(old):
        return not math.isnan(new)
    return new < old if smaller else new > old


def progress(step: Step, id_: TrialId, value: float) -> None:
    trial = need_trial(step, id_)
    if trial.state.gone:
        return
    step.put(replace(trial, progress=value))
    event = search.ProgressReported(request_id=trial.request_id, progress=value)
    experiments.notify_search(step, trial.experiment_id, event)


def operation_completed(step: Step, id_: TrialId, length: int, metric: float) -> None:
    """Records that the trial has trained until the length that its search assigned. A repeated report is harmless."""
    trial = need_trial(step, id_)
    row = searching.row_of(step, trial)
    if row is None or row.length is None:
        raise FailedPrecondition(f"trial {id_} was given no length: its configuration has no searcher.max_length")
    if (row.completed_length, row.completed_metric) == (length, metric) and (row.completed or row.length != length):
        return
    if row.completed or row.length != length:
        known = (
            f"length {row.completed_length} was reported as completed"
            if row.completed
            else f"{row.length} is asked for"
        )
        raise InvalidInput(f"op.length: {length} is not what trial {id_} is to train until: {known}")
    if trial.state.gone:
        raise FailedPrecondition(f"trial {id_} is {trial.state}: it trains no more")
    event = search.OperationCompleted(request_id=trial.request_id, length=length, metric=metric)
    experiments.notify_search(step, trial.experiment_id, event)


def runner_state(step: Step, id_: TrialId, state: str) -> None:
    step.put(replace(need_trial(step, id_), runner_state=state))


def metadata(step: Step, id_: TrialId, value: Mapping[str, Any]) -> None:
    step.put(replace(need_trial(step, id_), metadata=value))


# ----------------------------------------------------------------------------------------------------- checkpoints


def checkpoint(step: Step, command: ReportCheckpoint) -> None:
    """Keyed by uuid; only the trial's newest run may report.

    The task may report after a request to end, until it exits; once a newer run exists, its checkpoints are refused.
    """
    trial = unmanaged.trial_of_task(step, command.allocation)
    run_id = trial.run_id if trial is not None else _run_of(command.allocation)
    if trial is None:
        trial = next((t for t in _trials_of_task(step, command.allocation)), None)
    if trial is None:
        raise NotFound("trial of allocation", command.allocation)
    before = step.get(Checkpoint, command.uuid)
    if before is not None:
        if (before.allocation_id, dict(before.resources)) == (command.allocation, dict(command.resources)):
            return
        raise AlreadyExists(f"checkpoint '{command.uuid}' was reported before, with other content")
    if run_id < trial.run_id:
        raise Conflict(
            f"run {run_id} of trial {trial.id} is over: run {trial.run_id} has begun; its reports are refused"
        )
    experiment = step.need(Experiment, trial.experiment_id)
    if experiment.state in (S.DELETING, S.DELETE_FAILED):
        raise FailedPrecondition(f"experiment {experiment.id} is being deleted: its checkpoints are no longer kept")
    step.put(
        Checkpoint(
            uuid=command.uuid,
            task_id=trial.task_id,
            allocation_id=command.allocation,
            trial_id=trial.id,
            experiment_id=trial.experiment_id,
            run_id=run_id,
            state=CheckpointState.COMPLETED,
            steps_completed=command.steps_completed,
            reported_at=step.now,
            resources=command.resources,
            metadata=command.metadata,
            storage_id=command.storage_id,
        )
    )
    latest = trial.latest_checkpoint
    if latest is None or command.steps_completed >= latest.steps_completed:
        ref = CheckpointRef(uuid=command.uuid, steps_completed=command.steps_completed)
        step.put(replace(trial, latest_checkpoint=ref))
        allocations.move(step, command.allocation, allocation_fsm.Saved())


def _run_of(allocation: AllocationId) -> int:
    number_ = allocation.rpartition(".")[2]
    if not (number_.isascii() and number_.isdigit()):
        raise NotFound("allocation", allocation)
    return int(number_)


def _trials_of_task(step: Step, allocation: AllocationId) -> tuple[Trial, ...]:
    found = step.get(Allocation, allocation)
    if found is not None:
        return (need_trial(step, found.trial_id),) if found.trial_id is not None else ()
    request_id = task_of(allocation).partition(".")[2]
    return tuple(t for t in step.find(Trial, "trial_of_request", request_id) if t.task_id == task_of(allocation))
