"""The pending work that fails because its pool has given up launching machines (`resolute_provisioner.launch_errors`). Pure."""

from __future__ import annotations

from resolute_master.decision.plan import GiveUp
from resolute_master.decision.view import PoolView
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId
from resolute_provisioner import launch_errors
from resolute_provisioner.model import Demand, Intent, PoolScaling


def fail_waiting(view: PoolView, scaling: PoolScaling, demand: Demand) -> tuple[Demand, tuple[GiveUp, ...]]:
    """After the pool has given up launching, pending allocations that need more slots than its machines have fail; the others
    remain pending."""
    error = launch_errors.launch_error(scaling, view.beliefs, view.now)
    if error is None:
        return demand, ()
    machines = view.machines or ()
    held = sum(each.slots for each in machines if each.intent is Intent.RUN and not each.observed.final)
    failing = [gang for gang in demand.gangs if gang.slots > held and view.allocation(gang.token) is not None]
    if not failing:
        return demand, ()
    give_ups = tuple(
        GiveUp(
            allocation=AllocationId(gang.token),
            reason=(
                f"{error.reason}; it needs {gang.slots} slots and the machines of pool {scaling.pool} have {held} "
                "(launch_error_timeout, launch_error_retries)"
            ),
        )
        for gang in failing
    )
    failed = {gang.token for gang in failing}
    return replace(demand, gangs=tuple(gang for gang in demand.gangs if gang.token not in failed)), give_ups
