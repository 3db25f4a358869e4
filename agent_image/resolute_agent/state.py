"""The state of an agent and its reaction to each event: one pure function, shared with the simulator.

`step(state, event, now)` returns the next state and the effects in the order in which they are to be carried out.
When the part of the state that must survive a restart has changed, the first effect is `Save`: nothing is sent and
nothing is started before what it follows from is on disk.

Story of a container: `StartContainer` makes a record and, once its slots are free, a `Start` (STARTING; until then it is
ASSIGNED); the runtime's `Progressed` moves it on;
`Exited` asks for its remaining output to be shipped (`DrainLogs`); `LogsDrained` makes the TERMINATED report; the
master's acknowledgement of that report removes the record (`Forget`) and leaves its last report in a bounded memory, so
that a late repetition of the start is answered instead of run again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from resolute.wire.agent_link import (
    PROTOCOL_VERSION,
    Acknowledged,
    AgentMessage,
    ContainerChanged,
    ContainerSpec,
    CredentialKept,
    Device,
    Exit,
    HeartbeatAnswer,
    Hello,
    KillContainer,
    LogsStored,
    MasterMessage,
    Notice,
    NoticeFile,
    Refused,
    Shutdown,
    StartContainer,
    Welcome,
)
from resolute.wire.states import ContainerState, FailureKind
from resolute_agent.model import (
    AgentState,
    Booted,
    CloseLink,
    ContainerRecord,
    DevicesSeen,
    DrainLogs,
    Durable,
    Effect,
    End,
    Event,
    Exited,
    Forget,
    Found,
    Identity,
    Kill,
    LinkClosed,
    LinkOpened,
    LogsDrained,
    MasterLost,
    NoticeSeen,
    NotifyTasks,
    Progressed,
    Received,
    RenewLeases,
    Save,
    Send,
    Start,
    Watch,
)

__all__ = [
    "AgentState",
    "Booted",
    "CloseLink",
    "ContainerRecord",
    "DevicesSeen",
    "DrainLogs",
    "Durable",
    "Effect",
    "End",
    "Event",
    "Exited",
    "Forget",
    "Found",
    "Identity",
    "Kill",
    "LinkClosed",
    "LinkOpened",
    "LogsDrained",
    "MasterLost",
    "NoticeSeen",
    "Progressed",
    "REMEMBERED_ENDS",
    "Received",
    "RenewLeases",
    "Save",
    "Send",
    "Start",
    "Step",
    "NotifyTasks",
    "Watch",
    "hello",
    "initial",
    "step",
]

REMEMBERED_ENDS = 64
"""Acknowledged ends kept to answer late repetitions. A master repeats itself for seconds, not for dozens of tasks, and every save
writes them all."""


Step = tuple[AgentState, tuple[Effect, ...]]


# ------------------------------------------------------------------------------------------------------------ step


def initial(identity: Identity, durable: Durable | None) -> AgentState:
    """The initial state of an agent process, from the `durable` state."""
    if durable is None:
        return AgentState(identity=identity)
    return AgentState(
        identity=identity,
        sequence=durable.sequence,
        acknowledged=durable.acknowledged,
        containers=MappingProxyType({record.container_id: record for record in durable.containers}),
        ended=durable.ended,
        credential=durable.credential,
    )


def step(state: AgentState, event: Event, now: datetime) -> Step:
    """The next state and what to do, in order."""
    after, effects = _apply(state, event, now)
    after, started = _start_waiting(after, now)
    effects += started
    if after.ending is not None and not after.over and not any(r.living for r in after.containers.values()):
        after = replace(after, over=True)
        effects += (End(reason=after.ending or ""),)
    if _outliving(after) != _outliving(state):
        effects = (Save(), *effects)
    return after, effects


def _outliving(state: AgentState) -> tuple[object, ...]:
    """What must survive a restart. An acknowledgement that changes nothing else need not: its report is sent again then."""
    return state.sequence, state.credential, state.containers, state.ended


def _apply(state: AgentState, event: Event, now: datetime) -> Step:
    match event:
        case Booted():
            return _booted(state, event.found, now)
        case LinkOpened():
            # The first Hello binds the agent's name to the credential: it is saved before, so a restart shows the same one.
            credential = state.credential or state.identity.own_credential
            state = replace(state, address=event.address, welcomed=False, credential=credential)
            return state, (Send(message=hello(state)),)
        case LinkClosed():
            return replace(state, welcomed=False), ()
        case DevicesSeen():
            return _devices_seen(state, event.devices)
        case Received():
            return _received(state, event.message, now)
        case Progressed():
            return _progressed(state, event, now)
        case Exited():
            return _exited(state, event, now)
        case LogsDrained():
            record = state.containers.get(event.container_id)
            if record is None or record.ended is None or record.state is ContainerState.TERMINATED:
                return state, ()
            return _report(state, record, ContainerState.TERMINATED, now, exit=record.ended)
        case NoticeSeen():
            return _noticed(state, event.notice)
        case MasterLost():
            return _end(state, f"no word from a master for {event.after_s:.0f} s", now)


def _devices_seen(state: AgentState, devices: tuple[Device, ...]) -> Step:
    """Other slots than the agent has reported: it reports them on a new link, with everything else."""
    if devices == state.identity.devices:
        return state, ()
    reason = f"the machine has {len(devices)} slot(s) now instead of {len(state.identity.devices)}, or other devices"
    return replace(state, identity=replace(state.identity, devices=devices)), (CloseLink(reason=reason),)


def hello(state: AgentState) -> Hello:
    """The first message of a connection: everything that this agent answers for."""
    identity = state.identity
    return Hello(
        protocol=PROTOCOL_VERSION,
        version=identity.version,
        agent_id=identity.agent_id,
        resource_pool=identity.resource_pool,
        incarnation=identity.incarnation,
        devices=identity.devices,
        address=state.address,
        join_token="" if state.credential and identity.instance_id else identity.join_token,
        credential=state.credential,
        instance_id=identity.instance_id,
        containers=tuple(record.report() for record in _sorted(state) if record.wanted),
    )


def _sorted(state: AgentState) -> list[ContainerRecord]:
    return [state.containers[key] for key in sorted(state.containers)]


def _with(state: AgentState, record: ContainerRecord) -> AgentState:
    return replace(state, containers=MappingProxyType({**state.containers, record.container_id: record}))


def _without(state: AgentState, container_id: str) -> AgentState:
    return replace(
        state,
        containers=MappingProxyType({k: v for k, v in state.containers.items() if k != container_id}),
        waiting=MappingProxyType({k: v for k, v in state.waiting.items() if k != container_id}),
    )


def _report(
    state: AgentState, record: ContainerRecord, to: ContainerState, now: datetime, *, exit: Exit | None = None
) -> Step:
    """Update the record and report to the master, now or after the next welcome."""
    sequence = state.sequence + 1
    record = replace(record, state=to, sequence=sequence, at=now, exit=exit, address=state.address)
    state = _with(replace(state, sequence=sequence), record)
    return state, _sending(state, ContainerChanged(report=record.report()))


def _sending(state: AgentState, message: AgentMessage) -> tuple[Effect, ...]:
    return (Send(message=message),) if state.welcomed else ()


def _booted(state: AgentState, found: tuple[Found, ...], now: datetime) -> Step:
    """Reconcile both sides: the runtime has the live containers, the records have the pending reports."""
    effects: tuple[Effect, ...] = ()
    still_there = {item.container_id: item for item in found}
    for record in _sorted(state):
        if record.state is ContainerState.TERMINATED:
            continue
        item = still_there.get(record.container_id)
        if item is None and record.ended is None:
            known = record.state.order >= ContainerState.RUNNING.order
            failure = FailureKind.RESTORE_ERROR if known else FailureKind.AGENT_ERROR
            message = "the agent was restarted and " + (
                "its processes have ended" if known else "it had not started yet"
            )
            state, more = _report(
                state, record, ContainerState.TERMINATED, now, exit=Exit(failure=failure, message=message)
            )
        elif record.ended is not None:
            more = (_drain(record),)
        elif not record.wanted:
            more = (_watch(record), Kill(container_id=record.container_id, grace_s=0.0))
        else:
            state, more = _report(state, record, ContainerState.RUNNING, now)
            more += (_watch(record),)
        effects += more
    for item in sorted(found, key=lambda item: item.container_id):
        if item.container_id not in state.containers:
            state, more = _stray(state, item, now)
            effects += more
    return state, effects


def _stray(state: AgentState, item: Found, now: datetime) -> Step:
    """The runtime has a container without a record: its end was acknowledged, or the agent's state was lost."""
    record = ContainerRecord(
        container_id=item.container_id,
        allocation_id=item.allocation_id,
        task_id=item.task_id,
        slots=item.slots,
        state=ContainerState.RUNNING,
        sequence=0,
        at=now,
        launched=True,
    )
    if item.exit is not None:
        return state, (_forget(record, ship=True),)
    # Without its record the agent asks the master: an expected container continues, any other is killed at the welcome.
    state, told = _report(state, record, ContainerState.RUNNING, now)
    return state, (*told, _watch(record))


