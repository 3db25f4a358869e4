"""Calls of a running task: rendezvous, preemption, barriers, step marks."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.rest.allocations import (
    AllocationAllGatherRequest,
    AllocationAllGatherResponse,
    AllocationPreemptionSignalResponse,
    AllocationRendezvousInfoResponse,
    GetAllocationResponse,
    NotifyContainerRunningRequest,
    NotifyContainerRunningResponse,
    PostAllocationAcceleratorDataRequest,
    PostAllocationProxyAddressRequest,
    PreemptionSignalQuery,
    RendezvousInfo,
)
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.extensions import PostStepMarksRequest, PreemptionNotice
from resolute_master.api.auth.authorise import Action, AllocationRef
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.limits import LARGE_BODY_BYTES
from resolute_master.api.reading.finders import allocation_at, allocation_ref_at
from resolute_master.api.render.allocations import allocation as render_allocation
from resolute_master.domain import commands as c
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.ids import AllocationId, ContainerId
from resolute_master.domain.metrics import LogRecord, StepMark

log = logging.getLogger(__name__)

MAX_POLL_S = 600
"""Maximum duration of one preemption poll, whatever the request asks for."""

POLL_CHECK_S = 30.0
"""Interval at which a waiting call checks whether its caller is still connected. There may be ten thousand such calls, one per
task."""


async def get_allocation(call: Call, allocation: Allocation) -> GetAllocationResponse:
    """An allocation."""
    return GetAllocationResponse(allocation=render_allocation(allocation))


# ------------------------------------------------------------------------------------------------------ preemption


async def preemption_signal(call: Call, ref: AllocationRef) -> AllocationPreemptionSignalResponse:
    """Waits until the allocation is preempted or the timeout expires. For an unknown or ended allocation the answer is "no"."""
    timeout = call.query(PreemptionSignalQuery).timeout_seconds
    if timeout < 0:
        raise InvalidInput(f"timeoutSeconds: {timeout} must not be negative; 0 answers at once")
    loop = asyncio.get_running_loop()
    end = loop.time() + min(timeout, MAX_POLL_S)
    with call.api.engine.watch("allocation", ref.id) as news:
        while True:
            allocation = call.api.engine.state.get(Allocation, ref.id)
            left = end - loop.time()
            if allocation is None or allocation.ended:
                return AllocationPreemptionSignalResponse()
            if allocation.preempt is not None or left <= 0 or call.gone:
                return _signal(call, allocation)
            await news.changed(min(left, POLL_CHECK_S))


def _signal(call: Call, allocation: Allocation) -> AllocationPreemptionSignalResponse:
    request = allocation.preempt
    return AllocationPreemptionSignalResponse(
        preempt=request is not None,
        reason=request.reason if request else "",
        notice=_notice(call, allocation),
    )


def _notice(call: Call, allocation: Allocation) -> PreemptionNotice | None:
    """The most urgent notice of its machines. The preemption timeout may end the task before its machine ends."""
    agents = (call.api.engine.state.get(Agent, c.agent) for c in allocation.containers if not c.ended)
    notices = [agent.notice for agent in agents if agent is not None and agent.notice is not None]
    if not notices:
        return None
    first = min(notices, key=lambda n: (n.deadline is None, n.deadline.timestamp() if n.deadline else 0.0))
    deadline = first.deadline
    if deadline is not None and allocation.preempt is not None:
        deadline = min(deadline, allocation.preempt.deadline)
    return PreemptionNotice(kind=first.kind, deadline=deadline, reason=first.reason)


async def acknowledge_preemption(call: Call, ref: AllocationRef) -> Empty:
    """Reports from inside the task that it saves and exits because of the preemption signal."""
    await call.api.engine.submit(c.AcknowledgePreemption(allocation=ref.id))
    return Empty()


async def pending_preemption(call: Call, ref: AllocationRef) -> Empty:
    """Requests the preemption of an allocation."""
    reason = "the task was stopped by a request"
    await call.api.engine.submit(c.RequestPreemption(allocation=ref.id, reason=reason))
    return Empty()


# ------------------------------------------------------------------------------------------------------ rendezvous


async def rendezvous(call: Call, ref: AllocationRef) -> AllocationRendezvousInfoResponse:
    """Waits until every member of the gang has called, then returns the same addresses to all and to each its own rank."""
    container = ContainerId(call.text("resourcesId"))
    try:
        await call.api.engine.submit(c.JoinRendezvous(allocation=ref.id, container=container))
    except NotFound:
        raise FailedPrecondition(
            f"allocation '{ref.id}' is unknown or has ended; its rendezvous has no members"
        ) from None
    loop = asyncio.get_running_loop()
    warn_at: float | None = loop.time() + call.api.rendezvous_warning_s
    with call.api.engine.watch("allocation", ref.id) as news:
        while True:
            allocation = call.api.engine.state.get(Allocation, ref.id)
            if allocation is None or allocation.ended:
                raise FailedPrecondition(f"allocation '{ref.id}' ended before all of its members had joined")
            if all(member.joined for member in allocation.containers):
                return _meeting(allocation, container)
            if call.gone:
                raise FailedPrecondition(f"container '{container}' no longer waits")
            if warn_at is not None and loop.time() >= warn_at:
                await _warn(call, allocation, container)
                warn_at = None
            await news.changed(POLL_CHECK_S if warn_at is None else min(POLL_CHECK_S, max(0.0, warn_at - loop.time())))


def _meeting(allocation: Allocation, container: ContainerId) -> AllocationRendezvousInfoResponse:
    members = sorted(allocation.containers, key=lambda member: member.rank)
    info = RendezvousInfo(
        addresses=tuple(member.address or "127.0.0.1" for member in members),
        slots=tuple(len(member.slots) for member in members),
        rank=next(member.rank for member in members if member.id == container),
    )
    return AllocationRendezvousInfoResponse(rendezvous_info=info)


async def _warn(call: Call, allocation: Allocation, container: ContainerId) -> None:
    """Warns once in the task's log: the waiting member of the lowest rank does so."""
    waiting = [m for m in allocation.containers if m.joined]
    if min(waiting, key=lambda m: m.rank).id != container:
        return
    missing = ", ".join(f"rank {m.rank} on {m.agent}" for m in allocation.containers if not m.joined)
    minutes = call.api.rendezvous_warning_s / 60
    text = f"after {minutes:.0f} minutes some members have not joined the rendezvous: {missing}\n"
    record = LogRecord(
        key=f"rendezvous:{allocation.id}",
        task_id=allocation.task_id,
        allocation_id=allocation.id,
        agent_id="",
        container_id="",
        rank=None,
        at=call.api.clock.now(),
        level="WARNING",
        stdtype="stdout",
        source="master",
        log=text,
    )
    await call.api.reporting.logs([record])


