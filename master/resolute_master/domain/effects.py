"""What is to be done in the world once the decision is stored: rows of the outbox.

Every effect is idempotent and has a key; storing it again under the same key changes nothing. A row leaves the outbox in
the commit that records that it is carried out (the container's report, the removed files), so a master that was
killed in between acts again after its restart.

Each is stored with the name of its class as its `type`.

Machines need no rows here: an `Instance` that is to run or to stop is its own order to the cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, ExperimentId


class StartContainer(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Order the agent to start a container. Carried out when the agent reports any state of the container."""

    container: ContainerId
    allocation: AllocationId
    agent: AgentId

    @property
    def key(self) -> str:
        return f"start:{self.container}"


class KillContainer(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Order the agent to kill a container. Carried out when the container is TERMINATED."""

    container: ContainerId
    allocation: AllocationId
    agent: AgentId
    grace_s: float = 0.0

    @property
    def key(self) -> str:
        return f"kill:{self.container}"


class RemoveCheckpoint(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Remove the checkpoint's files from its storage. Carried out when the checkpoint is DELETED."""

    uuid: str
    experiment: ExperimentId

    @property
    def key(self) -> str:
        return f"remove-checkpoint:{self.uuid}"


class RemoveFiles(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Remove the files of a checkpoint that match one of `globs` and report the rest; without globs only report. `order`
    distinguishes orders about one checkpoint. Carried out when what is left has been recorded under the key.
    """

    uuid: str
    experiment: ExperimentId
    globs: tuple[str, ...]
    order: int

    @property
    def key(self) -> str:
        return f"remove-files:{self.uuid}:{self.order}"


class RemoveTensorboardFiles(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Remove what the experiment's trials wrote for TensorBoard.

    `storage` is the experiment's own checkpoint storage: the experiment may be forgotten before its files are. `has_saved`: its
    checkpoints were stored there, so that a storage that is missing is away, and not one that was never made.
    """

    experiment: ExperimentId
    storage: Mapping[str, Any]
    has_saved: bool = False

    @property
    def key(self) -> str:
        return f"remove-tensorboards:{self.experiment}"


class ReviewCheckpoints(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Find out which checkpoints of an experiment that has ended are kept. Carried out with `KeepCheckpoints`."""

    experiment: ExperimentId

    @property
    def key(self) -> str:
        return f"review-checkpoints:{self.experiment}"


class DeleteExperiments(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Delete the experiments of a project that is DELETING. Carried out when the project is gone, or has failed to go."""

    project: int

    @property
    def key(self) -> str:
        return f"delete-experiments:{self.project}"


class MoveExperiments(Struct, frozen=True, kw_only=True, gc=False, tag=True):
    """Make the ended experiments of a project follow it to the workspace that it was moved to. Carried out when all have."""

    project: int

    @property
    def key(self) -> str:
        return f"move-experiments:{self.project}"


Effect = (
    StartContainer
    | KillContainer
    | RemoveCheckpoint
    | RemoveFiles
    | RemoveTensorboardFiles
    | ReviewCheckpoints
    | DeleteExperiments
    | MoveExperiments
)
EFFECT_TYPES: tuple[type[Effect], ...] = (
    StartContainer,
    KillContainer,
    RemoveCheckpoint,
    RemoveFiles,
    RemoveTensorboardFiles,
    ReviewCheckpoints,
    DeleteExperiments,
    MoveExperiments,
)
