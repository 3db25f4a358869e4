"""Everything that may be asked of the engine: typed values, journaled as they are.

A command carries facts and wishes, never secrets (passwords are hashed before they become a command) and never files (they
are stored by their hash first).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.agent_link import ContainerReport, Device
from resolute.wire.states import ExperimentState, LogPolicyAction, NoticeKind
from resolute_master.domain.administration import (
    BindPool,
    CreateProject,
    CreateWorkspace,
    DeleteTemplate,
    PatchWorkspace,
    PutTemplate,
    RenameTemplate,
    SetBudget,
    SetMaxCost,
)
from resolute_master.domain.checkpoint import CheckpointPurpose
from resolute_master.domain.ids import (
    AgentId,
    AllocationId,
    ContainerId,
    ExperimentId,
    InstanceId,
    JobId,
    PoolName,
    SessionId,
    TrialId,
    UserId,
)
from resolute_master.domain.machines import RecordBootFailure, RecordPrices, RecordStray, SpendJoinToken
from resolute_provisioner.model import Observed, RefusalKind

# ---------------------------------------------------------------------------------------------------------- master


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterStarted:
    """First command of every master process: no link survives a restart, so every agent is disconnected now."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconsider:
    """The slow safety pass: look at every pool again, although nothing is known to have changed."""


# ----------------------------------------------------------------------------------------------------------- users


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUser:
    """Replies with the `UserId`."""

    username: str
    password_hash: str
    admin: bool = False
    active: bool = True
    display_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeUser:
    """None leaves a field as it is."""

    user: UserId
    username: str | None = None
    password_hash: str | None = None
    admin: bool | None = None
    active: bool | None = None
    display_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSession:
    session: SessionId
    user: UserId
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    session: SessionId


# ----------------------------------------------------------------------------------------------------- experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateExperiment:
    """Replies with the `ExperimentId`. `config` is complete, defaulted and validated.

    An unmanaged experiment is never scheduled: its trials run elsewhere and report. `external_id` is its owner's own name
    for it: a second creation under the same name replies with the first one's id and changes nothing.
    """

    owner: UserId
    config: Mapping[str, Any]
    original_config: str
    context_hash: str
    pool: PoolName
    priority: int
    weight: float
    max_slots: int | None
    seed: int
    activate: bool
    workspace_id: int = 1
    project_id: int = 1
    parent: ExperimentId | None = None
    unmanaged: bool = False
    external_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivateExperiment:
    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseExperiment:
    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelExperiment:
    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class KillExperiment:
    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveExperiment:
    experiment: ExperimentId
    archived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExperiment:
    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchExperiment:
    """None leaves a field as it is."""

    experiment: ExperimentId
    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveExperiment:
    """To a project, which may be of another workspace."""

    experiment: ExperimentId
    project_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCheckpointPolicy:
    """How many checkpoints to keep from now on; the others are removed at once.

    `metrics` holds the searcher's metric of every checkpoint that has one, and None for the others. A checkpoint that it does
    not name was reported after they were read, and stays.
    """

    experiment: ExperimentId
    experiment_best: int
    trial_best: int
    trial_latest: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTensorboards:
    """Remove the TensorBoard files of all trials."""

    experiment: ExperimentId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetExperimentLogRetention:
    """Of all its trials, in days after their end; -1 keeps the logs for ever."""

    experiment: ExperimentId
    days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTrialLogRetention:
    trial: TrialId
    days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillTrial:
    trial: TrialId


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateJob:
    """None leaves a field as it is. Moving to another pool preempts what runs, so that it moves.

    `ahead_of` or `behind_of` names the job beside which it is to stand in the queue, with that one's priority.
    """

    job: JobId
    priority: int | None = None
    weight: float | None = None
    max_slots: int | None = None
    pool: PoolName | None = None
    ahead_of: JobId | None = None
    behind_of: JobId | None = None


# ------------------------------------------------------------------------------------------------- unmanaged trials


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateUnmanagedTrial:
    """Replies with the `TrialId`; of a trial that the experiment has under this external id already, with that one's."""

    experiment: ExperimentId
    hparams: Mapping[str, Any]
    external_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnmanagedRun:
    """A process begins to report for the trial; replies with the number of its run. `resume` False wants the first run."""

    trial: TrialId
    resume: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HearUnmanagedTrial:
    """A sign of life; with a state, what has become of the trial."""

    trial: TrialId
    state: ExperimentState | None = None


