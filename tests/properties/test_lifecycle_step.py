"""A working copy finds exactly what a cluster would that had stored its writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resolute.ids import SeededIds
from resolute_master.domain.agent import Agent
from resolute_master.domain.ids import InstanceId, PoolName
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
def test_look_ups_through_a_copy_of_a_copy_equal_those_in_a_cluster_built_from_the_writes(
    stored: list[Agent], script: list[tuple[bool, list[tuple[str, Agent]]]]
) -> None:
    step = Step(ClusterState(stored), now=T0, ids=SeededIds(1), sequence=1)
    expected = {agent.id: agent for agent in stored}
    for accepted, writes_ in script:
        attempt = step.attempt(SeededIds(2))
        carry_out(attempt, writes_)
        after = dict(expected)
        for what, agent in writes_:
            if what == "put":
                after[agent.id] = agent
            else:
                after.pop(agent.id, None)
        assert find_all(attempt) == find_all(ClusterState(after.values()))
        if accepted:
            step.keep(attempt)
            expected = after
        assert find_all(step) == find_all(ClusterState(expected.values()))
