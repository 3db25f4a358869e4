"""Calls between a running task and the master."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.rest.enums import WireTaskState
from resolute.wire.rest.extensions import PreemptionNotice


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One attempt at a task."""

    allocation_id: str
    slots: int
    state: WireTaskState
    task_id: str
    end_time: datetime | None = None
    exit_reason: str | None = None
    is_ready: bool = False
    start_time: datetime | None = None
    status_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllocationResponse:
    """One allocation."""

    allocation: Allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTaskContextDirectoryResponse:
    """The context directory as a gzip tar; empty when there is none."""

    b64_tgz: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousInfo:
    """The gang: addresses and slots in the order of ranks, and the caller's own rank."""

    addresses: tuple[str, ...]
    rank: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRendezvousInfoResponse:
    """Answer of the rendezvous."""

    rendezvous_info: RendezvousInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationPreemptionSignalResponse:
    """Whether to save and leave. `reason` and `notice` go beyond the contract."""

    notice: PreemptionNotice | None = None
    preempt: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AckAllocationPreemptionSignalRequest:
    """The task acknowledges that it will end."""

    allocation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationPendingPreemptionSignalRequest:
    """The task asks to be preempted."""

    allocation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationAllGatherRequest:
    """One participant of a barrier."""

    allocation_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    num_peers: int | None = None
    request_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationAllGatherResponse:
    """The data of every participant."""

    data: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorData:
    """What a container found to compute on."""

    accelerator_type: str | None = None
    accelerator_uuids: tuple[str, ...] = ()
    allocation_id: str | None = None
    container_id: str | None = None
    node_name: str | None = None
    resource_pool: str | None = None
    task_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostAllocationAcceleratorDataRequest:
    """A container's accelerators."""

    accelerator_data: AcceleratorData
    allocation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostAllocationProxyAddressRequest:
    """Where a container's ports can be reached."""

    allocation_id: str = ""
    proxy_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyContainerRunningRequest:
    """A container has started."""

    allocation_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    node_name: str | None = None
    num_peers: int | None = None
    rank: int | None = None
    request_uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyContainerRunningResponse:
    """The data of every participant."""

    data: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkAllocationResourcesDaemonRequest:
    """The end of this container does not decide the end of the allocation."""

    allocation_id: str = ""
    resources_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationReadyRequest:
    """The service is up."""

    allocation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationWaitingRequest:
    """The service is up and waits for data."""

    allocation_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionSignalQuery:
    """How long to hold the poll; 0 answers at once."""

    timeout_seconds: int = 0
