"""Machines that have just joined, and those that they were launched for."""

from __future__ import annotations

from typing import Any

import pytest

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, InstanceId
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.plan import HoldKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import ComingMachine, Supply, UnusedMachine
from support.pools import NOW, a_job, a_policy, an_agent, applied, elastic, on, starts, waiting

JOBS = [a_job("high", priority=10), a_job("first", second=0), a_job("later", second=1, max_slots=8)]
KINDS = pytest.mark.parametrize("kind", list(SchedulerKind))


def machine(name: str, slots: int) -> Agent:
    return an_agent(name, slots, instance=f"i-{name}")


def pool(
    agents: list[Agent], *work: Allocation, unused: dict[str, str], coming: dict[str, int], **policy: Any
) -> PoolSnapshot:
    """`unused`: whom the machine of each agent was launched for; `coming`: one machine of so many slots for each."""
    supply = Supply(
        machines=tuple(
            ComingMachine(instance=InstanceId(f"i-{name}"), slots=slots, gangs=(f"{name}.1",))
            for name, slots in coming.items()
        ),
        unused=tuple(
            UnusedMachine(instance=InstanceId(f"i-{agent}"), gangs=(f"{name}.1",)) for agent, name in unused.items()
        ),
    )
    scaling = elastic(8, max_instances=5)
    return PoolSnapshot.build(a_policy(scaling=scaling, **policy), agents, JOBS, work, supply, now=NOW)


@KINDS
def test_work_whose_own_machine_is_starting_takes_no_machine_launched_for_other_work(kind: SchedulerKind) -> None:
    work = [waiting("small", "first"), waiting("large", "later", 8)]
    snapshot = pool([machine("a", 8)], *work, unused={"a": "large"}, coming={"small": 1}, scheduler=kind)
    assert starts(schedule(snapshot)) == {"large": {"a": tuple(range(8))}}
    assert [gang.token for gang in schedule(snapshot).demand.gangs] == ["small.1"], "its own machine is still wanted"
    reason = explain(snapshot, JOBS[1].id).reason
    assert reason == (
        "It waits for 1 slot(s) of machines that are starting; a is left to large.1, for which it was launched."
    )


@KINDS
def test_work_without_a_machine_of_its_own_starts_where_it_fits(kind: SchedulerKind) -> None:
    work = [waiting("small", "first"), waiting("large", "later", 8)]
    snapshot = pool([machine("a", 8)], *work, unused={"a": "large"}, coming={}, scheduler=kind)
    assert starts(schedule(snapshot)) == {"small": {"a": (0,)}}


def test_more_important_work_takes_a_machine_that_was_launched_for_lesser_work() -> None:
    work = [waiting("small", "high"), waiting("large", "later", 8)]
    snapshot = pool([machine("a", 8)], *work, unused={"a": "large"}, coming={"small": 1})
    assert starts(schedule(snapshot)) == {"small": {"a": (0,)}}


def test_a_machine_is_left_only_to_work_that_can_start_on_it() -> None:
    small = waiting("small", "first")
    beyond_its_cap = waiting("large", "later", 16)
    blocked = waiting("large", "later", 8, blocked_agents=(AgentId("a"),))
    too_large = waiting("large", "first", 7, second=1, single_node=True)
    for size, other in ((8, beyond_its_cap), (8, blocked), (4, too_large)):
        snapshot = pool([machine("a", size)], small, other, unused={"a": "large"}, coming={"small": 1})
        assert starts(schedule(snapshot)) == {"small": {"a": (0,)}}


def test_what_one_leaves_to_others_nobody_takes_who_comes_in_between() -> None:
    work = [waiting("small", "first"), waiting("large", "later", 8), waiting("between", "first", second=1)]
    snapshot = pool([machine("a", 8)], *work, unused={"a": "large"}, coming={"small": 1})
    assert [key.allocation for line in snapshot.queue.values() for key in line] == ["small.1", "between.1", "large.1"]
    assert starts(schedule(snapshot)) == {"large": {"a": tuple(range(8))}}
    wider = pool([machine("a", 8), machine("b", 1)], *work, unused={"a": "large"}, coming={"small": 1})
    assert starts(schedule(wider)) == {"small": {"b": (0,)}, "between": {"a": (0,)}}


@pytest.mark.parametrize("preemption", [False, True])
def test_no_reservation_takes_a_machine_from_the_work_it_was_launched_for(preemption: bool) -> None:
    """A gang waits for two machines, of which one is in use, and small work for the other, which came for it. Once that has
    started, the gang has its reservation, and nothing comes in between."""
    running = on(waiting("running", "first", 4, preemptible=False), {"a": (0, 1, 2, 3)})
    work = [waiting("gang", "first", 8), waiting("small", "later", preemptible=False)]
    agents = [machine("a", 4), machine("b", 4)]
    snapshot = pool(agents, running, *work, unused={"b": "small"}, coming={}, preemption=preemption)
    plan = schedule(snapshot)
    assert starts(plan) == {"small": {"b": (0,)}} and not plan.holds
    after = applied(snapshot, plan).with_supply(Supply()).after(waiting("small-2", "later", preemptible=False))
    following = schedule(after)
    assert not following.place
    assert [(hold.allocation, hold.kind) for hold in following.holds] == [("gang.1", HoldKind.RUNNING)]