def _watch(record: ContainerRecord) -> Watch:
    return Watch(container_id=record.container_id, allocation_id=record.allocation_id, task_id=record.task_id)


def _drain(record: ContainerRecord) -> DrainLogs:
    return DrainLogs(container_id=record.container_id, allocation_id=record.allocation_id, task_id=record.task_id)


def _forget(record: ContainerRecord, *, ship: bool) -> Forget:
    return Forget(
        container_id=record.container_id, allocation_id=record.allocation_id, task_id=record.task_id, ship=ship
    )


# --------------------------------------------------------------------------------------------- what the master says


def _received(state: AgentState, message: MasterMessage, now: datetime) -> Step:
    match message:
        case Welcome():
            return _welcomed(state, message)
        case Refused():
            if message.final and not state.identity.instance_id:
                return replace(state, refused=message.reason), ()
            if message.final:
                return _end(state, f"the master refused this agent: {message.reason}", now)
            return state, (CloseLink(reason=message.reason),)
        case HeartbeatAnswer():
            return state, _renewal(state)
        case StartContainer():
            return _start(state, message.spec, now)
        case KillContainer():
            return _kill(state, message, now)
        case Acknowledged():
            return _acknowledged(state, message.sequence)
        case Shutdown():
            return _end(state, f"requested by the master: {message.reason}", now)
        case LogsStored():
            return state, ()  # the log shipper's own


