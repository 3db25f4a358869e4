"""States and kinds, spelled once. The REST contract prefixes most of them with `STATE_`; the codec adds that."""

from __future__ import annotations

from enum import StrEnum


class ExperimentState(StrEnum):
    """The state of an experiment or a trial. Trials never enter the deletion states."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETED = "DELETED"
    DELETE_FAILED = "DELETE_FAILED"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL

    @property
    def stopping(self) -> bool:
        return self in STOPPING_ENDS

    @property
    def gone(self) -> bool:
        """Whether no part of it can run any more."""
        return not (self in (ExperimentState.ACTIVE, ExperimentState.PAUSED) or self.stopping)


STOPPING_ENDS = {
    ExperimentState.STOPPING_COMPLETED: ExperimentState.COMPLETED,
    ExperimentState.STOPPING_CANCELED: ExperimentState.CANCELED,
    ExperimentState.STOPPING_KILLED: ExperimentState.CANCELED,
    ExperimentState.STOPPING_ERROR: ExperimentState.ERROR,
}
"""Each stopping state and the terminal state it ends in."""

_TERMINAL = frozenset({ExperimentState.COMPLETED, ExperimentState.CANCELED, ExperimentState.ERROR})


class AllocationState(StrEnum):
    """Progress of one attempt at a task; it only moves forward, in this order."""

    PENDING = "PENDING"
    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"

    @property
    def order(self) -> int:
        return _ALLOCATION_ORDER[self]


_ALLOCATION_ORDER = {state: index for index, state in enumerate(AllocationState)}


class ContainerState(StrEnum):
    """State of one container, as an agent reports it."""

    ASSIGNED = "ASSIGNED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    TERMINATED = "TERMINATED"

    @property
    def order(self) -> int:
        return _CONTAINER_ORDER[self]


_CONTAINER_ORDER = {state: index for index, state in enumerate(ContainerState)}


class FailureKind(StrEnum):
    """Why a container did not end well, and so whether its end counts as a restart."""

    CONTAINER_FAILED = "RESOURCES_FAILED"
    """Ended with a non-zero code. Counts."""
    TASK_ERROR = "TASK_ERROR"
    """Ended without an exit code. Counts."""
    LAUNCH_REFUSED = "LAUNCH_REFUSED"
    """The agent refuses to run such a task, with the reason, or the pool has given up launching machines for it. Final. Counts."""
    AGENT_FAILED = "AGENT_FAILED"
    """The agent or its machine went away. Does not count."""
    AGENT_ERROR = "AGENT_ERROR"
    """The agent could not launch it this time. Does not count."""
    RESTORE_ERROR = "RESTORE_ERROR"
    """The agent came back without it. Does not count."""
    ABORTED = "RESOURCES_ABORTED"
    """Killed before it started. Does not count."""

    @property
    def counts_as_restart(self) -> bool:
        return self in (FailureKind.CONTAINER_FAILED, FailureKind.TASK_ERROR, FailureKind.LAUNCH_REFUSED)


class LogPolicyAction(StrEnum):
    """Effect of a line of a trial's log at the next failure of the trial."""

    CANCEL_RETRIES = "cancel_retries"
    """The failure is final."""
    EXCLUDE_NODE = "exclude_node"
    """No later run is placed on the agent that the line came from."""


class TaskType(StrEnum):
    TRIAL = "TRIAL"
    NOTEBOOK = "NOTEBOOK"
    SHELL = "SHELL"
    COMMAND = "COMMAND"
    TENSORBOARD = "TENSORBOARD"
    CHECKPOINT_GC = "CHECKPOINT_GC"
    GENERIC = "GENERIC"


class CheckpointState(StrEnum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    DELETED = "DELETED"
    PARTIALLY_DELETED = "PARTIALLY_DELETED"


class SlotKind(StrEnum):
    """Kind of a slot."""

    CUDA = "cuda"
    ROCM = "rocm"
    CPU = "cpu"


class NoticeKind(StrEnum):
    """Why a machine will be taken away."""

    INTERRUPTION = "interruption"
    """The cloud takes the machine back at the deadline."""
    REBALANCE = "rebalance"
    """The risk of an interruption is elevated; nothing is certain."""
    MAINTENANCE = "maintenance"
    """The host will be serviced at the deadline."""
