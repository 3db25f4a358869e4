"""Experiments: from creation to deletion, and the events and requests of their search method."""

from __future__ import annotations

from collections.abc import Iterable

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import STOPPING_ENDS, CheckpointState, ExperimentState
from resolute_master.domain.change import ExternalExperiment
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import CreateExperiment, PatchExperiment, ProposePoints
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import RemoveCheckpoint, RemoveTensorboardFiles, ReviewCheckpoints
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import ExperimentId, JobId, TaskId, TrialId
from resolute_master.domain.job import Job
from resolute_master.domain.search import Search
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle import budget, failures, searching, trials, unmanaged, workspaces
from resolute_master.lifecycle.moves import check_experiment_move
from resolute_master.lifecycle.step import Step
from resolute_master.searcher import events as search

S = ExperimentState

MAX_LABELS = 100
"""Labels of one experiment."""

_EXIT_REASONS = {S.ERROR: search.ExitReason.ERRORED, S.CANCELED: search.ExitReason.USER_CANCELED}
"""Exit reasons of trials that have not completed."""

_CUT_SHORT = frozenset({S.STOPPING_CANCELED, S.STOPPING_KILLED, S.STOPPING_ERROR})


def need(step: Step, id_: ExperimentId) -> Experiment:
    experiment = step.get(Experiment, id_)
    if experiment is None or experiment.state is S.DELETED:
        raise NotFound("experiment", id_)
    return experiment


def trials_of(step: Step, experiment: Experiment) -> tuple[Trial, ...]:
    return step.find(Trial, "trials_of_experiment", experiment.id)


# ----------------------------------------------------------------------------------------------------------- birth


def create(step: Step, command: CreateExperiment) -> ExperimentId:
    """Store an experiment with its first trials: PAUSED, or ACTIVE if requested."""
    named = step.get(ExternalExperiment, command.external_id) if command.external_id is not None else None
    if named is not None:
        return named.experiment_id
    workspace = workspaces.need_workspace(step, command.workspace_id)
    workspaces.check_open(step, workspaces.need_project(step, command.project_id))
    parent = step.get(Experiment, command.parent) if command.parent is not None else None
    if parent is not None:
        check_place_open(step, parent)
    if not command.unmanaged:
        workspaces.check_pool(step, command.pool, workspace, step.pools)
        if command.config["resources"].get("max_cost") is not None:
            budget.check_priced(step, step.pools.get(command.pool), command.pool)
    id_ = ExperimentId(step.next_number("experiment"))
    config = command.config
    job = _new_job(step, command, id_)
    experiment = Experiment(
        id=id_,
        job_id=job.id,
        owner=command.owner,
        workspace_id=command.workspace_id,
        project_id=command.project_id,
        name=str(config["name"]),
        description=str(config.get("description") or ""),
        labels=tuple(sorted(config.get("labels") or ())),
        configuration=written(config),
        original_config=command.original_config,
        context_hash=command.context_hash,
        state=S.ACTIVE if command.activate and not command.unmanaged else S.PAUSED,
        started_at=step.now,
        parent_id=command.parent,
        unmanaged=command.unmanaged,
        external_id=command.external_id,
        removes_checkpoints=not command.unmanaged and "save_trial_latest" in (config.get("checkpoint_storage") or {}),
    )
    step.put(job)
    step.put(experiment)
    source = step.get(Checkpoint, experiment.settings.warm_start_checkpoint or "")
    if source is not None:
        step.put(replace(source, continued=True))
    if command.external_id is not None:
        step.put(ExternalExperiment(id=command.external_id, experiment_id=id_))
    if not command.unmanaged:
        _act(step, experiment, searching.begin(step, experiment, command.seed))
    return id_


def _new_job(step: Step, command: CreateExperiment, id_: ExperimentId) -> Job:
    """The job of a new experiment."""
    job = Job(
        id=JobId(step.ids.uuid()),
        kind="EXPERIMENT",
        name=str(command.config["name"]),
        owner=command.owner,
        workspace_id=command.workspace_id,
        project_id=command.project_id,
        pool=command.pool,
        priority=command.priority,
        weight=command.weight,
        max_slots=command.max_slots,
        submitted_at=step.now,
        queue_position=step.now.timestamp(),
        experiment_id=id_,
        # Unmanaged work is in no queue.
        ended=command.unmanaged,
    )
    return job if command.unmanaged else budget.with_hold(step, job)


