"""Trials: state, timeline, reports of their runs."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import (
    EarlyExitReason,
    MetricType,
    OrderBy,
    TrialSortBy,
    WireCheckpointState,
    WireExperimentState,
    WireTrialState,
    WorkloadFilter,
)
from resolute.wire.rest.extensions import TrialFailure
from resolute.wire.rest.metrics import Metrics
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWorkload:
    """A checkpoint in a trial's timeline."""

    state: WireCheckpointState
    total_batches: int
    end_time: datetime | None = None
    metadata: Mapping[str, Any] | None = None
    resources: Mapping[str, Int64] = field(default_factory=dict)
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsWorkload:
    """A metric report in a trial's timeline."""

    metrics: Metrics
    num_inputs: int
    total_batches: int
    end_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContainer:
    """One entry of the timeline: exactly one of the three is set."""

    checkpoint: CheckpointWorkload | None = None
    training: MetricsWorkload | None = None
    validation: MetricsWorkload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial as it is listed; `wall_clock_time` in seconds."""

    experiment_id: int
    hparams: Mapping[str, Any]
    id: int
    restarts: int
    start_time: datetime
    state: WireTrialState
    total_batches_processed: int
    best_checkpoint: CheckpointWorkload | None = None
    best_validation: MetricsWorkload | None = None
    checkpoint_count: int | None = None
    end_time: datetime | None = None
    failure: TrialFailure | None = None
    latest_validation: MetricsWorkload | None = None
    log_policy_matched: str | None = None
    log_retention_days: int | None = None
    metadata: Mapping[str, Any] | None = None
    runner_state: str | None = None
    searcher_metric_value: float | None = None
    summary_metrics: Mapping[str, Any] | None = None
    task_id: str | None = None
    task_ids: tuple[str, ...] = ()
    total_checkpoint_size: Int64 | None = None
    wall_clock_time: float | None = None
    warm_start_checkpoint_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialResponse:
    """One trial."""

    trial: Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentTrialsResponse:
    """A page of trials."""

    pagination: Pagination
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialWorkloadsResponse:
    """A page of the timeline."""

    pagination: Pagination
    workloads: tuple[WorkloadContainer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrialProgressRequest:
    """`is_raw`: `progress` is a fraction between 0 and 1."""

    progress: float
    is_raw: bool = False
    trial_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEarlyExit:
    """The trial ends itself."""

    reason: EarlyExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRunnerMetadata:
    """Free text on what the trial is doing."""

    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrepareForReportingRequest:
    """Announces a run; `run_id` is the trial's id."""

    checkpoint_storage: Mapping[str, Any] = field(default_factory=dict)
    run_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrepareForReportingResponse:
    """`storage_id` is echoed in checkpoint reports."""

    storage_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunMetadataRequest:
    """Replaces the metadata of a run."""

    metadata: Mapping[str, Any]
    run_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunMetadataResponse:
    """The metadata as stored."""

    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRunMetadataResponse:
    """The metadata of a run."""

    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialRemainingLogRetentionDaysResponse:
    """Days that the logs are still kept, begun ones in full; -1 is for ever."""

    remaining_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTrialRetainLogsRequest:
    """Days to keep the logs; -1 keeps them forever."""

    num_days: int
    trial_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBestSearcherValidationMetricResponse:
    """The best searcher metric of an experiment so far."""

    metric: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentTrialsQuery:
    """Query of a trial list."""

    limit: int = 0
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by: TrialSortBy = TrialSortBy.UNSPECIFIED
    states: tuple[WireExperimentState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialWorkloadsQuery:
    """Query of a timeline. `sort_key` is "batches" or the name of a metric."""

    filter: WorkloadFilter = WorkloadFilter.UNSPECIFIED
    group: str | None = None
    include_batch_metrics: bool = False
    limit: int = 0
    metric_type: MetricType = MetricType.UNSPECIFIED
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    remove_deleted_checkpoints: bool = False
    sort_key: str | None = None
