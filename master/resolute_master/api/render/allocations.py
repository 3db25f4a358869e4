"""Allocations, alone and as tasks."""

from __future__ import annotations

from collections.abc import Sequence

from resolute.wire.rest.agents import Device as WireDevice
from resolute.wire.rest.allocations import Allocation as WireAllocation
from resolute.wire.rest.enums import DeviceType, FailureType, WireTaskType
from resolute.wire.rest.tasks import (
    Address,
    AllocationSummary,
    ResourcesFailure,
    ResourcesStarted,
    ResourcesStopped,
    ResourcesSummary,
    ResourcesSummaryDevices,
    Task,
)
from resolute.wire.states import ContainerState, FailureKind, SlotKind
from resolute_master.api.render.states import task_state
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.trial import Trial

_DEVICE_TYPES = {SlotKind.CPU: DeviceType.CPU, SlotKind.CUDA: DeviceType.CUDA, SlotKind.ROCM: DeviceType.ROCM}
_FAILURE_TYPES = {
    FailureKind.LAUNCH_REFUSED: FailureType.AGENT_ERROR,
    **{kind: FailureType[kind.value] for kind in FailureKind if kind.value in FailureType.__members__},
}


def device(slot: Slot) -> WireDevice:
    return WireDevice(
        id=slot.device.index, brand=slot.device.brand, uuid=slot.device.uuid, type=_DEVICE_TYPES[slot.device.kind]
    )


def allocation(value: Allocation) -> WireAllocation:
    return WireAllocation(
        allocation_id=value.id,
        task_id=value.task_id,
        slots=value.slots_needed,
        state=task_state(value.state),
        is_ready=value.ready,
        start_time=value.started_at,
        end_time=value.ended_at,
        exit_reason=value.exit.reason if value.exit else None,
        status_code=value.exit.code if value.exit else None,
    )


def task(trial: Trial, allocations: Sequence[Allocation]) -> Task:
    """The task of a trial with its attempts (oldest first); the newest comes first in the answer."""
    return Task(
        task_id=trial.task_id,
        task_type=WireTaskType.TRIAL,
        start_time=trial.started_at,
        end_time=trial.ended_at,
        allocations=tuple(allocation(a) for a in reversed(allocations)),
    )


def summary(
    value: Allocation, *, name: str, priority: int | None, scheduler: str, agents: dict[str, Agent]
) -> AllocationSummary:
    return AllocationSummary(
        allocation_id=value.id,
        task_id=value.task_id,
        name=name,
        priority=priority,
        registered_time=value.requested_at,
        resource_pool=value.pool,
        resources=tuple(_resources(value, c, agents.get(c.agent)) for c in value.containers),
        scheduler_type=scheduler,
        slots_needed=value.slots_needed,
    )


def _resources(value: Allocation, container: Container, agent: Agent | None) -> ResourcesSummary:
    slots = [s for s in agent.slots if s.index in container.slots] if agent else []
    started = container.state in (ContainerState.RUNNING, ContainerState.TERMINATED)
    return ResourcesSummary(
        allocation_id=value.id,
        container_id=container.id,
        resources_id=container.id,
        resources_type="docker-container",
        agent_devices={container.agent: ResourcesSummaryDevices(devices=tuple(device(s) for s in slots))},
        started=ResourcesStarted(addresses=_addresses(container)) if started else None,
        exited=_stopped(container),
    )


def _addresses(container: Container) -> tuple[Address, ...]:
    if not container.address:
        return ()
    return (Address(container_ip=container.address, host_ip=container.address),)


def _stopped(container: Container) -> ResourcesStopped | None:
    if not container.ended:
        return None
    ended = container.exit
    if ended is None or (ended.failure is None and not ended.code):
        return ResourcesStopped()
    kind = ended.failure or FailureKind.CONTAINER_FAILED
    failure = ResourcesFailure(err_msg=ended.message, exit_code=ended.code, failure_type=_FAILURE_TYPES[kind])
    return ResourcesStopped(failure=failure)