# ---------------------------------------------------------------------------------------------------------- states


def set_state(step: Step, experiment: Experiment, wanted: ExperimentState) -> None:
    """Move the experiment and its trials; raises `FailedPrecondition` when the move does not exist."""
    unmanaged.refuse_control(experiment)
    if not check_experiment_move(experiment.id, experiment.state, wanted):
        return
    step.put(replace(experiment, state=wanted))
    for trial in trials_of(step, experiment):
        trials.set_state(step, trial, wanted)
    finish_if_done(step, experiment.id)


def cancel(step: Step, id_: ExperimentId) -> None:
    experiment = need(step, id_)
    if not (experiment.state.stopping or experiment.state.gone):
        set_state(step, experiment, S.STOPPING_CANCELED)


def kill(step: Step, id_: ExperimentId) -> None:
    experiment = need(step, id_)
    if not experiment.state.gone and experiment.state is not S.STOPPING_KILLED:
        set_state(step, experiment, S.STOPPING_KILLED)


def finish_if_done(step: Step, id_: ExperimentId) -> None:
    """Ends a stopping experiment when its last trial has ended."""
    experiment = need(step, id_)
    if not experiment.state.stopping or any(not t.state.gone for t in trials_of(step, experiment)):
        return
    end = STOPPING_ENDS[experiment.state]
    progress = 1.0 if end is S.COMPLETED else experiment.progress
    job = step.need(Job, experiment.job_id)
    step.put(replace(experiment, state=end, ended_at=step.now, progress=progress))
    step.put(replace(job, ended=True))
    step.decide("end", pool=job.pool, subject=f"experiment {id_}", reason=end.lower())
    if experiment.removes_checkpoints:
        step.emit([ReviewCheckpoints(experiment=id_)])
    if end is S.ERROR:
        found = trials_of(step, experiment)
        failed = failures.last_failed(found)
        for trial in failures.shown_to(found, failed):
            step.log(trial.task_id, None, failures.end_of_experiment(experiment, found, failed), level="ERROR")


def archive(step: Step, id_: ExperimentId, archived: bool) -> None:
    experiment = need(step, id_)
    check_place_open(step, experiment)
    if not experiment.state.terminal:
        raise FailedPrecondition(f"experiment {id_} is {experiment.state}: only an ended experiment can be archived")
    if experiment.archived == archived:
        raise FailedPrecondition(f"experiment {id_} is {'already' if archived else 'not'} archived")
    step.put(replace(experiment, archived=archived))


def check_place_open(step: Step, experiment: Experiment) -> None:
    """Raises `FailedPrecondition` when its project is archived or being deleted: there it can only be controlled and deleted."""
    workspaces.check_open(step, workspaces.need_project(step, experiment.project_id))


def patch(step: Step, command: PatchExperiment) -> None:
    experiment = need(step, command.experiment)
    if _changes_texts(command):
        check_place_open(step, experiment)
    if command.name is not None:
        if not command.name.strip():
            raise InvalidInput("name: must not be blank; give the experiment a name")
        experiment = replace(experiment, name=command.name)
        step.put(replace(step.need(Job, experiment.job_id), name=command.name))
    if command.description is not None:
        experiment = replace(experiment, description=command.description)
    if command.notes is not None:
        experiment = replace(experiment, notes=command.notes)
    step.put(replace(experiment, labels=_labels(experiment, command)))


def _changes_texts(command: PatchExperiment) -> bool:
    given = (command.name, command.description, command.notes, command.labels)
    return any(each is not None for each in given) or bool(command.add_labels or command.remove_labels)


