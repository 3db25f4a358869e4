"""A working copy finds exactly what a cluster would that had stored its writes."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from resolute.ids import SeededIds
from resolute_master.domain.agent import Agent
from resolute_master.domain.effects import StartContainer
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, InstanceId, PoolName, TaskId
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from support.cluster import T0, an_agent

NAMES, POOLS, INSTANCES = ("a", "b", "c"), ("red", "blue"), (None, "i-1", "i-2")

agents = st.builds(
    lambda name, pool, instance: an_agent(
        name, pool=PoolName(pool), instance_id=None if instance is None else InstanceId(instance)
    ),
    st.sampled_from(NAMES),
    st.sampled_from(POOLS),
    st.sampled_from(INSTANCES),
)
writes = st.tuples(st.sampled_from(("put", "delete")), agents)
commands = st.tuples(st.booleans(), st.lists(writes, max_size=4))
"""Whether the command is accepted, and what it writes."""


class Refused(Exception):
    pass


def carry_out(step: Step, writes_: list[tuple[str, Agent]]) -> None:
    for what, agent in writes_:
        if what == "put":
            step.put(agent)
        else:
            step.delete(agent)


def find_all(source: Step | ClusterState) -> list[object]:
    by_pool = [source.find(Agent, "agents_of_pool", pool) for pool in POOLS]
    by_instance = [source.find(Agent, "agent_of_instance", instance) for instance in INSTANCES]
    return [by_pool, by_instance, source.all(Agent)]


@given(st.lists(agents, max_size=5), st.lists(commands, max_size=6))
def test_look_ups_through_attempts_equal_those_in_a_cluster_built_from_the_writes(
    stored: list[Agent], script: list[tuple[bool, list[tuple[str, Agent]]]]
) -> None:
    step = Step(ClusterState(stored), now=T0, ids=SeededIds(1), sequence=1)
    expected = {agent.id: agent for agent in stored}
    for accepted, writes_ in script:
        after = dict(expected)
        for what, agent in writes_:
            if what == "put":
                after[agent.id] = agent
            else:
                after.pop(agent.id, None)
        with suppress(Refused), step.attempt(SeededIds(2)):
            carry_out(step, writes_)
            assert find_all(step) == find_all(ClusterState(after.values()))
            if not accepted:
                raise Refused
            expected = after
        assert find_all(step) == find_all(ClusterState(expected.values()))


@given(st.lists(agents, max_size=5), st.lists(st.lists(writes, max_size=4), max_size=4))
def test_a_refused_command_leaves_no_trace(stored: list[Agent], script: list[list[tuple[str, Agent]]]) -> None:
    step, without = (Step(ClusterState(stored), now=T0, ids=SeededIds(1), sequence=1) for _ in range(2))
    for number, writes_ in enumerate(script):
        accepted, id_ = number % 2 == 0, ContainerId(f"c{number // 2}")
        if accepted:
            carry_out(without, writes_)
        with suppress(Refused), step.attempt(SeededIds(2)):
            carry_out(step, writes_)
            step.log(TaskId("t"), None, "tried")
            step.decide("place", pool="red", subject="t", reason="tried")
            step.emit([StartContainer(container=id_, allocation=AllocationId("t.1"), agent=AgentId("a"))])
            step.done("start:c0")
            if not accepted:
                raise Refused
        if accepted:
            without.log(TaskId("t"), None, "tried")
            without.decide("place", pool="red", subject="t", reason="tried")
            without.emit([StartContainer(container=id_, allocation=AllocationId("t.1"), agent=AgentId("a"))])
            without.done("start:c0")
        assert (step.written_keys(), step.upserts(), step.deletes()) == (
            without.written_keys(),
            without.upserts(),
            without.deletes(),
        )
        assert (step.outbox_added(), step.outbox_removed()) == (without.outbox_added(), without.outbox_removed())
        assert (step.logs, step.decisions) == (without.logs, without.decisions)
