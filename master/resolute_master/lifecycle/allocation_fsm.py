"""The state machine of one allocation: the legal transitions, and the effects of each.

    PENDING -> ASSIGNED -> PULLING -> STARTING -> RUNNING -> TERMINATING -> TERMINATED

The state is the most advanced one over all containers and only moves forward. Any container's end moves the allocation to
TERMINATING; the end of the last one to TERMINATED, with the exit decided once:

- the first failure of a container that is no daemon kills the rest and is the allocation's failure;
- what was killed on request ends without failure, whatever the codes;
- a clean end after an acknowledged preemption is a preemption, one without it is the task's own decision to stop;
- a non-zero end after an acknowledged preemption is a failure, unless the machine itself went away.

Repeated and late reports are normal and change nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from resolute.wire.agent_link import MAX_ERROR_CHARACTERS, Exit
from resolute.wire.states import AllocationState, ContainerState, FailureKind, NoticeKind
from resolute_master.domain.allocation import Allocation, AllocationExit, Container, PreemptRequest, remembered
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import Effect, KillContainer, StartContainer
from resolute_master.domain.ids import ContainerId

HISTORY_LIMIT = 20
"""Transitions kept with an allocation, for errors and users."""

KILL_AGAIN_S = 30.0
"""Time after which a kill without effect is repeated."""

MEMBER_FAILED = "a member of the gang failed"
ONLY_DAEMONS_LEFT = "only daemons are left"
"""Kills that the allocation itself orders. The second one ends work that is done, and does not affect the exit."""


class InvalidTransition(Exception):
    """A rule requested a transition that does not exist. The error contains the history of the allocation."""

    def __init__(self, allocation: Allocation, event: object) -> None:
        super().__init__(
            f"{type(event).__name__} in {allocation.state} of {allocation.id}: {'; '.join(allocation.history)}"
        )


# ---------------------------------------------------------------------------------------------------------- events


class Assigned(Struct, frozen=True, kw_only=True, gc=False):
    containers: tuple[Container, ...]
    ports: dict[str, int]
    price_per_hour: float | None = None
    price_moves: bool = False


class ContainerMoved(Struct, frozen=True, kw_only=True, gc=False):
    """A state that an agent reports, or the loss of a container with its agent."""

    container: ContainerId
    state: ContainerState
    address: str = ""
    exit: Exit | None = None


class PreemptionAsked(Struct, frozen=True, kw_only=True, gc=False):
    reason: str
    deadline: datetime | None = None
    notice: NoticeKind | None = None
    for_another: bool = False


class PreemptionAcknowledged(Struct, frozen=True, kw_only=True, gc=False):
    pass


class KillAsked(Struct, frozen=True, kw_only=True, gc=False):
    reason: str


class LaunchGivenUp(Struct, frozen=True, kw_only=True, gc=False):
    """The machines that the allocation waits for cannot be launched."""

    reason: str


class Joined(Struct, frozen=True, kw_only=True, gc=False):
    container: ContainerId


class Ready(Struct, frozen=True, kw_only=True, gc=False):
    pass


class Saved(Struct, frozen=True, kw_only=True, gc=False):
    """The task has reported a checkpoint, from which the next run continues."""


class Waits(Struct, frozen=True, kw_only=True, gc=False):
    """The task is ready and has no work yet."""


class DaemonMarked(Struct, frozen=True, kw_only=True, gc=False):
    container: ContainerId


AllocationEvent = (
    Assigned
    | ContainerMoved
    | PreemptionAsked
    | PreemptionAcknowledged
    | KillAsked
    | LaunchGivenUp
    | Joined
    | Saved
    | Waits
    | Ready
    | DaemonMarked
)

Outcome = tuple[Allocation, tuple[Effect, ...]]


# ------------------------------------------------------------------------------------------------------------ moves


def step(allocation: Allocation, event: AllocationEvent, now: datetime) -> Outcome:
    """The allocation after the event, and the effects of the event."""
    if allocation.ended:
        return allocation, ()
    match event:
        case Assigned():
            return _assign(allocation, event, now)
        case ContainerMoved():
            return _container_moved(allocation, event, now)
        case PreemptionAsked():
            return _ask_preemption(allocation, event, now)
        case PreemptionAcknowledged():
            return _acknowledge(allocation, now), ()
        case KillAsked():
            return _kill(allocation, event.reason, now)
        case LaunchGivenUp(reason=reason):
            return _give_up(allocation, reason, now), ()
        case Joined(container=container):
            found = container_of(allocation, container)
            return (allocation if found is None else _with_container(allocation, replace(found, joined=True))), ()
        case Saved():
            return replace(allocation, saved_at=now), ()
        case Waits():
            running = allocation.state is AllocationState.RUNNING
            return (_advance(allocation, AllocationState.WAITING, now) if running else allocation), ()
        case Ready():
            return (allocation if allocation.ready else replace(allocation, ready_at=now)), ()
        case DaemonMarked(container=container):
            found = container_of(allocation, container)
            return (allocation if found is None else _with_container(allocation, replace(found, daemon=True))), ()


def kill_again(allocation: Allocation, now: datetime) -> Outcome:
    """Repeat a kill that has shown no effect."""
    return replace(allocation, killed_at=now), _kills(allocation)


def _assign(allocation: Allocation, event: Assigned, now: datetime) -> Outcome:
    if allocation.state is not AllocationState.PENDING:
        raise InvalidTransition(allocation, event)
    assigned = replace(
        allocation,
        **_entered(allocation, AllocationState.ASSIGNED, now),
        containers=event.containers,
        ports=event.ports,
        price_per_hour=event.price_per_hour,
        price_moves=event.price_moves,
        assigned_at=now,
    )
    return assigned, tuple(
        [StartContainer(container=c.id, allocation=allocation.id, agent=c.agent) for c in event.containers]
    )


def _container_moved(allocation: Allocation, event: ContainerMoved, now: datetime) -> Outcome:
    container = container_of(allocation, event.container)
    if container is None or container.ended or event.state.order < container.state.order:
        return allocation, ()
    address = event.address or container.address
    if event.state is ContainerState.TERMINATED:
        ended = replace(container, state=event.state, address=address, exit=event.exit)
        return _container_ended(_with_container(allocation, ended), ended, now)
    if (event.state, address) == (container.state, container.address):
        return allocation, ()
    # A single container needs no rendezvous.
    alone = event.state is ContainerState.RUNNING and len(allocation.containers) == 1
    moved = replace(container, state=event.state, address=address, joined=container.joined or alone)
    state = AllocationState[event.state.name]
    advance = state.order > allocation.state.order
    changed = replace(
        allocation,
        **(_entered(allocation, state, now) if advance else {}),
        containers=_members_with(allocation, moved),
        started_at=allocation.started_at or (now if event.state is not ContainerState.ASSIGNED else None),
        ready_at=allocation.ready_at or (now if alone else None),
    )
    return changed, ()


def _container_ended(allocation: Allocation, container: Container, now: datetime) -> Outcome:
    failed = _failure_of(container) is not None and not container.daemon
    if failed and allocation.first_failure is None and allocation.killed_at is None:
        allocation = replace(allocation, first_failure=container.id)
    if all(c.ended for c in allocation.containers):
        return _terminate(allocation, now), ()
    allocation = _advance(allocation, AllocationState.TERMINATING, now)
    only_daemons = all(c.ended or c.daemon for c in allocation.containers)
    if (failed or only_daemons) and allocation.killed_at is None:
        return _kill(allocation, MEMBER_FAILED if failed else ONLY_DAEMONS_LEFT, now)
    return allocation, ()


def _terminate(allocation: Allocation, now: datetime) -> Allocation:
    exit_ = _decide_exit(allocation)
    return replace(allocation, **_entered(allocation, AllocationState.TERMINATED, now), ended_at=now, exit=exit_)


def _ask_preemption(allocation: Allocation, event: PreemptionAsked, now: datetime) -> Outcome:
    if allocation.state is AllocationState.PENDING:
        return _withdraw(allocation, event.reason, now), ()
    if not allocation.preemptible:
        return _kill(allocation, event.reason, now)
    timeout = now + timedelta(seconds=allocation.preemption_timeout_s)
    deadline = min(timeout, event.deadline) if event.deadline else timeout
    before = allocation.preempt
    if before is None:
        request = PreemptRequest(
            reason=event.reason,
            requested_at=now,
            deadline=deadline,
            notice=event.notice,
            for_another=event.for_another,
        )
        asked = _remember(replace(allocation, preempt=request), f"asked to end: {event.reason}", now)
        return asked, ()
    if deadline < before.deadline or (event.notice and not before.notice):
        notice = event.notice or before.notice
        sooner = replace(before, reason=event.reason, deadline=min(deadline, before.deadline), notice=notice)
        return replace(allocation, preempt=sooner), ()
    return allocation, ()


def _acknowledge(allocation: Allocation, now: datetime) -> Allocation:
    """The task acknowledges the preemption. If the task got the notice from its machine first, the acknowledgement is also the
    request. A pending allocation has no task.
    """
    if not allocation.containers:
        return allocation
    request = allocation.preempt
    if request is None:
        deadline = now + timedelta(seconds=allocation.preemption_timeout_s)
        request = PreemptRequest(reason="reported by its machine", requested_at=now, deadline=deadline)
    elif request.acknowledged_at is not None:
        return allocation
    return _remember(replace(allocation, preempt=replace(request, acknowledged_at=now)), "acknowledged", now)


def _kill(allocation: Allocation, reason: str, now: datetime) -> Outcome:
    if allocation.state is AllocationState.PENDING:
        return _withdraw(allocation, reason, now), ()
    if allocation.killed_at is not None:
        return allocation, ()
    killed = _remember(replace(allocation, killed_at=now, kill_reason=reason), f"killed: {reason}", now)
    return killed, _kills(allocation)


def _withdraw(allocation: Allocation, reason: str, now: datetime) -> Allocation:
    """Ends an allocation that never got slots: nothing ran, and nothing is paid."""
    ended = _enter(allocation, AllocationState.TERMINATED, now)
    return replace(ended, ended_at=now, exit=AllocationExit(reason=f"ended before it started: {reason}"))


def _give_up(allocation: Allocation, reason: str, now: datetime) -> Allocation:
    """Ends a pending allocation whose machines cannot be launched. An allocation with slots needs no machine and continues."""
    if allocation.state is not AllocationState.PENDING:
        return allocation
    ended = _enter(allocation, AllocationState.TERMINATED, now)
    text = f"no machine can be launched for it: {reason}"
    return replace(ended, ended_at=now, exit=AllocationExit(reason=text, failure=FailureKind.LAUNCH_REFUSED))


# ------------------------------------------------------------------------------------------------------------- exit


def _decide_exit(allocation: Allocation) -> AllocationExit:
    """The exit. The first end decides: a failure before any kill, otherwise the kill, otherwise the tasks' own clean end."""
    request = allocation.preempt
    acknowledged = request is not None and request.acknowledged_at is not None
    if allocation.first_failure is not None:
        failed = container_of(allocation, allocation.first_failure)
        assert failed is not None
        kind = _failure_of(failed) or FailureKind.TASK_ERROR
        text = _failure_text(failed, kind)
        if acknowledged and kind is not FailureKind.AGENT_FAILED:
            text += ", after it had acknowledged the preemption"
        said = failed.exit or Exit()
        return AllocationExit(reason=text, failure=kind, code=said.code, error=said.error[-MAX_ERROR_CHARACTERS:])
    if allocation.killed_at is not None and allocation.kill_reason != ONLY_DAEMONS_LEFT:
        return AllocationExit(reason=allocation.kill_reason)
    if request is not None and acknowledged:
        return AllocationExit(reason=f"preempted: {request.reason}", code=0)
    return AllocationExit(reason="finished", code=0, finished=True)


