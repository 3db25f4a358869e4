"""Reported checkpoints: their metadata, their users, and the removal of unneeded ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import CheckpointState
from resolute_master.domain.checkpoint import Checkpoint, CheckpointUse
from resolute_master.domain.commands import (
    KeepCheckpoints,
    RemoveCheckpointFiles,
    ReportRemovalWaits,
    SetCheckpointPolicy,
    SetCheckpointResources,
    UseCheckpoint,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import RemoveCheckpoint, RemoveFiles
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.globs import matcher
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle import experiments
from resolute_master.lifecycle.step import Step

MAX_GLOBS = 100
"""Patterns of one request."""

SHOWN_GLOB = 100
"""Letters of a pattern that a refusal shows."""

SHOWN_GLOBS = 5

ON_REQUEST = "on request"
BY_A_TASK = "a task removed its files"
"""Reason for the removal of a checkpoint."""

COUNTS = ("save_experiment_best", "save_trial_best", "save_trial_latest")

FALLBACKS = 2
"""Least number of checkpoints that a running trial keeps, newest first."""

NOT_FILES_OF_THE_USER = {"metadata.json", "manifest.json"}
"""Files about a checkpoint itself. Their presence does not affect whether it is partial."""


def need_checkpoint(step: Step, uuid: str) -> Checkpoint:
    found = step.get(Checkpoint, uuid)
    if found is None:
        raise NotFound("checkpoint", uuid)
    return found


def set_metadata(step: Step, uuid: str, value: Mapping[str, Any]) -> None:
    step.put(replace(need_checkpoint(step, uuid), metadata=value))


def use(step: Step, command: UseCheckpoint) -> None:
    """Records that a trial uses a checkpoint; repeated reports are recorded once."""
    checkpoint = need_checkpoint(step, command.uuid)
    if step.get(Trial, command.trial) is None:
        raise NotFound("trial", command.trial)
    said = CheckpointUse(trial_id=command.trial, purpose=command.purpose)
    if said not in checkpoint.used_by:
        step.put(replace(checkpoint, used_by=(*checkpoint.used_by, said)))


# --------------------------------------------------------------------------------------------------------- removal


def set_resources(step: Step, command: SetCheckpointResources) -> None:
    """Records the remaining files of a checkpoint."""
    before = need_checkpoint(step, command.uuid)
    step.done(command.order)
    state = before.state
    if not command.resources:
        state = CheckpointState.DELETED
        step.done(f"remove-checkpoint:{command.uuid}")
    elif set(command.resources) - NOT_FILES_OF_THE_USER < set(before.resources) - NOT_FILES_OF_THE_USER:
        state = CheckpointState.PARTIALLY_DELETED
    removal = before.removal or (BY_A_TASK if state is CheckpointState.DELETED else "")
    step.put(replace(before, resources=command.resources, state=state, removal=removal))
    experiments.deleted_if_done(step, before.experiment_id)


def removal_waits(step: Step, command: ReportRemovalWaits) -> None:
    found = need_checkpoint(step, command.uuid)
    text = f"the removal of checkpoint {found.uuid} waits, as do the others of the experiment: {command.problem}"
    step.log(found.task_id, None, text, level="WARNING")


def delete(step: Step, uuids: Iterable[str]) -> None:
    for uuid in uuids:
        found = need_checkpoint(step, uuid)
        _check_not_needed(step, found)
        if found.state is not CheckpointState.DELETED:
            _order_removal(step, found, ON_REQUEST)


def _order_removal(step: Step, checkpoint: Checkpoint, why: str) -> None:
    """Orders the removal of a checkpoint. If it is ordered again for the same reason, for example while the storage is
    unavailable, it is noted once."""
    step.emit([RemoveCheckpoint(uuid=checkpoint.uuid, experiment=checkpoint.experiment_id)])
    _note_removal(step, checkpoint, why, "")


def _note_removal(step: Step, checkpoint: Checkpoint, why: str, what: str) -> None:
    if checkpoint.removal == why:
        return
    step.put(replace(checkpoint, removal=why))
    text = f"{what}checkpoint {checkpoint.uuid} of step {checkpoint.steps_completed} is removed: {why}"
    step.log(checkpoint.task_id, None, text, level="INFO")


def remove_files(step: Step, command: RemoveCheckpointFiles) -> None:
    """Orders the removal of files of all checkpoints in the request, or of none."""
    if len(command.globs) > MAX_GLOBS:
        raise InvalidInput(f"checkpointGlobs: {len(command.globs)} patterns are more than {MAX_GLOBS}; send fewer")
    for glob in command.globs:
        try:
            matcher(glob)
        except ValueError as error:
            raise InvalidInput(f"checkpointGlobs: {glob[:SHOWN_GLOB]!r} {error}") from None
    for uuid in command.uuids:
        found = need_checkpoint(step, uuid)
        if found.state is CheckpointState.DELETED:
            raise FailedPrecondition(f"checkpoint '{uuid}' is deleted; there are no files to remove")
        if command.globs:
            _check_not_needed(step, found)
            shown = ", ".join(glob[:SHOWN_GLOB] for glob in command.globs[:SHOWN_GLOBS])
            more = len(command.globs) - SHOWN_GLOBS
            others = f" and {more} other patterns" if more > 0 else ""
            _note_removal(step, found, f"files that match {shown}{others}, on request", "a part of ")
        order = step.next_number("remove-files")
        step.emit([RemoveFiles(uuid=uuid, experiment=found.experiment_id, globs=command.globs, order=order)])


def _check_not_needed(step: Step, checkpoint: Checkpoint) -> None:
    if checkpoint.uuid in _resume_points(step.get(Trial, checkpoint.trial_id)):
        raise FailedPrecondition(
            f"checkpoint '{checkpoint.uuid}' is where trial {checkpoint.trial_id} would resume; end the trial first"
        )
    experiments.check_nothing_starts_from(step, checkpoint)


def _resume_points(trial: Trial | None) -> set[str]:
    if trial is None or trial.state.gone or trial.latest_checkpoint is None:
        return set()
    return {trial.latest_checkpoint.uuid}


# ---------------------------------------------------------------------------------------------------------- policy


class Policy(NamedTuple):
    """A policy for the checkpoints that are kept: their number, and the metrics to rank them by."""

    experiment_best: int
    trial_best: int
    trial_latest: int
    metrics: Mapping[str, float | None]


def policy_of(experiment: Experiment, wanted: SetCheckpointPolicy) -> Policy:
    """The policy with the requested counts, or the experiment's own. Raises `InvalidInput`."""
    storage = experiment.config["checkpoint_storage"]
    return Policy(
        experiment_best=_count(storage, "save_experiment_best", wanted.experiment_best),
        trial_best=_count(storage, "save_trial_best", wanted.trial_best),
        trial_latest=_count(storage, "save_trial_latest", wanted.trial_latest),
        metrics=wanted.metrics,
    )


