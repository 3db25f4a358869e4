"""Checkpoints: reports, lists, changes."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import CheckpointSortBy, OrderBy, TrialSourceInfoType, WireCheckpointState
from resolute.wire.rest.metrics import Metrics, MetricsReport
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTrainingMetadata:
    """Where a checkpoint comes from and how good it is."""

    experiment_config: Mapping[str, Any] | None = None
    experiment_id: int | None = None
    hparams: Mapping[str, Any] | None = None
    searcher_metric: float | None = None
    training_metrics: Metrics | None = None
    trial_id: int | None = None
    validation_metrics: Metrics | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint; `resources` maps each file to its size in bytes, directories end in `/`. `removal` is the reason why files of
    it were or will be removed."""

    resources: Mapping[str, Int64]
    uuid: str
    allocation_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    removal: str | None = None
    report_time: datetime | None = None
    state: WireCheckpointState = WireCheckpointState.UNSPECIFIED
    storage_id: int | None = None
    task_id: str | None = None
    training: CheckpointTrainingMetadata = field(default_factory=CheckpointTrainingMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCheckpointResponse:
    """One checkpoint."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentCheckpointsResponse:
    """A page of an experiment's checkpoints."""

    checkpoints: tuple[Checkpoint, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialCheckpointsResponse:
    """A page of a trial's checkpoints."""

    checkpoints: tuple[Checkpoint, ...]
    pagination: Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpointsRequest:
    """Checkpoints to delete."""

    checkpoint_uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionalResources:
    """The files that are left."""

    resources: Mapping[str, Int64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPatch:
    """The remaining files of a checkpoint; an empty map means that it is deleted."""

    uuid: str
    resources: OptionalResources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCheckpointsRequest:
    """Result of a deletion."""

    checkpoints: tuple[CheckpointPatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsRemoveFilesRequest:
    """Delete the files that match the globs; without globs only look again."""

    checkpoint_globs: tuple[str, ...]
    checkpoint_uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCheckpointMetadataRequest:
    """Replaces the metadata of a checkpoint."""

    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCheckpointMetadataResponse:
    """The checkpoint with its new metadata."""

    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSourceInfo:
    """A trial works with a checkpoint, by its uuid or as a version of a model."""

    checkpoint_uuid: str
    trial_id: int
    trial_source_info_type: TrialSourceInfoType
    model_id: int | None = None
    model_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrialSourceInfoRequest:
    """Note what a trial works with."""

    trial_source_info: TrialSourceInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTrialSourceInfoResponse:
    """What was noted."""

    checkpoint_uuid: str
    trial_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialMetricsByCheckpointQuery:
    """Which reports; without a group, all but those of the machine."""

    metric_group: str | None = None
    trial_source_info_type: TrialSourceInfoType = TrialSourceInfoType.UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialMetricsByCheckpointResponse:
    """Reports of trials that work with a checkpoint."""

    metrics: tuple[MetricsReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCheckpointsQuery:
    """Query of a checkpoint list; without `order_by`, the searcher metric sorts best first."""

    limit: int = 0
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by_attr: CheckpointSortBy = CheckpointSortBy.UNSPECIFIED
    sort_by_metric: str | None = None
    states: tuple[WireCheckpointState, ...] = ()
