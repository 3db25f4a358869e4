"""Checkpoints and their files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from resolute.wire.states import CheckpointState
from resolute_master.domain.ids import AllocationId, ExperimentId, TaskId, TrialId


class CheckpointPurpose(StrEnum):
    """Purpose for which a trial uses a checkpoint of another one."""

    INFERENCE = "INFERENCE"
    FINE_TUNING = "FINE_TUNING"


class CheckpointUse(Struct, frozen=True, kw_only=True, gc=False):
    """A trial that reported that it uses the checkpoint."""

    trial_id: TrialId
    purpose: CheckpointPurpose


class Checkpoint(Struct, frozen=True, kw_only=True, gc=False):
    """`resources` maps each file's relative path to its size in bytes; directories end with a slash and have size 0."""

    uuid: str
    task_id: TaskId
    allocation_id: AllocationId
    trial_id: TrialId
    experiment_id: ExperimentId
    run_id: int
    state: CheckpointState
    steps_completed: int
    reported_at: datetime
    resources: Mapping[str, int]
    metadata: Mapping[str, Any]
    storage_id: int | None = None
    used_by: tuple[CheckpointUse, ...] = ()
    continued: bool = False
    """Whether trials of another experiment were started from it. Such a checkpoint is not removed automatically."""
    removal: str = ""
    """Why files of it were or will be removed, in words; "" if no removal was ordered."""

    @property
    def id(self) -> str:
        return self.uuid

    @property
    def size(self) -> int:
        return sum(self.resources.values())
