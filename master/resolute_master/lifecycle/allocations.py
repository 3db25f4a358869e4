"""The consequences of a change of one allocation for its slots, its trial and its machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from resolute.errors import FailedPrecondition, NotFound
from resolute.wire.states import NoticeKind, TaskType
from resolute_master.domain.agent import Agent, SlotRef
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId
from resolute_master.lifecycle import allocation_fsm
from resolute_master.lifecycle.prices import price_of
from resolute_master.lifecycle.step import Step

PORT_BASES = {
    "DTRAIN_SSH_PORT": 12350,
    "INTER_TRAIN_PROCESS_COMM_PORT_1": 12360,
    "INTER_TRAIN_PROCESS_COMM_PORT_2": 12365,
    "C10D_PORT": 29400,
}
"""First of the ports that every allocation gets. They count up from here, past those of the agents' other allocations."""


def move(step: Step, id_: AllocationId, event: allocation_fsm.AllocationEvent) -> Allocation | None:
    """Apply the event and its consequences. None for an unknown allocation, which ended long ago."""
    before = step.get(Allocation, id_)
    if before is None:
        return None
    after, effects = allocation_fsm.step(before, event, step.now)
    if after is not before and after != before:  # after a restart every agent reports all its containers again
        step.put(after)
    step.emit(effects)
    _tell(step, before, after)
    for container in after.containers:
        if container.ended:
            step.done(f"start:{container.id}")
            step.done(f"kill:{container.id}")
    if after.ended and not before.ended:
        _ended(step, after)
    return after


def _tell(step: Step, before: Allocation, after: Allocation) -> None:
    """Logs the start of a run and failed containers in the words of the original, because users' scripts search logs for them."""
    if before.started_at is None and after.started_at is not None and after.trial_id is not None:
        experiment = after.task_id.partition(".")[0]
        text = f"Resources for Trial {after.trial_id} (Experiment {experiment}) have started: run {after.run_id}"
        step.log(after.task_id, after.id, text)
    was = {container.id: container for container in before.containers}
    for container in after.containers:
        known = was.get(container.id)
        if (
            container.ended
            and container.exit is not None
            and container.exit.code
            and known is not None
            and not known.ended
        ):
            text = f"container failed with non-zero exit code: {container.exit.code} (rank {container.rank} on {container.agent})"
            step.log(after.task_id, after.id, text, level="ERROR")


def _ended(step: Step, allocation: Allocation) -> None:
    assert allocation.exit is not None
    level = "ERROR" if allocation.exit.failure else "INFO"
    step.log(
        allocation.task_id, allocation.id, f"Allocation {allocation.id} ended: {allocation.exit.reason}", level=level
    )
    step.decide("end", pool=allocation.pool, subject=allocation.id, reason=allocation.exit.reason)
    step.ended_allocations.append(allocation.id)


def assign(step: Step, id_: AllocationId, slots: Sequence[SlotRef], agents: Sequence[AgentId], reason: str) -> None:
    """Assign exactly these slots; `agents` in rank order, one container each. A task without slots has an agent only."""
    allocation = step.need(Allocation, id_)
    containers = tuple(
        [
            Container(
                id=ContainerId(step.ids.uuid()),
                rank=rank,
                agent=agent,
                slots=tuple(sorted([s.index for s in slots if s.agent == agent])),
            )
            for rank, agent in enumerate(agents)
        ]
    )
    price = price_of(step, slots)
    ports = _free_ports(step, agents) if allocation.task_type is TaskType.TRIAL else {}
    move(
        step,
        id_,
        allocation_fsm.Assigned(
            containers=containers, ports=ports, price_per_hour=price.per_hour, price_moves=price.moves
        ),
    )
    places = ", ".join(f"{c.agent} (slots {', '.join(map(str, c.slots)) or 'none'})" for c in containers)
    step.log(allocation.task_id, id_, f"Allocation {id_} placed on {places}")
    step.decide("place", pool=allocation.pool, subject=id_, reason=f"on {places}: {reason}")


def _free_ports(step: Step, agents: Sequence[AgentId]) -> dict[str, int]:
    used: set[int] = set()
    for agent in _on_these_machines(step, agents):
        for id_ in step.keys("allocations_on_agent", agent):
            other = step.get(Allocation, id_)
            if other is not None and not other.ended:
                used.update(other.ports.values())
    chosen: dict[str, int] = {}
    for name, base in PORT_BASES.items():
        port = base
        while port in used:
            port += 1
        chosen[name] = port
        used.add(port)
    return chosen


def _on_these_machines(step: Step, agents: Sequence[AgentId]) -> Sequence[AgentId]:
    """The agents, and those on the same computer: agents with its loopback address."""
    found = [agent for id_ in agents if (agent := step.get(Agent, id_)) is not None]
    pools = sorted({agent.pool for agent in found if agent.address.startswith("127.")})
    beside = [a.id for pool in pools for a in step.find(Agent, "agents_of_pool", pool) if a.address.startswith("127.")]
    return [*agents, *(id_ for id_ in beside if id_ not in agents)]


def preempt(
    step: Step,
    id_: AllocationId,
    reason: str,
    *,
    deadline: datetime | None = None,
    notice: NoticeKind | None = None,
    for_another: bool = False,
) -> None:
    """Preempt the allocation: ask it to save and end."""
    before = step.need(Allocation, id_)
    asked = allocation_fsm.PreemptionAsked(reason=reason, deadline=deadline, notice=notice, for_another=for_another)
    after = move(step, id_, asked)
    if after is not None and before.preempt is None and after.preempt is not None:
        step.log(before.task_id, id_, f"Allocation {id_} is asked to save and end: {reason}")
        step.decide("preempt", pool=before.pool, subject=id_, reason=reason)


def reserve(step: Step, id_: AllocationId, agents: tuple[AgentId, ...]) -> None:
    step.put(replace(step.need(Allocation, id_), reserved_agents=agents))


def kill(step: Step, id_: AllocationId, reason: str) -> None:
    move(step, id_, allocation_fsm.KillAsked(reason=reason))


def from_task(step: Step, id_: AllocationId, event: allocation_fsm.AllocationEvent) -> None:
    """Apply a report of the task itself. Raises `NotFound`."""
    if move(step, id_, event) is None:
        raise NotFound("allocation", id_)


def join_rendezvous(step: Step, id_: AllocationId, container: ContainerId) -> None:
    allocation = step.get(Allocation, id_)
    if allocation is None or allocation.ended:
        raise NotFound("allocation", id_)
    if allocation_fsm.container_of(allocation, container) is None:
        raise FailedPrecondition(f"container '{container}' is no member of allocation '{id_}'")
    joined = move(step, id_, allocation_fsm.Joined(container=container))
    assert joined is not None
    if all(c.joined for c in joined.containers):
        move(step, id_, allocation_fsm.Ready())