def _count(storage: Mapping[str, Any], name: str, wanted: int | None) -> int:
    count = int(storage[name]) if wanted is None else wanted
    if count < 0:
        raise InvalidInput(f"checkpointStorage.{name}: {count} must not be negative; 0 keeps none for that reason")
    return count


def set_policy(step: Step, command: SetCheckpointPolicy) -> None:
    """Store the counts, and order the removal of the other checkpoints."""
    experiment = experiments.need(step, command.experiment)
    policy = policy_of(experiment, command)
    counts = {
        "save_experiment_best": policy.experiment_best,
        "save_trial_best": policy.trial_best,
        "save_trial_latest": policy.trial_latest,
    }
    step.put(experiment.with_settings("checkpoint_storage", counts))
    found = step.find(Checkpoint, "checkpoints_of_experiment", experiment.id)
    trials = experiments.trials_of(step, experiment)
    why = _not_kept(counts)
    for checkpoint in removable(found, trials, policy, smaller_is_better=experiment.smaller_is_better):
        _order_removal(step, checkpoint, why)


def keep(step: Step, command: KeepCheckpoints) -> None:
    """Order the removal of checkpoints that exceed the experiment's own counts. A deleted experiment keeps none."""
    step.done(command.order)
    experiment = step.get(Experiment, command.experiment)
    if experiment is None or not experiment.removes_checkpoints:
        return
    found = step.find(Checkpoint, "checkpoints_of_experiment", experiment.id)
    why = _not_kept(experiment.config["checkpoint_storage"])
    for checkpoint in superfluous(experiment, found, experiments.trials_of(step, experiment), command.metrics):
        _order_removal(step, checkpoint, why)