def _renewal(state: AgentState) -> tuple[Effect, ...]:
    living = tuple(record.container_id for record in _sorted(state) if record.living and record.wanted)
    if state.welcome is None or not living:
        return ()
    return (RenewLeases(container_ids=living, lease_s=state.welcome.lease_s),)


def _welcomed(state: AgentState, welcome: Welcome) -> Step:
    state = replace(state, welcome=welcome, welcomed=True)
    effects: tuple[Effect, ...] = ()
    if welcome.credential:  # told only when it is on the disk: `step` saves before anything is sent
        state = replace(state, credential=welcome.credential)
        effects += (Send(message=CredentialKept()),)
    for record in _sorted(state):
        if record.container_id in welcome.expected or not record.wanted:
            continue
        if record.living:
            state = _with(state, replace(record, wanted=False, killing=True))
            effects += (Kill(container_id=record.container_id, grace_s=0.0),)
        else:
            state = _without(state, record.container_id)
            effects += (_forget(record, ship=False),)
    effects += _renewal(state)
    owed = [r for r in _sorted(state) if r.wanted and r.sequence > state.acknowledged]
    for record in sorted(owed, key=lambda record: record.sequence):
        effects += (Send(message=ContainerChanged(report=record.report())),)
    if state.notice is not None:
        effects += (Send(message=state.notice),)
    return state, effects


