"""The machines of a pool after its scheduler's plan has been carried out. Pure; it reads only the machines that the plan affects,
so its cost depends on the size of the plan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from resolute_master.decision.view import PoolView
from resolute_master.domain.allocation import Allocation, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.carried_out import placed
from resolute_master.scheduler.plan import Placement, Plan
from resolute_provisioner.model import InstanceView, Resident


def after(view: PoolView, plan: Plan) -> PoolView:
    """The pool after placed allocations hold their slots and preempted ones are leaving. `changed` of the view contains both."""
    changed = _changed(view, plan)
    if not changed:
        return view
    starts: defaultdict[str, list[Placement]] = defaultdict(list)
    leaving: defaultdict[str, set[str]] = defaultdict(set)
    for placement in plan.place:
        for agent in placement.agents:
            starts[_machine_of(view, agent)].append(placement)
    for preemption in plan.preempt:
        for container in changed[preemption.allocation].containers:
            leaving[_machine_of(view, container.agent)].add(preemption.allocation)
    machines = tuple(
        _occupied(each, view, changed, starts.get(each.instance_id, ()), leaving.get(each.instance_id, ()))
        if each.instance_id in starts or each.instance_id in leaving
        else each
        for each in view.machines or ()
    )
    return replace(view, machines=machines, changed=changed)


def _changed(view: PoolView, plan: Plan) -> dict[AllocationId, Allocation]:
    allocations, now = view.snapshot.allocations, view.now
    found: dict[AllocationId, Allocation] = {}
    for preemption in plan.preempt:
        request = PreemptRequest(reason=preemption.reason, requested_at=now, deadline=now, for_another=True)
        found[preemption.allocation] = replace(allocations[preemption.allocation], preempt=request)
    for placement in plan.place:
        found[placement.allocation] = placed(allocations[placement.allocation], placement, now)
    return found


def _machine_of(view: PoolView, agent: AgentId) -> str:
    """The machine of an agent; empty for an agent that was started by hand."""
    known = view.snapshot.agents.get(agent)
    return "" if known is None or known.instance_id is None else known.instance_id


def _occupied(
    machine: InstanceView,
    view: PoolView,
    changed: Mapping[AllocationId, Allocation],
    starts: tuple[Placement, ...] | list[Placement],
    leaving: tuple[()] | set[str],
) -> InstanceView:
    slots, aux = machine.slots_in_use, machine.aux_in_use
    occupants = list(machine.occupants)
    residents = [each for each in machine.residents if each.token not in leaving]
    for placement in starts:
        here = sum(_machine_of(view, slot.agent) == machine.instance_id for slot in placement.slots)
        allocation = changed[placement.allocation]
        slots, aux = slots + here, aux + (here == 0)
        occupants.append(placement.allocation)
        if here:
            residents.append(
                Resident(
                    token=placement.allocation,
                    slots=here,
                    since=view.now,
                    movable=False,  # it has saved nothing yet
                    likelihood=allocation.worth.likelihood,
                )
            )
    return replace(
        machine,
        slots_in_use=slots,
        aux_in_use=aux,
        occupants=tuple(sorted(occupants)),
        residents=tuple(sorted(residents, key=lambda each: each.token)),
        idle_since=None if occupants else machine.idle_since,
    )
