"""Replacement machines of interrupted work: they are held for its next run as for its last one."""

from __future__ import annotations

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle.step import Step
from resolute_provisioner.planning.markets import MOVE_PREFIX, REPLACEMENT_PREFIX


def inherit(step: Step, last: AllocationId, following: AllocationId) -> None:
    """`following` takes the place of `last` in the queue. Machines that replace those of `last` are named after `last`, or after
    one of its machines: under that name the planner keeps them for this run, and launches no others meanwhile."""
    for name in sorted(_names(step, last)):
        for instance in step.find(Instance, "machines_for_gang", name):
            if following not in instance.gangs:
                step.put(replace(instance, gangs=(*instance.gangs, following)))


def _names(step: Step, last: AllocationId) -> set[str]:
    ended = step.get(Allocation, last)
    held = set() if ended is None else {container.agent for container in ended.containers}
    # Not by way of the agents: those of machines that died with the work are deleted by now.
    machines = (each for agent in held for each in step.find(Instance, "machine_of_agent", agent))
    return {MOVE_PREFIX + last, *(REPLACEMENT_PREFIX + machine.id for machine in machines)}