def _start(state: AgentState, spec: ContainerSpec, now: datetime) -> Step:
    known = state.containers.get(spec.container_id)
    if known is not None:
        return state, _sending(state, ContainerChanged(report=known.report()))
    for report in state.ended:
        if report.container_id == spec.container_id:
            return state, _sending(state, ContainerChanged(report=report))
    record = ContainerRecord(
        container_id=spec.container_id,
        allocation_id=spec.allocation_id,
        task_id=spec.task_id,
        slots=tuple(sorted(spec.slots)),
        state=ContainerState.ASSIGNED,
        sequence=0,
        at=now,
    )
    problem = _why_not(state, spec)
    if problem:
        refusal = Exit(failure=FailureKind.AGENT_ERROR, message=problem)
        return _report(state, record, ContainerState.TERMINATED, now, exit=refusal)
    effects: tuple[Effect, ...] = ()
    if _slots_held(state, record):  # else it starts in this very step, and its first report says so
        state, effects = _report(state, record, ContainerState.ASSIGNED, now)
    else:
        state = _with(state, record)
    return replace(state, waiting=MappingProxyType({**state.waiting, spec.container_id: spec})), effects


def _why_not(state: AgentState, spec: ContainerSpec) -> str:
    """Why this agent cannot take the container now; empty when it can."""
    if state.ending is not None:
        return f"agent {state.identity.agent_id} is ending: {state.ending}"
    here = {device.index for device in state.identity.devices}
    missing = sorted(set(spec.slots) - here)
    if missing:
        return f"agent {state.identity.agent_id} has no slot {missing}; it has {sorted(here)}"
    if len(set(spec.slots)) != len(spec.slots):
        return f"slots {list(spec.slots)} name one slot twice"
    wanted = set(spec.slots)
    for record in _sorted(state):
        shared = sorted(wanted.intersection(record.slots))
        if shared and _holds(record) and not record.killing:
            return f"slots {shared} of agent {state.identity.agent_id} are taken by container {record.container_id}"
    return ""


def _holds(record: ContainerRecord) -> bool:
    return record.ended is None and record.state is not ContainerState.TERMINATED


def _slots_held(state: AgentState, record: ContainerRecord) -> bool:
    """Whether another container has some of its slots still."""
    others = (r for r in state.containers.values() if r.container_id != record.container_id and _holds(r))
    slots = set(record.slots)
    return not all(slots.isdisjoint(other.slots) for other in others)


def _start_waiting(state: AgentState, now: datetime) -> Step:
    """Start what was accepted and whose slots are free of containers that are still dying."""
    effects: tuple[Effect, ...] = ()
    for container_id in sorted(state.waiting):
        record = state.containers[container_id]
        spec = state.waiting[container_id]
        devices = tuple(device for device in state.identity.devices if device.index in record.slots)
        # It is not started with a device that was lost meanwhile: the master ends it when the loss is reported.
        if _slots_held(state, record) or len(devices) < len(record.slots):
            continue
        remaining = {key: value for key, value in state.waiting.items() if key != container_id}
        state = replace(state, waiting=MappingProxyType(remaining))
        state, told = _report(state, replace(record, launched=True), ContainerState.STARTING, now)
        effects += (*told, Start(spec=spec, devices=devices))
    return state, effects