def _failure_of(container: Container) -> FailureKind | None:
    if container.exit is None:
        return FailureKind.TASK_ERROR if container.ended else None
    if container.exit.failure is not None:
        return container.exit.failure
    return FailureKind.CONTAINER_FAILED if container.exit.code else None


def _failure_text(container: Container, kind: FailureKind) -> str:
    exit_ = container.exit or Exit()
    detail = f": {exit_.message}" if exit_.message else ""
    match kind:
        case FailureKind.CONTAINER_FAILED:
            return f"rank {container.rank} on {container.agent} exited with code {exit_.code}{detail}"
        case FailureKind.AGENT_FAILED:
            return f"agent {container.agent} went away{detail}"
        case FailureKind.RESTORE_ERROR:
            return f"agent {container.agent} reconnected without the container{detail}"
        case FailureKind.LAUNCH_REFUSED:
            return f"agent {container.agent} cannot run this task{detail}"
        case FailureKind.AGENT_ERROR:
            return f"agent {container.agent} could not start it{detail}"
        case FailureKind.ABORTED:
            return f"aborted before it started{detail}"
        case FailureKind.TASK_ERROR:
            return f"rank {container.rank} on {container.agent} ended without an exit code{detail}"


# ---------------------------------------------------------------------------------------------------------- helpers


