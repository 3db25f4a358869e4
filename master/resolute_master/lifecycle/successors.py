"""Machines that were asked for because work would have to go on elsewhere: they are for its next run as they were for the last."""

from __future__ import annotations

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle.step import Step
from resolute_provisioner.planning.markets import MOVE_PREFIX, REPLACEMENT_PREFIX


def inherit(step: Step, last: AllocationId, following: AllocationId) -> None:
    """`following` waits in the place of `last`. What comes in its stead is named after the run that it was to take over, or
    after a machine of that: under its own name the planner keeps it for this run, and buys nothing else meanwhile."""
    for name in sorted(_names(step, last)):
        for instance in step.find(Instance, "machines_for_gang", name):
            if following not in instance.gangs:
                step.put(replace(instance, gangs=(*instance.gangs, following)))


def _names(step: Step, last: AllocationId) -> set[str]:
    ended = step.get(Allocation, last)
    held = () if ended is None else (step.get(Agent, container.agent) for container in ended.containers)
    machines = {agent.instance_id for agent in held if agent is not None and agent.instance_id is not None}
    return {MOVE_PREFIX + last, *(REPLACEMENT_PREFIX + machine for machine in machines)}
