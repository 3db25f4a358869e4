"""Checkpoints with where they come from and how good they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resolute.config import SecretNames, mask_experiment
from resolute.wire.rest.checkpoints import Checkpoint as WireCheckpoint
from resolute.wire.rest.checkpoints import CheckpointTrainingMetadata
from resolute.wire.rest.enums import WireCheckpointState
from resolute.wire.rest.metrics import Metrics
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.checkpoints import metric_at


def checkpoint(
    value: Checkpoint,
    *,
    experiment: Experiment,
    trial: Trial | None,
    reports: Sequence[MetricReport],
    secret_names: SecretNames,
) -> WireCheckpoint:
    """`reports` are training and validation reports of its trial; those at its step are shown with it."""
    validations = [r for r in reports if r.group == "validation"]
    return WireCheckpoint(
        uuid=value.uuid,
        task_id=value.task_id,
        allocation_id=value.allocation_id,
        report_time=value.reported_at,
        resources=value.resources,
        # Clients take an empty map for "not a checkpoint that can be described".
        metadata={"steps_completed": value.steps_completed, **value.metadata},
        state=WireCheckpointState[value.state.name],
        storage_id=value.storage_id,
        removal=value.removal or None,
        training=CheckpointTrainingMetadata(
            trial_id=value.trial_id,
            experiment_id=value.experiment_id,
            experiment_config=mask_experiment(experiment.config, secret_names),
            hparams=trial.hparams if trial else None,
            training_metrics=_metrics_at(value, [r for r in reports if r.group == "training"]),
            validation_metrics=_metrics_at(value, validations),
            searcher_metric=metric_at(validations, value, experiment.metric),
        ),
    )


def _metrics_at(value: Checkpoint, reports: Iterable[MetricReport]) -> Metrics | None:
    at = [r for r in reports if r.steps_completed == value.steps_completed]
    return Metrics(avg_metrics=at[-1].metrics, batch_metrics=at[-1].batch_metrics or ()) if at else None
