"""Tasks and what they occupy."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.rest.agents import Device
from resolute.wire.rest.allocations import Allocation
from resolute.wire.rest.enums import FailureType, GenericTaskState, WireTaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyPortConfig:
    """A port that a task publishes."""

    port: int | None = None
    proxy_tcp: bool = False
    service_id: str | None = None
    unauthenticated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesSummaryDevices:
    """Devices on one agent."""

    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a container port can be reached."""

    container_ip: str | None = None
    container_port: int | None = None
    host_ip: str | None = None
    host_port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesStarted:
    """How a container came up."""

    addresses: tuple[Address, ...] = ()
    native_resources_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesFailure:
    """Why a container ended."""

    err_msg: str | None = None
    exit_code: int | None = None
    failure_type: FailureType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesStopped:
    """How a container ended; no failure is a clean end."""

    failure: ResourcesFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesSummary:
    """One container of an allocation; `agent_devices` is keyed by agent id."""

    agent_devices: Mapping[str, ResourcesSummaryDevices] = field(default_factory=dict)
    allocation_id: str | None = None
    container_id: str | None = None
    exited: ResourcesStopped | None = None
    resources_id: str | None = None
    resources_type: str | None = None
    started: ResourcesStarted | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationSummary:
    """An allocation that is queued or runs."""

    allocation_id: str | None = None
    name: str | None = None
    priority: int | None = None
    proxy_ports: tuple[ProxyPortConfig, ...] = ()
    registered_time: datetime | None = None
    resource_pool: str | None = None
    resources: tuple[ResourcesSummary, ...] = ()
    scheduler_type: str | None = None
    slots_needed: int | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTasksResponse:
    """Allocations by id."""

    allocation_id_to_summary: Mapping[str, AllocationSummary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task with its allocations, newest first."""

    allocations: tuple[Allocation, ...]
    start_time: datetime
    task_id: str
    task_type: WireTaskType
    config: str | None = None
    end_time: datetime | None = None
    forked_from: str | None = None
    no_pause: bool = False
    parent_id: str | None = None
    task_state: GenericTaskState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTaskResponse:
    """One task."""

    task: Task
