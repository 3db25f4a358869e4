"""Agents and their slots."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.rest.enums import AgentSortBy, DeviceType, OrderBy, WireContainerState
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device."""

    brand: str | None = None
    id: int | None = None
    type: DeviceType | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container on an agent."""

    id: str
    state: WireContainerState
    devices: tuple[Device, ...] = ()
    parent: str | None = None
    permission_denied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot; `container` is what runs there."""

    container: Container | None = None
    device: Device | None = None
    draining: bool = False
    enabled: bool = False
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStats:
    """Counts of the slots of one kind; `states` counts their containers."""

    disabled: int
    draining: int
    total: int
    states: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStats:
    """Counts by kind and by brand."""

    brand_stats: Mapping[str, DeviceStats]
    type_stats: Mapping[str, DeviceStats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent; `slots` and `containers` are keyed by their ids."""

    id: str
    slot_stats: SlotStats
    addresses: tuple[str, ...] = ()
    containers: Mapping[str, Container] = field(default_factory=dict)
    draining: bool = False
    enabled: bool = False
    registered_time: datetime | None = None
    resolute_version: str = ""
    """The agent's own; `version` is the contract's, as the master's is."""
    resource_pools: tuple[str, ...] = ()
    slots: Mapping[str, Slot] = field(default_factory=dict)
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAgentsResponse:
    """All agents."""

    agents: tuple[Agent, ...]
    pagination: Pagination | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAgentResponse:
    """One agent."""

    agent: Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableAgentResponse:
    """The enabled agent."""

    agent: Agent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableAgentRequest:
    """`drain` lets running tasks finish; otherwise they are killed."""

    agent_id: str = ""
    drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableAgentResponse:
    """The disabled agent."""

    agent: Agent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSlotsResponse:
    """The slots of an agent."""

    slots: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSlotResponse:
    """One slot."""

    slot: Slot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableSlotResponse:
    """The enabled slot."""

    slot: Slot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableSlotRequest:
    """`drain` lets a running task finish."""

    agent_id: str = ""
    drain: bool = False
    slot_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisableSlotResponse:
    """The disabled slot."""

    slot: Slot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAgentsQuery:
    """Query of the agent list."""

    exclude_containers: bool = False
    exclude_slots: bool = False
    limit: int = 0
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by: AgentSortBy = AgentSortBy.UNSPECIFIED
