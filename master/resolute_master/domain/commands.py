"""The commands that the engine accepts: typed values, journaled as they are.

A command contains facts and requests, never secrets (passwords are hashed before they become a command) and never files (they
are stored by their hash first).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from resolute.wire.agent_link import ContainerReport, Device
from resolute.wire.states import ExperimentState, LogPolicyAction, NoticeKind
from resolute_master.domain.administration import AdministrativeCommand
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
from resolute_master.domain.machines import ForgetAgent, RecordBootFailure, RecordPrices, RecordStray, SpendJoinToken
from resolute_master.domain.user import AgentUser
from resolute_provisioner.model import Observed, RefusalKind

# ---------------------------------------------------------------------------------------------------------- master


class MasterStarted(Struct, frozen=True, kw_only=True, gc=False):
    """First command of every master process: no link survives a restart, so every agent is disconnected now."""

    version: str


class Reconsider(Struct, frozen=True, kw_only=True, gc=False):
    """A regular safety pass: decide every pool again, although no change is known."""


# ----------------------------------------------------------------------------------------------------------- users


class CreateUser(Struct, frozen=True, kw_only=True, gc=False):
    """Creates a user; replies with the `UserId`."""

    username: str
    password_hash: str
    admin: bool = False
    active: bool = True
    display_name: str = ""
    agent_user: AgentUser | None = None


class ChangeUser(Struct, frozen=True, kw_only=True, gc=False):
    """Changes a user. None leaves a field unchanged; `without_agent_user` removes the account."""

    user: UserId
    username: str | None = None
    password_hash: str | None = None
    admin: bool | None = None
    active: bool | None = None
    display_name: str | None = None
    agent_user: AgentUser | None = None
    without_agent_user: bool = False


class StartSession(Struct, frozen=True, kw_only=True, gc=False):
    session: SessionId
    user: UserId
    expires_at: datetime


class EndSession(Struct, frozen=True, kw_only=True, gc=False):
    session: SessionId


# ----------------------------------------------------------------------------------------------------- experiments


class CreateExperiment(Struct, frozen=True, kw_only=True, gc=False):
    """Creates an experiment; replies with the `ExperimentId`. `config` is complete, defaulted and validated.

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


class ActivateExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId


class PauseExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId


class CancelExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId


class KillExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId


class ArchiveExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId
    archived: bool


class DeleteExperiment(Struct, frozen=True, kw_only=True, gc=False):
    experiment: ExperimentId


class PatchExperiment(Struct, frozen=True, kw_only=True, gc=False):
    """Changes an experiment as a whole, or raises an error and changes nothing. None leaves a field unchanged.

    `labels` are there instead of those that it has; `add_labels` and `remove_labels` change those that it has by then.
    """

    experiment: ExperimentId
    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: tuple[str, ...] | None = None
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    job: UpdateJob | None = None
    checkpoint_policy: SetCheckpointPolicy | None = None


class MoveExperiment(Struct, frozen=True, kw_only=True, gc=False):
    """Moves an experiment to a project, which may be in another workspace."""

    experiment: ExperimentId
    project_id: int


class SetCheckpointPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """How many checkpoints to keep from now on; the others are removed at once. None: the experiment's own counts at that time.
    Journals from before it was a part of `PatchExperiment` have it by itself.

    `metrics` holds the searcher's metric of every checkpoint that has one, and None for the others. A checkpoint that it does
    not name was reported after they were read, and stays.
    """

    experiment: ExperimentId
    experiment_best: int | None
    trial_best: int | None
    trial_latest: int | None
    metrics: Mapping[str, float | None]


class KeepCheckpoints(Struct, frozen=True, kw_only=True, gc=False):
    """Remove the checkpoints that the experiment's own counts do not keep. `metrics` are those of `SetCheckpointPolicy`; where only
    the counts of trials matter, it may name the checkpoints of some trials alone. `order` is the key of the order that asked for
    it, or empty.
    """

    experiment: ExperimentId
    metrics: Mapping[str, float | None]
    order: str = ""


class RemoveTensorboards(Struct, frozen=True, kw_only=True, gc=False):
    """Remove the TensorBoard files of all trials."""

    experiment: ExperimentId


class SetExperimentLogRetention(Struct, frozen=True, kw_only=True, gc=False):
    """Sets the retention of the logs of all its trials, in days after their end; -1 keeps the logs for ever."""

    experiment: ExperimentId
    days: int


