"""Applies the checkpoint counts of an experiment: when it ends, and while it runs and saves newer ones.

The order at the end is in the outbox, and so survives the master. The checks during the run are not stored: the next checkpoint
repeats them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from resolute.wire.states import CheckpointState
from resolute_master.domain.change import Change
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.commands import KeepCheckpoints
from resolute_master.domain.effects import ReviewCheckpoints
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, TrialId
from resolute_master.engine.engine import Engine
from resolute_master.lifecycle.checkpoints import metric_at, superfluous
from resolute_master.store.base import CheckpointQuery, Store, TrialQuery

VALIDATION = "validation"

REVIEW_S = 15.0
"""Checkpoints within this time are checked together."""


class CheckpointKeeping:
    """Records experiments with new checkpoints, and orders the removal of those that exceed the counts."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._new: dict[ExperimentId, set[TrialId]] = {}
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for entity in change.upserts:
            if isinstance(entity, Checkpoint) and entity.state is CheckpointState.COMPLETED and not entity.removal:
                self._new.setdefault(entity.experiment_id, set()).add(entity.trial_id)

    async def review_new(self) -> None:
        """Reviews experiments with new checkpoints since the last call."""
        for experiment_id, trials in [*self._new.items()]:
            self._new.pop(experiment_id, None)
            experiment = self._engine.state.get(Experiment, experiment_id)
            if experiment is None or not experiment.removes_checkpoints or experiment.state.gone:
                continue  # its end has it reviewed as a whole
            best = int(experiment.config["checkpoint_storage"]["save_experiment_best"])
            await self._review(experiment, None if best > 0 else trials, order="")

    async def carry_out(self, effect: ReviewCheckpoints) -> None:
        """Reviews the checkpoints of an experiment that has ended."""
        experiment = self._engine.state.get(Experiment, effect.experiment)
        experiment = experiment or await self._store.experiment(effect.experiment)
        if experiment is None:
            await self._engine.submit(KeepCheckpoints(experiment=effect.experiment, metrics={}, order=effect.key))
        else:
            await self._review(experiment, None, order=effect.key)

    async def _review(self, experiment: Experiment, of_trials: set[TrialId] | None, *, order: str) -> None:
        """Orders the removal of checkpoints of these trials; None means all. If there are none to remove, nothing is stored."""
        found = await self._store.checkpoints(CheckpointQuery(experiment_id=experiment.id))
        looked_at = tuple(
            each
            for each in found
            if each.state is not CheckpointState.DELETED and (of_trials is None or each.trial_id in of_trials)
        )
        metrics = {uuid: metric async for uuid, metric in self._metrics(experiment, looked_at)}
        trials = (await self._store.page_trials(TrialQuery(experiment_id=experiment.id))).rows
        if order or superfluous(experiment, looked_at, trials, metrics):
            await self._engine.submit(KeepCheckpoints(experiment=experiment.id, metrics=metrics, order=order))

    async def _metrics(
        self, experiment: Experiment, checkpoints: tuple[Checkpoint, ...]
    ) -> AsyncIterator[tuple[str, float | None]]:
        by_trial: dict[TrialId, list[Checkpoint]] = {}
        for each in checkpoints:
            by_trial.setdefault(each.trial_id, []).append(each)
        for trial, mine in sorted(by_trial.items()):
            reports = await self._store.metrics_at(trial, VALIDATION, {each.steps_completed for each in mine})
            for each in mine:
                yield each.uuid, metric_at(reports, each, experiment.metric)
