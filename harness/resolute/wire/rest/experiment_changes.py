"""Experiments: create, change, and the files that they are made of."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import LaunchWarning
from resolute.wire.rest.experiments import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One entry of a context directory. `type` is the tar type flag (48 file, 53 directory), `mode` the full st_mode,
    `mtime` unix seconds, `content` the bytes.
    """

    content: bytes
    gid: int
    mode: int
    mtime: Int64
    path: str
    type: int
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateExperimentRequest:
    """`config` is YAML text. `validate_only` checks and stores nothing."""

    activate: bool = False
    config: str = ""
    model_definition: tuple[File, ...] = ()
    parent_id: int | None = None
    project_id: int | None = None
    template: str | None = None
    unmanaged: bool = False
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateExperimentResponse:
    """What was created, with the complete configuration."""

    config: Mapping[str, Any]
    experiment: Experiment
    warnings: tuple[LaunchWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchCheckpointStorage:
    """How many checkpoints to keep."""

    save_experiment_best: int | None = None
    save_trial_best: int | None = None
    save_trial_latest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchResources:
    """Changes of the live job."""

    max_slots: int | None = None
    priority: int | None = None
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchExperiment:
    """Changes of an experiment; None leaves a field as it is, `labels` replaces the whole list."""

    checkpoint_storage: PatchCheckpointStorage | None = None
    description: str | None = None
    id: int = 0
    labels: tuple[str, ...] | None = None
    name: str | None = None
    notes: str | None = None
    resources: PatchResources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchExperimentResponse:
    """The changed experiment."""

    experiment: Experiment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetModelDefResponse:
    """The model definition as a gzip tar."""

    b64_tgz: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PutExperimentLabelResponse:
    """The labels after the change."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExperimentLabelResponse:
    """The labels after the change."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveExperimentRequest:
    """Move to another project."""

    destination_project_id: int
    experiment_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PutExperimentRetainLogsRequest:
    """Days to keep the logs of all trials; -1 keeps them forever."""

    num_days: int
    experiment_id: int = 0