class SetTrialLogRetention(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId
    days: int


class KillTrial(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId


class UpdateJob(Struct, frozen=True, kw_only=True, gc=False):
    """Changes a job. None leaves a field unchanged. A move to another pool preempts running allocations, which continue there.

    `ahead_of` or `behind_of` names its new neighbour in the queue, whose priority it gets.
    """

    job: JobId
    priority: int | None = None
    weight: float | None = None
    max_slots: int | None = None
    pool: PoolName | None = None
    ahead_of: JobId | None = None
    behind_of: JobId | None = None


# ------------------------------------------------------------------------------------------------- unmanaged trials


class CreateUnmanagedTrial(Struct, frozen=True, kw_only=True, gc=False):
    """Creates a trial that runs elsewhere; replies with the `TrialId`. If the experiment has a trial under this external id, it
    replies with that one's."""

    experiment: ExperimentId
    hparams: Mapping[str, Any]
    external_id: str | None = None


class StartUnmanagedRun(Struct, frozen=True, kw_only=True, gc=False):
    """A process begins to report for the trial; replies with the number of its run. `resume` False requests the first run."""

    trial: TrialId
    resume: bool


class ReportUnmanagedTrial(Struct, frozen=True, kw_only=True, gc=False):
    """A heartbeat of the trial, and its new state if it has one."""

    trial: TrialId
    state: ExperimentState | None = None


# ------------------------------------------------------------------------------------------------ from inside tasks


class JoinRendezvous(Struct, frozen=True, kw_only=True, gc=False):
    allocation: AllocationId
    container: ContainerId


class AcknowledgePreemption(Struct, frozen=True, kw_only=True, gc=False):
    allocation: AllocationId


class RequestPreemption(Struct, frozen=True, kw_only=True, gc=False):
    """The task requests its preemption, after a stop request from outside the master."""

    allocation: AllocationId
    reason: str


class MarkWaiting(Struct, frozen=True, kw_only=True, gc=False):
    """The task is ready, and waits for work."""

    allocation: AllocationId


class MarkReady(Struct, frozen=True, kw_only=True, gc=False):
    allocation: AllocationId


class MarkDaemon(Struct, frozen=True, kw_only=True, gc=False):
    allocation: AllocationId
    container: ContainerId


class ReportEarlyExit(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId
    invalid_hparams: bool


class ReportProgress(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId
    progress: float


class CompleteOperation(Struct, frozen=True, kw_only=True, gc=False):
    """The trial has trained until `length`, the one that its search has given it, and reached this metric."""

    trial: TrialId
    length: int
    metric: float


class ProposePoints(Struct, frozen=True, kw_only=True, gc=False):
    """Points for the next trials of a search, from a sampler that used the results of `known` trials. Ignored once there are
    others."""

    experiment: ExperimentId
    known: int
    points: tuple[Mapping[str, Any], ...]


class ReportRunnerState(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId
    state: str


class SetRunMetadata(Struct, frozen=True, kw_only=True, gc=False):
    trial: TrialId
    metadata: Mapping[str, Any]


class StoredReport(Struct, frozen=True, kw_only=True, gc=False):
    """The consequences of one durable metric report for its trial."""

    trial: TrialId
    run_id: int
    steps_completed: int
    validation: Mapping[str, Any] | None
    """The metrics of a validation report, else None."""
    reported_at: datetime


class RecordReports(Struct, frozen=True, kw_only=True, gc=False):
    """Metric reports that are durable already."""

    reports: tuple[StoredReport, ...]


class MatchedLine(Struct, frozen=True, kw_only=True, gc=False):
    """A stored line of a trial's log in which the pattern of one of its log policies was found."""

    trial: TrialId
    allocation: AllocationId | None
    agent: AgentId | None
    """Agent on which it was written, if known."""
    name: str | None
    pattern: str
    action: LogPolicyAction | None
    line: str


class RecordLogMatches(Struct, frozen=True, kw_only=True, gc=False):
    """Lines that are durable already. Repeats have no effect."""

    matches: tuple[MatchedLine, ...]


class ReportCheckpoint(Struct, frozen=True, kw_only=True, gc=False):
    """A checkpoint that is complete in its storage. Keyed by uuid, fenced by the allocation."""

    uuid: str
    allocation: AllocationId
    steps_completed: int
    resources: Mapping[str, int]
    metadata: Mapping[str, Any]
    storage_id: int | None = None


class SetCheckpointMetadata(Struct, frozen=True, kw_only=True, gc=False):
    uuid: str
    metadata: Mapping[str, Any]


class SetCheckpointResources(Struct, frozen=True, kw_only=True, gc=False):
    """What is left of a checkpoint's files: nothing means DELETED, less than before PARTIALLY_DELETED.

    `order` is the key of the order that this answers, if it answers one.
    """

    uuid: str
    resources: Mapping[str, int]
    order: str = ""


class DeleteCheckpoints(Struct, frozen=True, kw_only=True, gc=False):
    uuids: tuple[str, ...]


class RemoveCheckpointFiles(Struct, frozen=True, kw_only=True, gc=False):
    """Remove the files that match a pattern; without patterns, only list the files again."""

    uuids: tuple[str, ...]
    globs: tuple[str, ...]


class ReportRemovalWaits(Struct, frozen=True, kw_only=True, gc=False):
    """The removal of a checkpoint waits for its storage, as do the other removals of the experiment. `problem` is a sentence."""

    uuid: str
    problem: str


class UseCheckpoint(Struct, frozen=True, kw_only=True, gc=False):
    """The trial uses a checkpoint of another trial."""

    trial: TrialId
    uuid: str
    purpose: CheckpointPurpose


class RecordRemovedTensorboards(Struct, frozen=True, kw_only=True, gc=False):
    """The TensorBoard files of the experiment have been removed."""

    removed_from: ExperimentId


# ---------------------------------------------------------------------------------------------------------- agents


class RegisterAgent(Struct, frozen=True, kw_only=True, gc=False):
    """A new link. Replies with the ids of the containers that are expected on the agent.

    `key` is the digest of the credential that an agent outside of cloud pools has shown: the name is bound to it. `proven`: a
    machine of a cloud pool has shown its credential, so its join token is used up.
    """

    agent: AgentId
    pool: PoolName
    incarnation: str
    devices: tuple[Device, ...]
    address: str
    version: str
    instance: InstanceId | None
    reports: tuple[ContainerReport, ...]
    key: str = ""
    proven: bool = False


class LoseAgentLink(Struct, frozen=True, kw_only=True, gc=False):
    agent: AgentId
    incarnation: str


class ReportContainer(Struct, frozen=True, kw_only=True, gc=False):
    agent: AgentId
    incarnation: str
    report: ContainerReport


class ReportNotice(Struct, frozen=True, kw_only=True, gc=False):
    agent: AgentId
    incarnation: str
    kind: NoticeKind
    deadline: datetime | None
    reason: str


class SetAgentEnabled(Struct, frozen=True, kw_only=True, gc=False):
    """Enables, disables or drains an agent. Disabling kills its tasks; draining lets them finish; enabling clears both."""

    agent: AgentId
    enabled: bool
    draining: bool = False


class SetSlotEnabled(Struct, frozen=True, kw_only=True, gc=False):
    agent: AgentId
    index: int
    enabled: bool
    draining: bool = False


# ------------------------------------------------------------------------------------------------------- instances


class RecordLaunch(Struct, frozen=True, kw_only=True, gc=False):
    """The cloud confirmed the machine."""

    instance: InstanceId
    provider_id: str
    observed: Observed
    paid_from: datetime | None


class RecordRefusal(Struct, frozen=True, kw_only=True, gc=False):
    """The cloud gave no machine for this instance: its row is final, and another attempt has a row of its own."""

    instance: InstanceId
    kind: RefusalKind
    message: str


class RecordObservation(Struct, frozen=True, kw_only=True, gc=False):
    """The state that the cloud reports for a machine has changed. GONE is final."""

    instance: InstanceId
    provider_id: str
    observed: Observed
    paid_from: datetime | None
    paid_until: datetime | None
    message: str = ""
    """The cloud's message."""
    refusal: RefusalKind | None = None
    """The class of the refusal, if the machine ended before it was usable, for the reason of a refusal."""


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
    | KeepCheckpoints
    | RemoveTensorboards
    | SetExperimentLogRetention
    | SetTrialLogRetention
    | KillTrial
    | UpdateJob
    | AdministrativeCommand
    | CreateUnmanagedTrial
    | StartUnmanagedRun
    | ReportUnmanagedTrial
    | JoinRendezvous
    | AcknowledgePreemption
    | RequestPreemption
    | MarkWaiting
    | MarkReady
    | MarkDaemon
    | ReportEarlyExit
    | ReportProgress
    | CompleteOperation
    | ProposePoints
    | ReportRunnerState
    | SetRunMetadata
    | RecordReports
    | RecordLogMatches
    | ReportCheckpoint
    | SetCheckpointMetadata
    | SetCheckpointResources
    | DeleteCheckpoints
    | RemoveCheckpointFiles
    | ReportRemovalWaits
    | UseCheckpoint
    | RecordRemovedTensorboards
    | RegisterAgent
    | LoseAgentLink
    | ReportContainer
    | ReportNotice
    | SpendJoinToken
    | ForgetAgent
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
"""Commands by their names in the journal."""
