"""What the planner is told of a machine that a person has closed, as a whole or in parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resolute.ids import SeededIds
from resolute_master.domain.agent import Agent
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_master.lifecycle import agents, instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import InstanceView
from support.cluster import a_container, an_agent, an_allocation, an_instance, at


def view_of(agent: Agent, *changes: tuple[int, bool], used: tuple[int, ...] = ()) -> InstanceView:
    instance = replace(an_instance(slots=4), joined_at=at(10))
    work = [an_allocation(containers=(a_container(slots=used),))] if used else []
    step = Step(ClusterState([instance, agent, *work]), now=at(60), ids=SeededIds(1), sequence=1)
    for index, draining in changes:
        agents.set_slot_enabled(step, AgentId("agent-1"), index, enabled=False, draining=draining)
    (view,) = instances.views(step, PoolName("default"))
    return view


@pytest.mark.parametrize("changes", [{"enabled": False}, {"draining": True}])
def test_a_closed_machine_is_said_to_be(changes: dict[str, bool]) -> None:
    assert view_of(an_agent(instance_id=InstanceId("instance-1"), **changes)).disabled
    assert not view_of(an_agent(instance_id=InstanceId("instance-1"))).disabled


def test_closed_slots_are_not_counted() -> None:
    agent = an_agent(instance_id=InstanceId("instance-1"))
    assert view_of(agent).slots == 4
    assert view_of(agent, (0, False), (3, True)).slots == 2


def test_what_runs_on_a_closed_slot_keeps_the_machine_and_takes_no_room_of_it() -> None:
    agent = an_agent(instance_id=InstanceId("instance-1"))
    view = view_of(agent, (0, True), used=(0, 1))
    assert (view.slots, view.slots_in_use, view.closed_slots_in_use, view.free_slots) == (3, 2, 1, 2)
    drained = view_of(agent, (0, True), used=(0,))
    assert (drained.occupied, drained.free_slots) == (True, 3)