def _labels(experiment: Experiment, command: PatchExperiment) -> tuple[str, ...]:
    """The labels after the command. Additions and removals apply to the current labels, which may have changed since the caller
    read them."""
    labels = set(experiment.labels if command.labels is None else command.labels)
    labels = (labels | set(command.add_labels)) - set(command.remove_labels)
    if len(labels) > MAX_LABELS and not labels <= set(experiment.labels):
        raise InvalidInput(f"labels: would be {len(labels)}, over the limit of {MAX_LABELS}; remove some first")
    return tuple(sorted(labels))


# -------------------------------------------------------------------------------------------------------- deletion


def delete(step: Step, id_: ExperimentId) -> None:
    """Order the removal of every checkpoint; the experiment is DELETED when the last one is."""
    experiment = need(step, id_)
    # An unmanaged experiment that has not started cannot be ended here either: it would stay for ever.
    if not (experiment.unmanaged and experiment.state is S.PAUSED):
        check_experiment_move(experiment.id, experiment.state, S.DELETING)
    step.put(replace(experiment, state=S.DELETING))
    remove_tensorboards(step, experiment)
    found = step.find(Checkpoint, "checkpoints_of_experiment", id_)
    for checkpoint in found:
        check_nothing_starts_from(step, checkpoint)
    for checkpoint in found:
        if checkpoint.state is not CheckpointState.DELETED:
            step.emit([RemoveCheckpoint(uuid=checkpoint.uuid, experiment=id_)])
    deleted_if_done(step, id_)


def check_nothing_starts_from(step: Step, checkpoint: Checkpoint) -> None:
    """Raises `FailedPrecondition` while trials of another experiment may still begin with the checkpoint."""
    if not checkpoint.continued:
        return
    for other in step.all(Experiment):
        if not other.state.gone and other.id != checkpoint.experiment_id and _starts_from(other, checkpoint):
            raise FailedPrecondition(
                f"checkpoint '{checkpoint.uuid}' is where trials of experiment {other.id} start; end that experiment first "
                f"(det experiment kill {other.id})"
            )


def _starts_from(experiment: Experiment, checkpoint: Checkpoint) -> bool:
    return experiment.settings.warm_start_checkpoint == checkpoint.uuid


def deleted_if_done(step: Step, id_: ExperimentId) -> None:
    experiment = step.get(Experiment, id_)
    if experiment is None or experiment.state is not S.DELETING:
        return
    left = step.find(Checkpoint, "checkpoints_of_experiment", id_)
    if any(c.state is not CheckpointState.DELETED for c in left):
        return
    for trial in trials_of(step, experiment):
        # Its allocations and its job stay in the store: the costs and their owner do not change when it is deleted.
        step.delete(trial)
    for checkpoint in left:
        step.delete(checkpoint)
    searching.forget(step, id_)
    named = step.get(ExternalExperiment, experiment.external_id) if experiment.external_id is not None else None
    if named is not None:
        step.delete(named)
    step.delete(experiment)


def remove_tensorboards(step: Step, experiment: Experiment) -> None:
    storage = experiment.config.get("checkpoint_storage") or {}
    has_saved = bool(step.find(Checkpoint, "checkpoints_of_experiment", experiment.id))
    step.emit([RemoveTensorboardFiles(experiment=experiment.id, storage=storage, has_saved=has_saved)])


# ------------------------------------------------------------------------------------------------------- retention


def set_log_retention(step: Step, id_: ExperimentId, days: int) -> None:
    """Sets the retention of the logs of all trials of an ended experiment. Its configuration shows the value in force."""
    experiment = need(step, id_)
    if not experiment.state.terminal:
        raise FailedPrecondition(
            f"experiment {id_} is {experiment.state}: how long logs are kept can be changed once it has ended"
        )
    for trial in trials_of(step, experiment):
        trials.set_log_retention(step, trial, days)
    config = {**experiment.config, "retention_policy": {"log_retention_days": days}}
    step.put(replace(experiment, configuration=written(config)))


# ---------------------------------------------------------------------------------------------------------- search