def _kill(state: AgentState, message: KillContainer, now: datetime) -> Step:
    record = state.containers.get(message.container_id)
    if record is None:
        for report in state.ended:
            if report.container_id == message.container_id:
                return state, _sending(state, ContainerChanged(report=report))
        unknown = ContainerRecord(
            container_id=message.container_id,
            allocation_id="",
            task_id="",
            slots=(),
            state=ContainerState.TERMINATED,
            sequence=0,
            at=now,
        )
        gone = Exit(failure=FailureKind.RESTORE_ERROR, message="the container is unknown to this agent")
        return _report(state, unknown, ContainerState.TERMINATED, now, exit=gone)
    if record.state is ContainerState.TERMINATED:
        return state, _sending(state, ContainerChanged(report=record.report()))
    return _kill_record(state, record, message.grace_s, now)


def _kill_record(state: AgentState, record: ContainerRecord, grace_s: float, now: datetime) -> Step:
    if record.ended is not None:
        return state, ()
    if not record.launched:
        waiting = {key: value for key, value in state.waiting.items() if key != record.container_id}
        state = replace(state, waiting=MappingProxyType(waiting))
        aborted = Exit(failure=FailureKind.ABORTED, message="killed before it was started")
        return _report(state, record, ContainerState.TERMINATED, now, exit=aborted)
    return _with(state, replace(record, killing=True)), (Kill(container_id=record.container_id, grace_s=grace_s),)


def _acknowledged(state: AgentState, sequence: int) -> Step:
    state = replace(state, acknowledged=max(state.acknowledged, min(sequence, state.sequence)))
    effects: tuple[Effect, ...] = ()
    for record in _sorted(state):
        if record.state is ContainerState.TERMINATED and record.sequence <= state.acknowledged:
            state = _without(state, record.container_id)
            state = replace(state, ended=(*state.ended, record.report())[-REMEMBERED_ENDS:])
            effects += (_forget(record, ship=True),)
    return state, effects


def _end(state: AgentState, reason: str, now: datetime) -> Step:
    """Kill everything; `step` emits `End` once no container lives."""
    if state.ending is not None:
        return state, ()
    state = replace(state, ending=reason)
    effects: tuple[Effect, ...] = ()
    for record in _sorted(state):
        if record.state is ContainerState.TERMINATED:
            continue
        if record.ended is not None:
            state, more = _report(state, record, ContainerState.TERMINATED, now, exit=record.ended)
        else:
            state, more = _kill_record(state, record, 0.0, now)
        effects += more
    return state, effects


# -------------------------------------------------------------------------------------- what the machine says


def _progressed(state: AgentState, event: Progressed, now: datetime) -> Step:
    record = state.containers.get(event.container_id)
    if record is None or record.ended is not None or event.state.order <= record.state.order:
        return state, ()
    state, effects = _report(state, record, event.state, now)
    if event.state is ContainerState.RUNNING and state.notice is not None:
        effects += (NotifyTasks(container_ids=(event.container_id,), notice=_notice_file(state.notice)),)
    return state, effects


def _exited(state: AgentState, event: Exited, now: datetime) -> Step:
    record = state.containers.get(event.container_id)
    if record is None or record.ended is not None or record.state is ContainerState.TERMINATED:
        return state, ()
    if not record.wanted:
        return _without(state, record.container_id), (_forget(record, ship=False),)
    record = replace(record, ended=event.exit)
    if state.ending is not None:
        # The machine goes: a report without its last lines is worth more than none.
        return _report(state, record, ContainerState.TERMINATED, now, exit=event.exit)
    return _with(state, record), (_drain(record),)


def _noticed(state: AgentState, notice: Notice) -> Step:
    before = state.notice
    if before is not None and (before.kind, before.deadline, before.reason) == (
        notice.kind,
        notice.deadline,
        notice.reason,
    ):
        return state, ()
    state = replace(state, notice=notice)
    effects = _sending(state, notice)
    living = tuple(record.container_id for record in _sorted(state) if record.living)
    if living:
        effects += (NotifyTasks(container_ids=living, notice=_notice_file(notice)),)
    return state, effects


def _notice_file(notice: Notice) -> NoticeFile:
    return NoticeFile(kind=notice.kind, deadline=notice.deadline, reason=notice.reason)
