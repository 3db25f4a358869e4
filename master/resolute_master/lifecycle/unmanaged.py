"""Experiments whose trials run elsewhere: they are never scheduled, and their state is their trials' last report. A trial without
a report for `SILENCE` counts as failed at its last report; with the next report, it continues.
"""

from __future__ import annotations

from datetime import timedelta

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import ExperimentState
from resolute_master.domain.commands import CreateUnmanagedTrial, StartUnmanagedRun
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, TaskId, TrialId
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.step import Step

SILENCE = timedelta(minutes=5)
"""Time without a report after which a trial counts as failed; its client reports every minute."""

SILENT = "it has not reported for five minutes"

S = ExperimentState

_WEIGHT = {S.PAUSED: 0, S.CANCELED: 1, S.ERROR: 2, S.COMPLETED: 3, S.ACTIVE: 4}
"""Weights of the states of an unmanaged trial. The experiment has the state of its trial with the largest weight."""


def refuse_control(experiment: Experiment) -> None:
    """Raises `FailedPrecondition` for an unmanaged experiment, which this master does not run."""
    if experiment.unmanaged:
        raise FailedPrecondition(
            f"experiment {experiment.id} is unmanaged: its processes do not run here; stop them where they were started"
        )


def trial_of_task(step: Step, task: str) -> Trial | None:
    """The unmanaged trial with that task; it has no allocations, and reports in the name of its task."""
    request = task.partition(".")[2]
    found = (t for t in step.find(Trial, "trial_of_request", request) if t.task_id == task)
    trial = next(found, None)
    return trial if trial is not None and step.need(Experiment, trial.experiment_id).unmanaged else None


def _need(step: Step, id_: TrialId) -> Trial:
    trial = step.get(Trial, id_)
    if trial is None:
        raise NotFound("trial", id_)
    if not step.need(Experiment, trial.experiment_id).unmanaged:
        raise FailedPrecondition(f"trial {id_} is run by this cluster: only unmanaged trials report their own state")
    return trial


def create_trial(step: Step, command: CreateUnmanagedTrial) -> TrialId:
    experiment = step.get(Experiment, command.experiment)
    if experiment is None or experiment.state is S.DELETED:
        raise NotFound("experiment", command.experiment)
    if not experiment.unmanaged:
        raise FailedPrecondition(f"experiment {experiment.id} chooses its trials itself: it is not unmanaged")
    if command.external_id is not None:
        for trial in step.find(Trial, "trials_of_experiment", experiment.id):
            if trial.external_id == command.external_id:
                return trial.id
    request = step.ids.uuid()
    id_ = TrialId(step.next_number("trial"))
    step.put(
        Trial(
            id=id_,
            experiment_id=experiment.id,
            job_id=experiment.job_id,
            task_id=TaskId(f"{experiment.id}.{request}"),
            request_id=request,
            state=S.PAUSED,
            hparams=command.hparams,
            seed=0,
            started_at=step.now,
            external_id=command.external_id,
            searcher_done=True,
        )
    )
    _follow(step, experiment.id)
    return id_


def start_run(step: Step, command: StartUnmanagedRun) -> int:
    """Starts a run. Reports of older runs are refused from now on."""
    trial = _need(step, command.trial)
    if trial.run_id and not command.resume:
        raise FailedPrecondition(f"trial {trial.id} has started before; send resume true to continue it")
    run_id = trial.run_id + 1
    step.put(replace(trial, run_id=run_id))
    record_contact(step, trial.id, S.ACTIVE)
    return run_id


def record_contact(step: Step, id_: TrialId, state: ExperimentState | None) -> None:
    """Records a heartbeat and the reported state."""
    trial = _need(step, id_)
    if state is not None and state not in _WEIGHT:
        raise InvalidInput(f"state: an unmanaged trial cannot be {state}; send RUNNING, COMPLETED, CANCELED or ERROR")
    if state is None:
        state = S.ACTIVE if trial.exit_message == SILENT else trial.state
    ended_at = None
    if state.gone:
        ended_at = trial.ended_at if trial.state is state else step.now
    step.put(replace(trial, state=state, last_report_at=step.now, ended_at=ended_at, exit_message=""))
    _follow(step, trial.experiment_id)


def fall_silent(step: Step, trial: Trial) -> None:
    step.put(replace(trial, state=S.ERROR, ended_at=trial.last_report_at, exit_message=SILENT))
    step.log(trial.task_id, None, f"Trial {trial.id} is taken for failed: {SILENT}", level="ERROR")
    _follow(step, trial.experiment_id)


def _follow(step: Step, id_: ExperimentId) -> None:
    """Updates the experiment's state after a change of its trials."""
    experiment = step.need(Experiment, id_)
    if experiment.state in (S.DELETING, S.DELETE_FAILED):
        return
    trials = step.find(Trial, "trials_of_experiment", id_)
    state = max((trial.state for trial in trials), key=_WEIGHT.__getitem__, default=S.PAUSED)
    ends = [trial.ended_at for trial in trials if trial.ended_at is not None]
    step.put(
        replace(
            experiment,
            state=state,
            ended_at=max(ends, default=step.now) if state.terminal else None,
            progress=1.0 if state is S.COMPLETED else experiment.progress,
        )
    )