def notify_search(step: Step, id_: ExperimentId, event: search.SearchEvent) -> None:
    """Passes an event to the search. Its new state is saved in the same commit as its requests."""
    experiment = need(step, id_)
    if experiment.unmanaged:
        return
    progress, actions = searching.tell(step, experiment, event)
    # A trial that has ended counts as done, however it ended; the whole does only when it completes.
    short = experiment.state in _CUT_SHORT or any(isinstance(a, search.Shutdown) and not a.complete for a in actions)
    if not short:
        experiment = replace(experiment, progress=progress)
        step.put(experiment)
    _act(step, experiment, actions)


def propose(step: Step, command: ProposePoints) -> None:
    """Passes points to a search that waits for them; late ones are dropped."""
    search_ = step.get(Search, command.experiment)
    experiment = step.get(Experiment, command.experiment)
    if search_ is None or experiment is None or experiment.state.gone or search_.requested != command.known:
        return
    notify_search(step, command.experiment, search.PointsProposed(points=command.points))


def _act(step: Step, experiment: Experiment, actions: Iterable[search.SearchAction]) -> None:
    for action in actions:
        match action:
            case search.Create():
                if not (experiment.state.stopping or experiment.state.gone):
                    _create_trial(step, experiment, action)
            case search.Train(request_id=request_id):
                for trial in _trials_of_request(step, experiment, request_id):
                    trials.ask(step, trial)
            case search.Stop(request_id=request_id):
                for trial in _trials_of_request(step, experiment, request_id):
                    step.put(replace(trial, searcher_done=True))
                    trials.set_state(step, step.need(Trial, trial.id), S.STOPPING_COMPLETED)
            case search.Shutdown():
                _shut_down(step, experiment.id, action)


def _source_of(step: Step, experiment: Experiment, action: search.Create) -> str | None:
    """The newest checkpoint of the trial from which the new one continues; None without such a trial."""
    if action.source is None:
        return None
    known = step.find(Trial, "trial_of_request", action.source)
    found = next((trial for trial in known if trial.experiment_id == experiment.id), None)
    return found.latest_checkpoint.uuid if found is not None and found.latest_checkpoint is not None else None


def _trials_of_request(step: Step, experiment: Experiment, request_id: str) -> list[Trial]:
    """The experiment's trials for a request. Request ids are not unique: searches with the same seed draw the same ones."""
    found = step.find(Trial, "trial_of_request", request_id)
    return [trial for trial in found if trial.experiment_id == experiment.id and not trial.state.gone]


def _create_trial(step: Step, experiment: Experiment, action: search.Create) -> None:
    id_, settings = TrialId(step.next_number("trial")), experiment.settings
    trial = Trial(
        id=id_,
        experiment_id=experiment.id,
        job_id=experiment.job_id,
        task_id=TaskId(f"{experiment.id}.{action.request_id}"),
        request_id=action.request_id,
        state=S.PAUSED if experiment.state is S.PAUSED else S.ACTIVE,
        hparams=action.hparams,
        seed=action.seed,
        started_at=step.now,
        warm_start_checkpoint=_source_of(step, experiment, action) or settings.warm_start_checkpoint,
        log_retention_days=settings.log_retention_days,
    )
    step.put(trial)
    trials.ask(step, trial)


def _shut_down(step: Step, id_: ExperimentId, action: search.Shutdown) -> None:
    experiment = need(step, id_)
    if experiment.state.stopping or experiment.state.gone:
        return
    if action.failure:
        step.put(replace(experiment, shutdown_reason=action.reason or "every trial failed"))
        set_state(step, need(step, id_), S.STOPPING_ERROR)
    else:
        set_state(step, experiment, S.STOPPING_CANCELED if action.cancel else S.STOPPING_COMPLETED)


def trial_ended(step: Step, id_: TrialId) -> None:
    """Pass the event to the search, and end the experiment when nothing is left to do."""
    trial = step.need(Trial, id_)
    reason = search.ExitReason.INVALID_HPARAMS if trial.invalid_hparams else _EXIT_REASONS.get(trial.state)
    notify_search(step, trial.experiment_id, search.TrialExited(request_id=trial.request_id, reason=reason))
    finish_if_done(step, trial.experiment_id)
