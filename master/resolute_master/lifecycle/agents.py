"""Agents: registration, reports, and loss.

A disconnected agent keeps its containers for the pool's reconnect wait, because they continue to run. After that, or when the
cloud reports that the machine has ended, all its work has failed with the machine and is placed elsewhere.
"""

from __future__ import annotations

from resolute.errors import Conflict, FailedPrecondition, NotFound, PermissionDenied
from resolute.wire.agent_link import ContainerReport, Device, Exit
from resolute.wire.states import ContainerState, FailureKind, NoticeKind
from resolute_master.domain.agent import Agent, AgentKey, MachineNotice, Slot
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.commands import RegisterAgent, ReportNotice
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, ContainerId, InstanceId
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import ForgetAgent
from resolute_master.lifecycle import allocation_fsm, allocations, instances
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Intent


def containers_on(step: Step, agent: AgentId) -> tuple[tuple[Allocation, Container], ...]:
    """Containers on the agent that have not ended, each with its allocation."""
    return tuple(
        (allocation, container)
        for allocation in step.find(Allocation, "allocations_on_agent", agent)
        for container in allocation.containers
        if container.agent == agent and not container.ended
    )


def need(step: Step, id_: AgentId) -> Agent:
    agent = step.get(Agent, id_)
    if agent is None:
        raise NotFound("agent", id_)
    return agent


# ---------------------------------------------------------------------------------------------------- registration


def register(step: Step, command: RegisterAgent) -> tuple[ContainerId, ...]:
    """Register the agent, apply its reports, and return the containers that it is expected to have.

    Raises `NotFound` for a machine that was not requested, or that has ended, and `PermissionDenied` for a name that is another
    machine's. Work on a missing device has failed; if the agent reconnects in another pool, all its work has failed.
    """
    before = step.get(Agent, command.agent)
    instance = _instance_of(step, command)
    if instance is None:
        _bind_name(step, command, before)
    if before is not None:
        _fail_on_lost_devices(step, before, command.devices)
    if before is not None and before.pool != command.pool:
        _fail_all(step, command.agent, FailureKind.AGENT_FAILED, f"the agent reconnected in pool {command.pool}")
    agent = Agent(
        id=command.agent,
        pool=command.pool,
        slots=_slots(before, command.devices),
        incarnation=command.incarnation,
        address=command.address,
        version=command.version,
        registered_at=before.registered_at if before else step.now,
        connected_at=step.now,
        enabled=before.enabled if before else True,
        draining=before.draining if before else False,
        instance_id=command.instance,
        notice=_notice_in_force(step, before, command),
    )
    step.put(agent)
    if instance is not None:
        instances.joined(step, instance, agent)
        if command.proven:
            spend_join_token(step, agent.id, agent.incarnation)
    for report in sorted(command.reports, key=lambda r: r.sequence):
        _believe(step, agent, report)
    _fail_missing(step, agent.id, {r.container_id for r in command.reports})
    if before is None:
        step.decide("join", pool=agent.pool, subject=agent.id, reason=f"agent joined with {len(agent.slots)} slot(s)")
    return tuple(container.id for _, container in containers_on(step, agent.id))


def _instance_of(step: Step, command: RegisterAgent) -> Instance | None:
    if command.instance is None:
        return None
    instance = step.get(Instance, command.instance)
    if instance is None or instance.over:
        raise NotFound("instance", command.instance)
    if str(command.agent) != instance.id:
        raise PermissionDenied(f"agent_id: the machine '{instance.id}' joins under its own name only")
    if command.pool != instance.pool:
        raise PermissionDenied(f"resource_pool: the machine '{instance.id}' was launched for pool '{instance.pool}'")
    return instance


def name_of_machine(agent: AgentId) -> PermissionDenied:
    """The error for an agent that claims the name of a machine of a cloud pool."""
    return PermissionDenied(
        f"agent_id: '{agent}' is the name of a machine that a cloud pool launched; give this agent another agent_id"
    )


def name_taken(agent: AgentId) -> PermissionDenied:
    """The error for a machine that claims the name of another one."""
    return PermissionDenied(
        f"agent_id: '{agent}' is the name of a machine that has joined with its own credential, which this machine lacks. "
        f"If this is that machine and its state_dir was lost, run `det agent forget {agent}` as an administrator and "
        "start the agent again; otherwise give this agent another agent_id"
    )