# ------------------------------------------------------------------------------------------------ from inside tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRendezvous:
    allocation: AllocationId
    container: ContainerId


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgePreemption:
    allocation: AllocationId


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPreemption:
    """The task asks to be preempted, because something outside told it to stop."""

    allocation: AllocationId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkWaiting:
    """The task is up, and waits for something to work on."""

    allocation: AllocationId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkReady:
    allocation: AllocationId


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkDaemon:
    allocation: AllocationId
    container: ContainerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEarlyExit:
    trial: TrialId
    invalid_hparams: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportProgress:
    trial: TrialId
    progress: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRunnerState:
    trial: TrialId
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRunMetadata:
    trial: TrialId
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReport:
    """What one durable metric report means for its trial."""

    trial: TrialId
    run_id: int
    steps_completed: int
    validation: Mapping[str, Any] | None
    """The metrics of a validation report, else None."""
    reported_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReports:
    """Metric reports that are durable already."""

    reports: tuple[StoredReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedLine:
    """A stored line of a trial's log in which the pattern of one of its log policies was found."""

    trial: TrialId
    allocation: AllocationId | None
    agent: AgentId | None
    """Where it was written, as far as that is known."""
    name: str | None
    pattern: str
    action: LogPolicyAction | None
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLogMatches:
    """Lines that are durable already; again is without effect."""

    matches: tuple[MatchedLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCheckpoint:
    """A checkpoint that is complete in its storage. Keyed by uuid, fenced by the allocation."""

    uuid: str
    allocation: AllocationId
    steps_completed: int
    resources: Mapping[str, int]
    metadata: Mapping[str, Any]
    storage_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCheckpointMetadata:
    uuid: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCheckpointResources:
    """What is left of a checkpoint's files: nothing means DELETED, less than before PARTIALLY_DELETED.

    `obeyed` is the key of the order that this answers, if it answers one.
    """

    uuid: str
    resources: Mapping[str, int]
    obeyed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoints:
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCheckpointFiles:
    """Remove the files that match a pattern; without patterns, only look again at what is there."""

    uuids: tuple[str, ...]
    globs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCheckpoint:
    """The trial works with a checkpoint of another one."""

    trial: TrialId
    uuid: str
    purpose: CheckpointPurpose


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRemovedTensorboards:
    """The TensorBoard files of the experiment are gone."""

    removed_from: ExperimentId


# ---------------------------------------------------------------------------------------------------------- agents


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterAgent:
    """A new link. Replies with the ids of the containers that are expected on the agent."""

    agent: AgentId
    pool: PoolName
    incarnation: str
    devices: tuple[Device, ...]
    address: str
    version: str
    instance: InstanceId | None
    reports: tuple[ContainerReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoseAgentLink:
    agent: AgentId
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportContainer:
    agent: AgentId
    incarnation: str
    report: ContainerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportNotice:
    agent: AgentId
    incarnation: str
    kind: NoticeKind
    deadline: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAgentEnabled:
    """Disabling without drain ends what runs there; draining lets it finish; enabling clears both."""

    agent: AgentId
    enabled: bool
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSlotEnabled:
    agent: AgentId
    index: int
    enabled: bool
    draining: bool = False


# ------------------------------------------------------------------------------------------------------- instances


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLaunch:
    """The cloud confirmed the machine."""

    instance: InstanceId
    provider_id: str
    observed: Observed
    paid_from: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRefusal:
    """The cloud gave no machine for this instance: its row is over, a new try is a new row."""

    instance: InstanceId
    kind: RefusalKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordObservation:
    """The cloud's word about a machine has changed. GONE is final."""

    instance: InstanceId
    provider_id: str
    observed: Observed
    paid_from: datetime | None
    paid_until: datetime | None
    message: str = ""
    """What the cloud says about it."""
    refusal: RefusalKind | None = None
    """It ended before it was of use, for the reason of a refusal."""


Command = (
    MasterStarted
    | Reconsider
    | CreateUser
    | ChangeUser
    | StartSession
    | EndSession
    | CreateExperiment
    | ActivateExperiment
    | PauseExperiment
    | CancelExperiment
    | KillExperiment
    | ArchiveExperiment
    | DeleteExperiment
    | PatchExperiment
    | MoveExperiment
    | SetCheckpointPolicy
    | RemoveTensorboards
    | SetExperimentLogRetention
    | SetTrialLogRetention
    | KillTrial
    | UpdateJob
    | PutTemplate
    | RenameTemplate
    | DeleteTemplate
    | CreateWorkspace
    | PatchWorkspace
    | CreateProject
    | BindPool
    | SetBudget
    | SetMaxCost
    | CreateUnmanagedTrial
    | StartUnmanagedRun
    | HearUnmanagedTrial
    | JoinRendezvous
    | AcknowledgePreemption
    | RequestPreemption
    | MarkWaiting
    | MarkReady
    | MarkDaemon
    | ReportEarlyExit
    | ReportProgress
    | ReportRunnerState
    | SetRunMetadata
    | RecordReports
    | RecordLogMatches
    | ReportCheckpoint
    | SetCheckpointMetadata
    | SetCheckpointResources
    | DeleteCheckpoints
    | RemoveCheckpointFiles
    | UseCheckpoint
    | RecordRemovedTensorboards
    | RegisterAgent
    | LoseAgentLink
    | ReportContainer
    | ReportNotice
    | SpendJoinToken
    | SetAgentEnabled
    | SetSlotEnabled
    | RecordLaunch
    | RecordRefusal
    | RecordObservation
    | RecordBootFailure
    | RecordStray
    | RecordPrices
)

COMMANDS: Mapping[str, type[Command]] = {kind.__name__: kind for kind in Command.__args__}
"""By the name under which the journal keeps them."""
