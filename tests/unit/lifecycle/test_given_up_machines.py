"""A machine whose agent was given up may still run and cost: the planner has to see since when it is out of contact."""

from __future__ import annotations

from dataclasses import replace

from resolute.ids import SeededIds
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle import agents, instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Observed
from support.cluster import an_agent, an_instance, at


def a_step(at_s: float) -> Step:
    instance = replace(an_instance(), agent_id=AgentId("agent-1"), joined_at=at(10), idle_since=None)
    agent = an_agent(instance_id=InstanceId("instance-1"), disconnected_at=at(50))
    return Step(ClusterState([instance, agent]), now=at(at_s), ids=SeededIds(1), sequence=1)


def test_it_stays_out_of_contact_after_its_agent_was_given_up() -> None:
    step = a_step(85)
    agents.lose(step, AgentId("agent-1"), "agent agent-1 has been out of contact for 35 s")
    (view,) = instances.views(step, PoolName("default"))
    assert not view.agent_connected
    assert view.disconnected_since == at(50)
    assert view.idle_since == at(85)


def test_an_agent_that_comes_back_ends_that() -> None:
    step = a_step(85)
    agents.lose(step, AgentId("agent-1"), "agent agent-1 has been out of contact for 35 s")
    back = an_agent(instance_id=InstanceId("instance-1"), connected_at=at(85))
    step.put(back)
    instances.joined(step, step.need(Instance, "instance-1"), back)
    (view,) = instances.views(step, PoolName("default"))
    assert view.agent_connected and view.disconnected_since is None


def test_who_had_no_work_before_is_idle_since_then() -> None:
    step = a_step(85)
    step.put(replace(step.need(Instance, "instance-1"), idle_since=at(20)))
    agents.lose(step, AgentId("agent-1"), "agent agent-1 has been out of contact for 35 s")
    back = an_agent(instance_id=InstanceId("instance-1"), connected_at=at(85))
    step.put(back)
    instances.joined(step, step.need(Instance, "instance-1"), back)
    instances.refresh_idle(step, [step.need(Instance, "instance-1")])
    assert step.need(Instance, "instance-1").idle_since == at(20)


def test_nothing_changes_for_a_machine_that_is_gone() -> None:
    step = a_step(85)
    gone = replace(step.need(Instance, "instance-1"), observed=Observed.GONE)
    instances.agent_given_up(step, gone, at(50))
    assert step.need(Instance, "instance-1").unreachable_since is None