def _bind_name(step: Step, command: RegisterAgent, before: Agent | None) -> None:
    """The first machine with a name keeps it. The hub checks this as well; of two concurrent machines, this rule admits one."""
    if step.get(Instance, InstanceId(command.agent)) is not None or (before is not None and before.instance_id):
        raise name_of_machine(command.agent)
    key = step.get(AgentKey, command.agent)
    if key is None:
        if command.key:
            step.put(AgentKey(id=command.agent, digest=command.key, bound_at=step.now))
    elif key.digest != command.key:
        raise name_taken(command.agent)


def _notice_in_force(step: Step, before: Agent | None, command: RegisterAgent) -> MachineNotice | None:
    """The notice that still applies. The notice of a machine outside of a cloud no longer applies when the machine starts again;
    the planner ends a cloud's machine."""
    notice = before.notice if before is not None else None
    if notice is None or command.instance is not None or before is None or before.incarnation == command.incarnation:
        return notice
    return notice if notice.deadline is None or notice.deadline > step.now else None


def _by_index(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    return tuple(sorted(devices, key=lambda device: device.index))


def _fail_on_lost_devices(step: Step, before: Agent, devices: tuple[Device, ...]) -> None:
    lost = {slot.index for slot in before.slots if slot.device not in devices}
    for allocation, container in containers_on(step, before.id) if lost else ():
        if gone := sorted(lost.intersection(container.slots)):
            message = f"the agent reconnected without the devices of slots {gone}"
            _fail(step, allocation, container, FailureKind.AGENT_FAILED, message)


def _slots(before: Agent | None, devices: tuple[Device, ...]) -> tuple[Slot, ...]:
    """The slots for the reported devices. Flags set by operators stay with the device."""
    known = {slot.device: slot for slot in before.slots} if before else {}
    return tuple(known.get(device, Slot(device=device)) for device in _by_index(devices))


def _fail_missing(step: Step, agent: AgentId, reported: set[str]) -> None:
    """Records the failure of containers that the agent reported earlier and does not report now."""
    for allocation, container in containers_on(step, agent):
        if container.id not in reported and not step.outstanding(f"start:{container.id}"):
            _fail(step, allocation, container, FailureKind.RESTORE_ERROR, "")


# --------------------------------------------------------------------------------------------------------- reports


def report(step: Step, id_: AgentId, incarnation: str, report_: ContainerReport) -> None:
    _believe(step, _fence(step, id_, incarnation), report_)


def _fence(step: Step, id_: AgentId, incarnation: str) -> Agent:
    agent = need(step, id_)
    if agent.incarnation != incarnation:
        raise Conflict(f"agent '{id_}' has registered again since: this connection is outdated")
    return agent


def _believe(step: Step, agent: Agent, report_: ContainerReport) -> None:
    """Applies the report of a container. A report may arrive twice, or after later ones: container states only move forward, so
    old reports change nothing."""
    container = ContainerId(report_.container_id)
    for allocation in step.find(Allocation, "allocation_of_container", container):
        if not any(c.id == container and c.agent == agent.id for c in allocation.containers):
            continue
        step.done(f"start:{container}")
        allocations.move(
            step,
            allocation.id,
            allocation_fsm.ContainerMoved(
                container=container, state=report_.state, address=report_.address or agent.address, exit=report_.exit
            ),
        )


def notice(step: Step, command: ReportNotice) -> None:
    """Records a notice: nothing more is placed on the machine, its tasks are asked for checkpoints by the deadline, and a
    replacement is launched."""
    agent = _fence(step, command.agent, command.incarnation)
    if agent.notice is not None and not _is_news(agent.notice, command):
        return
    told = MachineNotice(kind=command.kind, deadline=command.deadline, reason=command.reason, received_at=step.now)
    step.put(replace(agent, notice=told))
    instance = step.get(Instance, agent.instance_id) if agent.instance_id else None
    if instance is not None:
        step.put(replace(instance, notice=told))
    until = f" at {command.deadline.isoformat(timespec='seconds')}" if command.deadline else ""
    reason = f"{command.kind} of {agent.id}{until}: {command.reason}"
    step.decide("notice", pool=agent.pool, subject=agent.id, reason=reason)
    if command.kind is NoticeKind.REBALANCE:
        return
    for allocation, _ in containers_on(step, agent.id):
        allocations.preempt(step, allocation.id, reason, deadline=command.deadline, notice=command.kind)


def spend_join_token(step: Step, id_: AgentId, incarnation: str) -> None:
    """Invalidates the join token of a machine that has a credential of its own now. Repeated calls are harmless."""
    agent = _fence(step, id_, incarnation)
    instance = step.get(Instance, agent.instance_id) if agent.instance_id else None
    if instance is not None and instance.join_token_spent_at is None:
        step.put(replace(instance, join_token_spent_at=step.now))


def _is_news(before: MachineNotice, command: ReportNotice) -> bool:
    """Whether the notice changes the present one. A risk does not replace a certain end; of two deadlines, the earlier one
    counts."""
    if command.kind is before.kind:
        return command.deadline != before.deadline
    if NoticeKind.REBALANCE in (command.kind, before.kind):
        return before.kind is NoticeKind.REBALANCE
    return command.deadline is not None and (before.deadline is None or command.deadline < before.deadline)


# ------------------------------------------------------------------------------------------------------------ loss


def disconnect(step: Step, id_: AgentId, incarnation: str) -> None:
    """Records the end of the agent's link. The agent may reconnect."""
    agent = step.get(Agent, id_)
    if agent is not None and agent.incarnation == incarnation and agent.connected:
        step.put(replace(agent, disconnected_at=step.now))


def disconnect_all(step: Step) -> None:
    """Records all agents as disconnected after a restart of the master. Each gets a full reconnect wait."""
    for agent in step.all(Agent):
        step.put(replace(agent, disconnected_at=step.now))


def lose(step: Step, id_: AgentId, reason: str, *, word: str = "lost") -> None:
    """Records the loss of an agent with everything on it. `word` is the name of the decision."""
    agent = step.get(Agent, id_)
    if agent is None:
        return
    step.decide(word, pool=agent.pool, subject=id_, reason=reason)
    _fail_all(step, id_, FailureKind.AGENT_FAILED, reason)
    step.delete(need(step, id_))
    instance = step.get(Instance, agent.instance_id) if agent.instance_id else None
    if instance is not None:
        instances.agent_given_up(step, instance, agent.disconnected_at or step.now)


def forget(step: Step, command: ForgetAgent) -> None:
    """Releases the name of an agent: another machine may join under it, or the same one again."""
    agent, key = step.get(Agent, command.agent), step.get(AgentKey, command.agent)
    if agent is None and key is None:
        raise NotFound("agent", command.agent)
    if agent is not None and agent.instance_id is not None:
        raise FailedPrecondition(
            f"agent '{command.agent}' is a machine of a cloud pool: its credential ends with the machine; disable the agent"
        )
    if agent is not None and agent.connected and not command.force:
        raise FailedPrecondition(
            f"agent '{command.agent}' is connected; to revoke its credential and end what runs there, repeat with --force"
        )
    if key is not None:
        step.delete(key)
    reason = "an administrator freed the name"
    if agent is None:
        step.decide("lost", pool="", subject=command.agent, reason=reason)
    else:
        lose(step, agent.id, reason)


def _fail_all(step: Step, id_: AgentId, failure: FailureKind, message: str) -> None:
    for allocation, container in containers_on(step, id_):
        _fail(step, allocation, container, failure, message)


def _fail(step: Step, allocation: Allocation, container: Container, failure: FailureKind, message: str) -> None:
    allocations.move(
        step,
        allocation.id,
        allocation_fsm.ContainerMoved(
            container=container.id, state=ContainerState.TERMINATED, exit=Exit(failure=failure, message=message)
        ),
    )


# ------------------------------------------------------------------------------------------------------- operators


def set_enabled(step: Step, id_: AgentId, *, enabled: bool, draining: bool) -> None:
    agent = need(step, id_)
    instance = step.get(Instance, agent.instance_id) if agent.instance_id else None
    given_back = instance is not None and (instance.intent is Intent.STOP or instance.draining_since is not None)
    if given_back and enabled and not draining:
        raise FailedPrecondition(f"agent '{id_}' cannot be enabled: its machine is being given back")
    step.put(replace(agent, enabled=enabled or draining, draining=draining))
    if not enabled and not draining:
        for allocation, _ in containers_on(step, id_):
            allocations.kill(step, allocation.id, f"agent {id_} was disabled")


def set_slot_enabled(step: Step, id_: AgentId, index: int, *, enabled: bool, draining: bool) -> None:
    agent = need(step, id_)
    if all(slot.index != index for slot in agent.slots):
        raise NotFound(f"slot of agent '{id_}'", index)
    slots = tuple(
        replace(s, enabled=enabled or draining, draining=draining) if s.index == index else s for s in agent.slots
    )
    step.put(replace(agent, slots=slots))
    if not enabled and not draining:
        for allocation, container in containers_on(step, id_):
            if index in container.slots:
                allocations.kill(step, allocation.id, f"slot {index} of agent {id_} was disabled")
