"""Trials, their best and latest results, and their timeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.rest.enums import WireCheckpointState
from resolute.wire.rest.extensions import TrialFailure
from resolute.wire.rest.metrics import Metrics
from resolute.wire.rest.trials import CheckpointWorkload, MetricsWorkload
from resolute.wire.rest.trials import Trial as WireTrial
from resolute.wire.states import CheckpointState
from resolute_master.api.render.states import trial_state
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Failure, Trial, Validation
from resolute_master.lifecycle import failures
from resolute_master.lifecycle.checkpoints import metric_at


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSurroundings:
    """The values from which a trial is shown: all attempts, checkpoints and validations, and summaries if requested."""

    experiment: Experiment
    allocations: tuple[Allocation, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    validations: tuple[MetricReport, ...] = ()
    summaries: Mapping[str, Any] | None = None
    now: datetime


def trial(value: Trial, around: TrialSurroundings) -> WireTrial:
    best = value.best_validation
    kept = [c for c in around.checkpoints if c.state is not CheckpointState.DELETED]
    return WireTrial(
        id=value.id,
        experiment_id=value.experiment_id,
        state=trial_state(value.state, around.allocations, unmanaged=around.experiment.unmanaged),
        hparams=value.hparams,
        restarts=min(value.restarts, around.experiment.max_restarts),
        start_time=value.started_at,
        end_time=value.ended_at,
        total_batches_processed=value.steps_completed,
        best_validation=_validation(best),
        latest_validation=_validation(value.latest_validation),
        best_checkpoint=_best_checkpoint(kept, around),
        checkpoint_count=len(kept),
        total_checkpoint_size=sum(c.size for c in kept),
        searcher_metric_value=best.metric if best else None,
        summary_metrics=around.summaries,
        runner_state=value.runner_state,
        log_retention_days=value.log_retention_days,
        log_policy_matched=value.log_policy_matched,
        metadata=value.metadata,
        failure=_failure(value.failure),
        task_id=value.task_id,
        task_ids=(value.task_id,),
        wall_clock_time=wall_clock_s(around.allocations, around.now),
        warm_start_checkpoint_uuid=value.warm_start_checkpoint,
    )


def _failure(value: Failure | None) -> TrialFailure | None:
    if value is None:
        return None
    return TrialFailure(reason=value.reason, error=value.error, times=value.times, hint=failures.hint(value))


def wall_clock_s(allocations: Iterable[Allocation], now: datetime) -> float:
    """Seconds that its attempts held machines."""
    spans = ((a.started_at, a.ended_at or now) for a in allocations)
    return sum(max(0.0, (end - start).total_seconds()) for start, end in spans if start is not None)


def _validation(value: Validation | None) -> MetricsWorkload | None:
    if value is None:
        return None
    return MetricsWorkload(
        metrics=Metrics(avg_metrics=value.metrics), num_inputs=0, total_batches=value.steps_completed, end_time=value.at
    )


# ----------------------------------------------------------------------------------------------------- checkpoints


def _best_checkpoint(checkpoints: Sequence[Checkpoint], around: TrialSurroundings) -> CheckpointWorkload | None:
    name, smaller_is_better = around.experiment.metric, around.experiment.smaller_is_better
    ranked = []
    for checkpoint in checkpoints:
        metric = metric_at(around.validations, checkpoint, name)
        if checkpoint.state is CheckpointState.COMPLETED and metric is not None and not math.isnan(metric):
            signed = metric if smaller_is_better else -metric
            ranked.append((signed, checkpoint.steps_completed, checkpoint.uuid, checkpoint))
    return checkpoint_workload(min(ranked)[3]) if ranked else None


def checkpoint_workload(value: Checkpoint) -> CheckpointWorkload:
    return CheckpointWorkload(
        state=WireCheckpointState[value.state.name],
        total_batches=value.steps_completed,
        end_time=value.reported_at,
        metadata=value.metadata,
        resources=value.resources,
        uuid=value.uuid,
    )


def metrics_workload(report: MetricReport, *, with_batches: bool) -> MetricsWorkload:
    batches = (report.batch_metrics or ()) if with_batches else ()
    return MetricsWorkload(
        metrics=Metrics(avg_metrics=report.metrics, batch_metrics=batches),
        num_inputs=0,
        total_batches=report.steps_completed or 0,
        end_time=report.reported_at,
    )