def _not_kept(storage: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{name} {storage[name]}" for name in COUNTS)
    return f"its policy does not keep it ({counts}), and nothing refers to it"


def superfluous(
    experiment: Experiment,
    checkpoints: Iterable[Checkpoint],
    trials: Iterable[Trial],
    metrics: Mapping[str, float | None],
) -> tuple[Checkpoint, ...]:
    """Checkpoints that exceed the experiment's own counts. A trial that may still run keeps at least two: if the newest is
    damaged, the run resumes from the one before."""
    trials = tuple(trials)
    found = [each for each in checkpoints if each.state is not CheckpointState.DELETED]
    nothing = SetCheckpointPolicy(
        experiment=experiment.id, experiment_best=None, trial_best=None, trial_latest=None, metrics=metrics
    )
    policy = policy_of(experiment, nothing)
    running = {trial.id for trial in trials if not trial.state.gone}
    of_running = [each for each in found if each.trial_id in running and each.uuid in metrics]
    fallback = kept(of_running, Policy(0, 0, FALLBACKS, metrics), smaller_is_better=experiment.smaller_is_better)
    gone = removable(found, trials, policy, smaller_is_better=experiment.smaller_is_better)
    return tuple(each for each in gone if each.uuid not in fallback)


def metric_at(validations: Iterable[MetricReport], checkpoint: Checkpoint, name: str) -> float | None:
    """The metric of the validation at exactly the checkpoint's step, from the trial's newest run."""
    found: float | None = None
    for report in validations:
        if report.trial_id == checkpoint.trial_id and report.steps_completed == checkpoint.steps_completed:
            found = searcher_metric(report.metrics, name) if name in report.metrics else found
    return found


def searcher_metric(metrics: Mapping[str, Any], name: str) -> float | None:
    """A metric's value as a number; reports spell what JSON cannot as text."""
    value = metrics.get(name)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str) and value.lower() in ("nan", "infinity", "-infinity"):
        return float(value)
    return None


def removable(
    checkpoints: Iterable[Checkpoint],
    trials: Iterable[Trial],
    policy: Policy,
    *,
    smaller_is_better: bool,
) -> tuple[Checkpoint, ...]:
    """Checkpoints of one experiment that the policy does not keep and nothing needs."""
    known = [c for c in checkpoints if c.uuid in policy.metrics and c.state is not CheckpointState.DELETED]
    needed = kept(known, policy, smaller_is_better=smaller_is_better)
    for trial in trials:
        needed |= _resume_points(trial)
        if trial.warm_start_checkpoint is not None:
            needed.add(trial.warm_start_checkpoint)
    return tuple(c for c in known if c.uuid not in needed and not c.used_by and not c.continued)


def kept(checkpoints: Iterable[Checkpoint], policy: Policy, *, smaller_is_better: bool) -> set[str]:
    """The best of all, the best of each trial and the latest of each trial, by uuid.

    A checkpoint is as good as the validation at its own step; without one it is not among the best. Of equals the older wins.
    """
    by_trial: dict[TrialId, list[Checkpoint]] = {}
    ranked: list[tuple[float, int, Checkpoint]] = []
    for checkpoint in sorted(checkpoints, key=lambda c: (c.reported_at, c.uuid)):
        by_trial.setdefault(checkpoint.trial_id, []).append(checkpoint)
        metric = policy.metrics.get(checkpoint.uuid)
        if metric is not None and not math.isnan(metric):
            ranked.append((metric if smaller_is_better else -metric, len(ranked), checkpoint))
    ranked.sort(key=lambda row: row[:2])
    uuids = {checkpoint.uuid for _, _, checkpoint in ranked[: policy.experiment_best]}
    for trial, mine in by_trial.items():
        best = [checkpoint for _, _, checkpoint in ranked if checkpoint.trial_id == trial]
        uuids |= {checkpoint.uuid for checkpoint in best[: policy.trial_best]}
        latest = sorted(mine, key=lambda c: (c.steps_completed, c.reported_at, c.uuid), reverse=True)
        uuids |= {checkpoint.uuid for checkpoint in latest[: policy.trial_latest]}
    return uuids