def container_of(allocation: Allocation, container: ContainerId) -> Container | None:
    for each in allocation.containers:
        if each.id == container:
            return each
    return None


def _kills(allocation: Allocation) -> tuple[Effect, ...]:
    return tuple(
        KillContainer(container=c.id, allocation=allocation.id, agent=c.agent)
        for c in allocation.containers
        if not c.ended
    )


def _with_container(allocation: Allocation, container: Container) -> Allocation:
    return replace(allocation, containers=_members_with(allocation, container))


def _members_with(allocation: Allocation, container: Container) -> tuple[Container, ...]:
    return tuple([container if c.id == container.id else c for c in allocation.containers])


def _advance(allocation: Allocation, state: AllocationState, now: datetime) -> Allocation:
    return _enter(allocation, state, now) if state.order > allocation.state.order else allocation


def _enter(allocation: Allocation, state: AllocationState, now: datetime) -> Allocation:
    return replace(allocation, **_entered(allocation, state, now))


def _entered(allocation: Allocation, state: AllocationState, now: datetime) -> dict[str, Any]:
    """The changes of an allocation that enters the state."""
    return {"state": state, "history": _history_with(allocation, state.value, now)}


def _remember(allocation: Allocation, what: str, now: datetime) -> Allocation:
    return replace(allocation, history=_history_with(allocation, what, now))


def _history_with(allocation: Allocation, what: str, now: datetime) -> tuple[str, ...]:
    return (*allocation.history, remembered(what, now))[-HISTORY_LIMIT:]