# --------------------------------------------------------------------------------------------------------- barriers


async def all_gather(call: Call, allocation: Allocation) -> AllocationAllGatherResponse:
    """Collects one value of every container; answers all of them when the last one has called."""
    request = await call.body(AllocationAllGatherRequest)
    data = await call.api.barriers.gather(
        allocation.id, _member(request.request_uuid), request.num_peers or 0, request.data
    )
    return AllocationAllGatherResponse(data=data)


async def container_running(call: Call, allocation: Allocation) -> NotifyContainerRunningResponse:
    """The barrier of `all_gather`, for a container that reports that it runs."""
    request = await call.body(NotifyContainerRunningRequest)
    data = await call.api.barriers.gather(
        allocation.id, _member(request.request_uuid), request.num_peers or 0, request.data
    )
    return NotifyContainerRunningResponse(data=data)


def _member(text: str | None) -> str:
    try:
        return str(UUID(text or ""))
    except ValueError:
        raise InvalidInput(f"requestUuid: '{text}' is no UUID") from None


# ---------------------------------------------------------------------------------------------------- small reports


async def accelerator_data(call: Call, allocation: Allocation) -> Empty:
    """Writes the devices that a container found to the master's log. They have no other effect."""
    found = (await call.body(PostAllocationAcceleratorDataRequest)).accelerator_data
    log.info(
        "allocation %s: container %s computes on %s %s",
        allocation.id,
        found.container_id,
        found.accelerator_type,
        ", ".join(found.accelerator_uuids),
    )
    return Empty()


