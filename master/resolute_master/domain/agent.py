"""Agents and the slots of their machines."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from resolute.wire.agent_link import Device
from resolute.wire.states import NoticeKind
from resolute_master.domain.ids import AgentId, InstanceId, PoolName


class SlotRef(Struct, frozen=True, kw_only=True, order=True, gc=False):
    """One slot of the cluster."""

    agent: AgentId
    index: int


class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """One device, or the CPU slot. Whether it is used is derived from the allocations, never stored."""

    device: Device
    enabled: bool = True
    draining: bool = False

    @property
    def index(self) -> int:
        return self.device.index


class MachineNotice(Struct, frozen=True, kw_only=True, gc=False):
    """A notice that the machine will be taken away."""

    kind: NoticeKind
    deadline: datetime | None
    reason: str
    received_at: datetime


class AgentKey(Struct, frozen=True, kw_only=True, gc=False):
    """The machine that a name belongs to, for agents that no cloud pool launched. `id` is the name.

    It outlives the agent's registration: a name stays with its machine until an administrator frees it.
    """

    id: AgentId
    digest: str
    """SHA-256 of the credential that the machine made for itself; the credential is on that machine only."""
    bound_at: datetime


class Agent(Struct, frozen=True, kw_only=True, gc=False):
    """A registered agent.

    `incarnation` changes with every start of the agent process; what an older one reports is fenced.
    `disconnected_at` is set while the link is down: the agent is kept until the pool's reconnect wait is over.
    """

    id: AgentId
    pool: PoolName
    slots: tuple[Slot, ...]
    incarnation: str
    address: str
    version: str
    registered_at: datetime
    connected_at: datetime
    disconnected_at: datetime | None = None
    enabled: bool = True
    draining: bool = False
    instance_id: InstanceId | None = None
    notice: MachineNotice | None = None

    @property
    def connected(self) -> bool:
        return self.disconnected_at is None

    @property
    def leaving(self) -> bool:
        """Whether the machine is going to be taken away, or may be. A risk suffices: nothing may be placed on it."""
        return self.notice is not None

    @property
    def placeable(self) -> bool:
        return self.connected and self.takes_work

    @property
    def takes_work(self) -> bool:
        """Whether allocations may be placed on it while it is connected."""
        return self.enabled and not self.draining and not self.leaving

    @property
    def usable_slots(self) -> frozenset[int]:
        """Indexes of slots that may be assigned, whether in use or not."""
        return frozenset([slot.index for slot in self.slots if slot.enabled and not slot.draining])
