"""What every plan keeps, whatever the pool looks like. The checks know the rules, not how the plan is found."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resolute_master.domain.ids import AllocationId, JobId, TaskId
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.job_states import JobState, count_jobs, job_standing, job_states
from resolute_master.scheduler.plan import HoldKind, Preemption
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import Supply
from support.effort import examples
from support.pool_promises import check_all, returned, standing
from support.pools import applied, gone
from support.random_pools import World, crowded_worlds, drained_worlds, worlds


@settings(
    max_examples=examples(400),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(worlds())
def test_every_plan_keeps_the_promises(world: World) -> None:
    snapshot = world.snapshot()
    plan = schedule(snapshot)
    check_all(snapshot, plan)


@settings(max_examples=examples(400))
@given(crowded_worlds())
def test_every_plan_of_a_crowded_pool_keeps_the_promises(world: World) -> None:
    snapshot = world.snapshot()
    plan = schedule(snapshot)
    check_all(snapshot, plan)


@settings(max_examples=examples(200))
@given(drained_worlds())
def test_every_plan_of_a_pool_with_drained_slots_keeps_the_promises(world: World) -> None:
    snapshot = world.snapshot()
    plan = schedule(snapshot)
    check_all(snapshot, plan)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds() | crowded_worlds(), st.integers(0, 1000))
def test_the_same_pool_in_any_order_gives_the_same_plan(world: World, seed: int) -> None:
    plan = schedule(world.snapshot())
    assert schedule(world.snapshot()) == plan
    assert schedule(world.snapshot(Random(seed))) == plan


class Exchanges:
    """Who has left for whom. Two do not preempt each other in turn, but where slots are shared, somebody whose group has lost
    more to a third since then may be the poorer one now."""

    def __init__(self) -> None:
        self._left_for: dict[TaskId, dict[TaskId, JobId]] = {}
        self._groups: dict[TaskId, str] = {}
        """The outermost, of those that have left."""

    def note(self, snapshot: PoolSnapshot, preemption: Preemption) -> None:
        victim, winner = (snapshot.allocations[id_] for id_ in (preemption.allocation, preemption.for_allocation))
        assert victim.task_id not in self._left_for.get(winner.task_id, ()), "two do not preempt each other in turn"
        if snapshot.shares is not None:
            group = self._groups[victim.task_id] = snapshot.member(victim).path[0]
            for task in (task for task in self._left_for if self._groups[task] == group):
                by_job = self._left_for[task].items()
                self._left_for[task] = {other: job for other, job in by_job if job == winner.job_id}
        self._left_for.setdefault(victim.task_id, {})[winner.task_id] = winner.job_id


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds() | crowded_worlds() | drained_worlds())
def test_preemption_settles_and_is_never_in_vain(world: World) -> None:
    """Victims leave and come back until nothing changes any more; whoever others left for starts at once."""
    snapshot = replace(world, supply=Supply()).snapshot()
    exchanges = Exchanges()
    for _ in range(40):
        plan = schedule(snapshot)
        for preemption in plan.preempt:
            exchanges.note(snapshot, preemption)
        snapshot = applied(snapshot, plan)
        gone_now = list(snapshot.leaving())
        for allocation in gone_now:
            snapshot = snapshot.after(gone(allocation)).after(returned(allocation))
        following = schedule(snapshot)
        got = [(p.allocation, set(p.agents)) for p in following.place]
        got += [(h.allocation, {agent for agent, _ in h.agents}) for h in following.holds]
        for hold in plan.holds if snapshot.shares is None else ():
            if hold.kind is HoldKind.PREEMPTING and hold.allocation not in {p.allocation for p in following.place}:
                mine = standing(snapshot, snapshot.allocations[hold.allocation])
                takers = [
                    id_
                    for id_, agents in got
                    if id_ != hold.allocation and agents & {agent for agent, _ in hold.agents}
                ]
                assert any(standing(snapshot, snapshot.allocations[taker]) <= mine for taker in takers), (
                    "what others left for goes to whom they left for, or to a more important one"
                )
        if not plan.place and not plan.preempt and not gone_now:
            break
    else:
        raise AssertionError("the pool does not come to rest")


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_every_job_can_be_explained_and_its_state_agrees(world: World) -> None:
    snapshot = world.snapshot()
    states = job_states(snapshot)
    assert {id_: job_standing(snapshot, id_) for id_ in snapshot.jobs} == {
        id_: states.get(id_) for id_ in snapshot.jobs
    }
    assert sum(s.requested_slots for s in states.values()) == sum(a.slots_needed for a in snapshot.allocations.values())
    assert sorted(s.jobs_ahead for s in states.values()) == list(range(len(states)))
    still = sum(s.state in (JobState.IDLE, JobState.QUEUED) for s in states.values())
    assert count_jobs(snapshot) == (len(states), still)
    for job in world.jobs:
        found = explain(snapshot, job.id)
        assert found.reason.endswith(".")
        assert found.state is (states[job.id].state if job.id in states else JobState.IDLE)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_demand_is_what_waits_for_machines(world: World) -> None:
    """Everything that waits is started, kept room for on present agents, held back by a cap, or in the demand. Where machines are
    kept for a gang that waits for running agents as well, what has no machine is not in the demand: it would use up theirs."""
    snapshot = world.snapshot()
    plan = schedule(snapshot)
    listed = [gang.token for gang in plan.demand.gangs]
    assert len(set(listed)) == len(listed)
    if snapshot.policy.scaling is None:
        assert not listed
        return
    leaving_room = (HoldKind.VACATING, HoldKind.PREEMPTING)
    served = {p.allocation for p in plan.place} | {h.allocation for h in plan.holds if h.kind in leaving_room}
    assert not served & set(listed)
    kept_for_them = {agent for hold in plan.holds if hold.kind in leaving_room for agent, _ in hold.agents}
    assert set(plan.demand.kept) == {snapshot.agents[agent].instance_id for agent in kept_for_them} - {None}
    machines_kept = any(
        hold.kind is HoldKind.RUNNING
        and not hold.soft
        and sum(slots for _, slots in hold.agents) < snapshot.allocations[hold.allocation].slots_needed
        for hold in plan.holds
    )
    for allocation in snapshot.pending():
        job = snapshot.jobs[allocation.job_id]
        if allocation.id not in served and job.max_slots is None and not machines_kept:
            assert allocation.id in listed
    order = [
        (gang.priority, snapshot.queue_key(snapshot.allocations[AllocationId(gang.token)]))
        for gang in plan.demand.gangs
    ]
    assert snapshot.shares is not None or order == sorted(order)
    ranks = [gang.priority for gang in plan.demand.gangs]
    assert ranks == sorted(ranks), "whoever buys machines serves in the order in which the scheduler does"
    if snapshot.shares is not None:
        kept = [hold.allocation for hold in plan.holds if hold.kind is HoldKind.MACHINES]
        assert [token for token in listed if token in kept] == kept
