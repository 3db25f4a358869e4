"""Messages between master and agent: one JSON object a WebSocket text frame, `{"type": ..., "body": {...}}`.

Path `/agents/link` of the master. The agent sends the first message (`Hello`); the master answers `Welcome` or
`Refused` and closes. From then on both sides send in any order. Every message may arrive twice: an agent
re-sends what was not acknowledged, a master re-sends `StartContainer` and `KillContainer` until the
container's state shows that they were carried out.

`ContainerReport.sequence` grows with each report of an agent's state directory, also over restarts of the agent;
`Acknowledged` names the last one that the master has stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.states import ContainerState, FailureKind, NoticeKind, SlotKind, TaskType

PROTOCOL_VERSION = 1

MAX_ERROR_CHARACTERS = 4000
"""Maximum length of the last output of a failed container in its report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One slot as the agent sees it. `index` is the slot's number on the agent and, for GPUs, the device index."""

    index: int
    kind: SlotKind
    brand: str
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a container ended. A clean end has code 0 and no failure."""

    code: int | None = None
    failure: FailureKind | None = None
    message: str = ""
    error: str = ""
    """The end of its output when it failed: a traceback or its last lines, at most `MAX_ERROR_CHARACTERS` of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A directory of the machine that the task sees."""

    host_path: str
    container_path: str
    read_only: bool = False
    propagation: str = "rprivate"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostDevice:
    """A device file of the machine that the task sees; `mode` is any of m, r, w."""

    host_path: str
    container_path: str
    mode: str = "mrw"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUser:
    """The user of a task where the agent may choose it. `derived`: the numbers belong to the Resolute user alone, and no account
    of the machine may have them; else an administrator has named the account."""

    uid: int
    gid: int
    user: str
    group: str
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """Settings for a runtime with container images; other runtimes list the ignored ones in the task's output.

    `network_mode` is `bridge`, `host`, `none` or the name of a network of the machine's engine. `ports` are published.
    `registry_auth` holds credentials as in the configuration. `user` is `uid:gid`; empty is the image's own.
    `configured_paths` are host paths that the operator of the master gives to tasks, also where they are in its state.
    """

    force_pull: bool = False
    registry_auth: Mapping[str, str] = field(default_factory=dict)
    network_mode: str = "bridge"
    mounts: tuple[BindMount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    user: str = ""
    configured_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """Everything an agent needs to run one container, complete: the agent adds only facts of its machine.

    `environment` holds the master's variables of the task environment; the agent adds its own (`DET_MASTER*`,
    `DET_AGENT_ID`, `DET_CLUSTER_ID`, `DET_CONTAINER_ID`, `DET_SLOT_IDS`, run directory). `command` is run by the
    agent's supervisor; it is the launcher of our wheel for trials. `shared_directories` are host paths that must
    stay visible inside a private mount namespace, as (host path, path in the container). `image` is the one for the
    kind of the slots.

    `run_as` is the user of a plain process, where the agent is root; None is a master that does not know of it. `code` is the
    model code as the launcher would fetch it (base64 of a gzip tar, empty for none), sent along where it is small; with None
    the launcher requests it. `alone`: the container is the only one of its allocation. `startup_hook` is a shell script that
    the launcher sources before anything of the user's; empty for none.
    """

    container_id: str
    allocation_id: str
    task_id: str
    task_type: TaskType
    description: str
    slots: tuple[int, ...]
    environment: Mapping[str, str]
    command: tuple[str, ...]
    image: str = ""
    working_directory: str = ""
    shared_directories: tuple[tuple[str, str], ...] = ()
    shm_bytes: int = 0
    options: ContainerOptions = field(default_factory=ContainerOptions)
    run_as: TaskUser | None = None
    code: str | None = None
    alone: bool = False
    startup_hook: str = field(default="", repr=False)


# ------------------------------------------------------------------------------------------------ agent -> master


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerReport:
    """What became of one container; later reports never go back in state."""

    container_id: str
    allocation_id: str
    state: ContainerState
    sequence: int
    at: datetime
    address: str = ""
    exit: Exit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of every connection.

    `incarnation` is drawn again by each agent process; reports of older incarnations of the same agent are fenced.
    `containers` are all that the agent has or remembers and that the master has not yet acknowledged as ended.
    A machine of an elastic pool is given `instance_id` and `join_token` by its boot configuration; the token is good until
    the machine has kept the `credential` that the master gave it, which it shows from then on.
    Any other machine shows the cluster's `join_token` and the `credential` that it made for itself and has on its disk. The
    first Hello with a free name binds the name to that credential; later ones need the credential alone.
    """

    protocol: int
    version: str
    agent_id: str
    resource_pool: str
    incarnation: str
    devices: tuple[Device, ...]
    address: str
    join_token: str = ""
    credential: str = ""
    instance_id: str = ""
    containers: tuple[ContainerReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerChanged:
    report: ContainerReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a task's output, keyed by (container_id, stdtype, offset): identical lines survive, repeats do not.

    `offset` is the byte offset of the line's first byte in the container's output file.
    """

    task_id: str
    allocation_id: str
    container_id: str
    stdtype: str
    offset: int
    at: datetime
    log: str
    level: str = "INFO"
    rank: int | None = None
    source: str = "task"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """Lines to store; the agent keeps them until `LogsStored` with the same number arrives."""

    batch: int
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sent every `Welcome.heartbeat_s`; renews the leases of all containers of this agent."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialKept:
    """`Welcome.credential` is on the machine's disk: from now on the join token may be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The machine will be taken away. Repeated on each connection until it ends."""

    kind: NoticeKind
    deadline: datetime | None
    reason: str
    at: datetime


# ------------------------------------------------------------------------------------------------ master -> agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent is accepted.

    `expected` are the containers that the master has recorded for this agent; any other container of the agent is to be
    killed and forgotten. `lease_s` is how long a task may continue without a heartbeat that the master answered.
    `credential` is the own secret of a machine of an elastic pool, sent until it was answered with `CredentialKept`.
    """

    cluster_id: str
    cluster_name: str
    master_id: str
    heartbeat_s: float
    lease_s: float
    expected: tuple[str, ...] = ()
    credential: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The agent is not accepted; `final` means that trying again is pointless: a machine of an elastic pool should end itself,
    any other agent ends and leaves its tasks to their leases."""

    reason: str
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContainer:
    """Idempotent by container id. Always answered with a `ContainerChanged`, also when the start is refused."""

    spec: ContainerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    """End it now. Already gone is success; an unknown container is answered as TERMINATED with RESTORE_ERROR."""

    container_id: str
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """The master has stored every report up to and including `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsStored:
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """The machine is to end: kill everything, then exit (an elastic machine powers itself off)."""

    reason: str


AgentMessage = Hello | ContainerChanged | LogBatch | Heartbeat | Notice | CredentialKept
MasterMessage = (
    Welcome | Refused | HeartbeatAnswer | StartContainer | KillContainer | Acknowledged | LogsStored | Shutdown
)

AGENT_MESSAGES: Mapping[str, type[AgentMessage]] = {
    kind.__name__: kind for kind in (Hello, ContainerChanged, LogBatch, Heartbeat, Notice, CredentialKept)
}
MASTER_MESSAGES: Mapping[str, type[MasterMessage]] = {
    kind.__name__: kind
    for kind in (Welcome, Refused, HeartbeatAnswer, StartContainer, KillContainer, Acknowledged, LogsStored, Shutdown)
}

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Larger frames are a protocol error: large contexts travel over REST."""

MAX_CODE_CHARACTERS = 256 * 1024
"""Maximum length of `ContainerSpec.code`: the launcher fetches larger code, so that it does not block the agent's link."""

LOG_BATCH_LINES = 1000
"""Lines of one batch."""

LOG_BATCHES_IN_FLIGHT = 4
"""Batches sent and not yet stored; past this the agent reads no more output, which stays in its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFile:
    """What a task finds as `notice.json` in its run directory when its machine is going away."""

    kind: NoticeKind
    deadline: datetime | None
    reason: str
    extra: Mapping[str, str] = field(default_factory=dict)


LONG_VARIABLES = ("DET_EXPERIMENT_CONFIG", "DET_HPARAMS")
"""Variables that grow with the configuration of an experiment."""

LONG_VARIABLE_BYTES = 120 * 1024
"""A longer one is in `LONG_VARIABLES_FILE`: Linux executes no program with a variable of 128 KiB or more."""

LONG_VARIABLES_FILE = "environment.json"
"""In the run directory: an object of the variables that are too long for the environment; it is there only if there are any."""


PYTHON_VARIABLE = "DET_PYTHON_EXECUTABLE"
"""Among the variables of a task, as the contract names it: the Python that runs its entrypoint."""


def named_python(variables: Mapping[str, str]) -> str:
    """The virtual environment or interpreter that a task names; empty where it takes what is there.

    A name without a slash is what `PATH` has under it anyway.
    """
    value = variables.get(PYTHON_VARIABLE, "")
    return value if "/" in value else ""


STARTUP_HOOK_FILE = "dynamic-tcd-startup-hook.sh"
"""In the run directory: `ContainerSpec.startup_hook`, under the name of the contract; it is there only if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedFile:
    """What a task finds as `handed.json` in its run directory: what its launcher need not ask the master for.

    `code` as in `ContainerSpec`; the addresses, in the words of `rendezvous.json`, are those of a gang of one, empty otherwise.
    """

    code: str | None = None
    container_addrs: tuple[str, ...] = ()
    container_slot_counts: tuple[int, ...] = ()