async def proxy_address(call: Call, allocation: Allocation) -> Empty:
    """Checks the addresses that a container reports. The addresses in use come from the agents."""
    await call.body(PostAllocationProxyAddressRequest)
    return Empty()


async def ready(call: Call, ref: AllocationRef) -> Empty:
    """Reports from inside the task that it is ready."""
    await call.api.engine.submit(c.MarkReady(allocation=ref.id))
    return Empty()


async def waiting(call: Call, ref: AllocationRef) -> Empty:
    """Reports that a task is ready and has no work yet."""
    await call.api.engine.submit(c.MarkWaiting(allocation=ref.id))
    return Empty()


async def daemon(call: Call, allocation: Allocation) -> Empty:
    """Marks the resources as a daemon: the allocation ends when the others have exited."""
    container = ContainerId(call.text("resourcesId"))
    _need_member(allocation, container)
    await call.api.engine.submit(c.MarkDaemon(allocation=allocation.id, container=container))
    return Empty()


def _need_member(allocation: Allocation, container: ContainerId) -> Container:
    for member in allocation.containers:
        if member.id == container:
            return member
    raise NotFound("container", container)


async def step_marks(call: Call, allocation: Allocation) -> Empty:
    """Stores the steps that the run had completed at each moment, for the ledger. A mark contains the sum of its stops so far."""
    request = await call.body(PostStepMarksRequest)
    marks = [
        StepMark(
            allocation_id=AllocationId(allocation.id),
            steps_completed=mark.steps,
            at=mark.at,
            checkpointing_s=mark.checkpointing_s,
        )
        for mark in request.marks
    ]
    for mark in marks:
        if mark.steps_completed < 0 or not 0 <= mark.checkpointing_s < float("inf"):
            raise InvalidInput(
                f"marks: {mark.steps_completed} steps and {mark.checkpointing_s} s of saves are invalid; send numbers of at least 0"
            )
    if marks:
        await call.api.reporting.step_marks(marks)
    return Empty()


_AT = "/api/v1/allocations/{allocationId}"
_SIGNALS = f"{_AT}/signals"
_RESOURCES = f"{_AT}/resources/{{resourcesId}}"
_one = allocation_at("allocationId")
_ref = allocation_ref_at("allocationId")

ROUTES = (
    Route("GET", _AT, Action.VIEW, _one, get_allocation),
    Route("GET", f"{_SIGNALS}/preemption", Action.VIEW, _ref, preemption_signal),
    Route("POST", f"{_SIGNALS}/ack_preemption", Action.REPORT, _ref, acknowledge_preemption),
    Route("POST", f"{_SIGNALS}/pending_preemption", Action.REPORT, _ref, pending_preemption),
    Route("GET", f"{_RESOURCES}/rendezvous", Action.REPORT, _ref, rendezvous),
    Route("POST", f"{_RESOURCES}/daemon", Action.REPORT, _one, daemon),
    Route("POST", f"{_AT}/all_gather", Action.REPORT, _one, all_gather, max_body=LARGE_BODY_BYTES),
    Route("POST", f"{_AT}/notify_container_running", Action.REPORT, _one, container_running),
    Route("POST", f"{_AT}/acceleratorData", Action.REPORT, _one, accelerator_data),
    Route("POST", f"{_AT}/proxy_address", Action.REPORT, _one, proxy_address),
    Route("POST", f"{_AT}/ready", Action.REPORT, _ref, ready),
    Route("POST", f"{_AT}/waiting", Action.REPORT, _ref, waiting),
    Route("POST", f"{_AT}/step_marks", Action.REPORT, _one, step_marks),
)
