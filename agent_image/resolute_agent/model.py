"""The values of an agent's decisions: its state, events and effects.

Frozen, without rules: the rules are in `state`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from resolute.wire.agent_link import (
    AgentMessage,
    ContainerReport,
    ContainerSpec,
    Device,
    Exit,
    MasterMessage,
    Notice,
    NoticeFile,
    Welcome,
)
from resolute.wire.states import ContainerState

# ----------------------------------------------------------------------------------------------------------- state


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of this agent; fixed for the life of its process."""

    agent_id: str
    resource_pool: str
    incarnation: str
    version: str
    devices: tuple[Device, ...]
    join_token: str = ""
    instance_id: str = ""
    own_credential: str = ""
    """Drawn by this process, for a machine outside of elastic pools that has none yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """One container that the agent answers for.

    `ended` is how it ended, known before its last output has been sent; `exit` is the reported one. `launched`: the runtime has
    its order. An unwanted container is being killed and will be forgotten without a report.
    """

    container_id: str
    allocation_id: str
    task_id: str
    slots: tuple[int, ...]
    state: ContainerState
    sequence: int
    at: datetime
    address: str = ""
    launched: bool = False
    wanted: bool = True
    killing: bool = False
    ended: Exit | None = None
    exit: Exit | None = None

    @property
    def living(self) -> bool:
        """A process may exist for it."""
        return self.launched and self.ended is None and self.state is not ContainerState.TERMINATED

    def report(self) -> ContainerReport:
        return ContainerReport(
            container_id=self.container_id,
            allocation_id=self.allocation_id,
            state=self.state,
            sequence=self.sequence,
            at=self.at,
            address=self.address,
            exit=self.exit,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Durable:
    """What must survive a restart of the agent."""

    sequence: int = 0
    acknowledged: int = 0
    containers: tuple[ContainerRecord, ...] = ()
    ended: tuple[ContainerReport, ...] = ()
    credential: str = ""
    """The machine's own secret: on an elastic pool the master gave it, elsewhere the machine made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """All that the agent's decisions look at. `containers` is keyed by container id."""

    identity: Identity
    address: str = ""
    sequence: int = 0
    acknowledged: int = 0
    containers: Mapping[str, ContainerRecord] = field(default_factory=lambda: MappingProxyType({}))
    ended: tuple[ContainerReport, ...] = ()
    credential: str = ""
    waiting: Mapping[str, ContainerSpec] = field(default_factory=lambda: MappingProxyType({}))
    welcome: Welcome | None = None
    welcomed: bool = False
    notice: Notice | None = None
    ending: str | None = None
    over: bool = False
    refused: str | None = None
    """Why the master does not take this agent, which is no machine of an elastic pool: it ends, its containers do not."""

    def durable(self) -> Durable:
        return Durable(
            sequence=self.sequence,
            acknowledged=self.acknowledged,
            containers=tuple(self.containers[key] for key in sorted(self.containers)),
            ended=self.ended,
            credential=self.credential,
        )


# ---------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A container that the runtime still has after a restart of the agent. `exit` is set when it has ended."""

    container_id: str
    allocation_id: str
    task_id: str
    slots: tuple[int, ...]
    exit: Exit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """First event: what the runtime still has."""

    found: tuple[Found, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOpened:
    """Connected. `address` is this machine's address as tasks on other machines reach it."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkClosed:
    """The connection is closed; containers continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesSeen:
    """The machine was looked at again: these are its slots now."""

    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    message: MasterMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressed:
    """The runtime reached this state with the container."""

    container_id: str
    state: ContainerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """The container has ended, or could not be started; none of its processes is left."""

    container_id: str
    exit: Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsDrained:
    """The output of an ended container is stored, or the wait for that was given up."""

    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSeen:
    notice: Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLost:
    """No message from a master for longer than the limit of an elastic machine."""

    after_s: float


Event = (
    Booted
    | LinkOpened
    | LinkClosed
    | DevicesSeen
    | Received
    | Progressed
    | Exited
    | LogsDrained
    | NoticeSeen
    | MasterLost
)


# --------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """Put the durable part of the state after this step on the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    message: AgentMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    spec: ContainerSpec
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Follow a container that runs already: wait for its end, ship its output."""

    container_id: str
    allocation_id: str
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    container_id: str
    grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLogs:
    """Send the rest of an ended container's output, then report `LogsDrained`."""

    container_id: str
    allocation_id: str
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """The container's directory is no longer needed once its output is stored (unless `ship` is false)."""

    container_id: str
    allocation_id: str
    task_id: str
    ship: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewLeases:
    """The master answered: these containers may continue for `lease_s` from the moment of the request."""

    container_ids: tuple[str, ...]
    lease_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyTasks:
    container_ids: tuple[str, ...]
    notice: NoticeFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseLink:
    """Register again with the master: it refused for now, or the agent's facts have changed."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """No container is left and the machine is to go."""

    reason: str


Effect = Save | Send | Start | Watch | Kill | DrainLogs | Forget | RenewLeases | NotifyTasks | CloseLink | End
