"""What every plan keeps, whatever the pool looks like. The checks know the rules, not how the plan is found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, groupby
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.job_states import JobState, job_standing, job_states
from resolute_master.scheduler.plan import HoldKind, Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.supply import Supply
from support.pools import NOW, applied, gone, waiting
from support.random_pools import MAX_AUX, World, worlds

# ------------------------------------------------------------------------------------------- an independent view


class Pool:
    """Slots by agent after the plan was carried out, computed the slow way."""

    def __init__(self, snapshot: PoolSnapshot, plan: Plan) -> None:
        self.snapshot, self.plan = snapshot, plan
        self.usable = {
            agent.id: {s.index for s in agent.slots if s.enabled and not s.draining}
            for agent in snapshot.agents.values()
            if agent.placeable
        }
        victims = {p.allocation for p in plan.preempt}
        self.staying: dict[AgentId, set[int]] = {agent: set() for agent in snapshot.agents}
        self.going: dict[AgentId, set[int]] = {agent: set() for agent in snapshot.agents}
        self.aux = Counter[AgentId]()
        for allocation in snapshot.allocations.values():
            side = self.going if allocation.leaving or allocation.id in victims else self.staying
            for ref in allocation.held_slots:
                side[ref.agent].add(ref.index)
            self.aux.update(c.agent for c in allocation.containers if not c.slots and not c.ended)
        self.idle_before = {a for a in self.usable if not self.staying[a] and not self.going[a]}
        for placement in plan.place:
            for slot in placement.slots:
                self.staying[slot.agent].add(slot.index)
            self.aux.update(placement.agents if not placement.slots else ())

    def free(self, agent: AgentId) -> int:
        return len(self.usable[agent] - self.staying[agent] - self.going[agent])

    def held(self, agent: AgentId, *, soft: bool) -> int:
        return sum(
            slots
            for hold in self.plan.holds
            for held, slots in hold.agents
            if held == agent and (soft or hold.kind is not HoldKind.RUNNING or not soft_reservations(self.snapshot))
        )

    def takeable(self, agent: AgentId, *, soft: bool) -> int:
        eventually = len(self.usable[agent] - self.staying[agent]) - self.held(agent, soft=soft)
        return max(0, min(self.free(agent), eventually))

    def fits_now(self, allocation: Allocation) -> bool:
        """Would it start on what nobody uses and nothing is held on?"""
        agents = [a for a in self.usable if a not in allocation.blocked_agents]
        if allocation.slots_needed == 0:
            return any(self.aux[a] < MAX_AUX for a in agents)
        soft = not allocation.preemptible
        if any(self.takeable(a, soft=soft) >= allocation.slots_needed for a in agents):
            return True
        if allocation.single_node:
            return False
        idle = [a for a in agents if not self.staying[a] and not self.going[a] and not self.held(a, soft=soft)]
        return can_divide(
            allocation.slots_needed, [len(self.usable[a]) for a in idle], mixed=self.snapshot.policy.heterogeneous_fits
        )


def soft_reservations(snapshot: PoolSnapshot) -> bool:
    """What can be preempted again may run on what is reserved."""
    return snapshot.policy.preemption


def can_divide(slots: int, sizes: list[int], *, mixed: bool) -> bool:
    """By trying everything: several agents, of one size unless `mixed`."""
    sizes = [size for size in sizes if size]
    return any(
        sum(chosen) == slots and (mixed or len(set(chosen)) == 1)
        for count in range(2, len(sizes) + 1)
        for chosen in combinations(sizes, count)
    )


def standing(snapshot: PoolSnapshot, allocation: Allocation) -> tuple[int, float]:
    return snapshot.standing(allocation)[:2]


# -------------------------------------------------------------------------------------------------------- promises


def check_placements(snapshot: PoolSnapshot, plan: Plan) -> None:
    before, taken = Pool(snapshot, replace(plan, place=(), preempt=())), Counter[tuple[AgentId, int]]()
    assert len({p.allocation for p in plan.place}) == len(plan.place)
    for placement in plan.place:
        allocation = snapshot.allocations[placement.allocation]
        assert waits(allocation)
        assert len(placement.slots) == allocation.slots_needed, "a gang starts whole"
        assert not set(placement.agents) & set(allocation.blocked_agents)
        taken.update((slot.agent, slot.index) for slot in placement.slots)
        for slot in placement.slots:
            assert slot.index in before.usable[slot.agent] - before.staying[slot.agent] - before.going[slot.agent]
        if len(placement.agents) > 1:
            assert not allocation.single_node
            sizes = [len(before.usable[agent]) for agent in placement.agents]
            assert sum(sizes) == allocation.slots_needed, "every agent of a gang is used whole"
            assert set(placement.agents) <= before.idle_before
            assert sizes == sorted(sizes, reverse=True), "the chief is on the largest"
            assert len(set(sizes)) == 1 or snapshot.policy.heterogeneous_fits
    assert not taken or max(taken.values()) == 1, "no slot is used twice"
    after = Pool(snapshot, plan)
    assert all(after.aux[agent] <= MAX_AUX for p in plan.place if not p.slots for agent in p.agents)


def check_caps(snapshot: PoolSnapshot, plan: Plan) -> None:
    held = Counter({job: snapshot.job_slots.get(job) or 0 for job in snapshot.jobs})
    started = Counter[str]()
    for placement in plan.place:
        started[snapshot.allocations[placement.allocation].job_id] += len(placement.slots)
    for job in snapshot.jobs.values():
        if job.max_slots is not None and started[job.id]:
            assert held[job.id] + started[job.id] <= job.max_slots


def preempts(snapshot: PoolSnapshot) -> bool:
    return snapshot.policy.preemption or snapshot.shares is not None


def check_shares(snapshot: PoolSnapshot, plan: Plan) -> None:
    """After the exchange nobody who had to leave has less, for its weight and with its past, than the one it left for."""
    if snapshot.shares is None:
        return
    held, given = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()

    def book(sums: Counter[tuple[str, ...]], allocation: Allocation, slots: int) -> None:
        path = snapshot.member(allocation).path
        sums.update({path[: depth + 1]: slots for depth in range(len(path))})

    def burden(group: tuple[str, ...]) -> float:
        assert snapshot.shares is not None
        return held[group] + (snapshot.shares.used.get(group) or 0.0)

    for allocation in snapshot.allocations.values():
        book(held, allocation, 0 if allocation.leaving else len(allocation.held_slots))
    served = {p.allocation for p in plan.place} | {h.allocation for h in plan.holds}
    for id_ in served | {gang.token for gang in plan.demand.gangs}:
        book(given, snapshot.allocations[AllocationId(id_)], snapshot.allocations[AllocationId(id_)].slots_needed)
    for winner_id, preemptions in groupby(plan.preempt, key=lambda p: p.for_allocation):
        winner = snapshot.allocations[winner_id]
        victims = [snapshot.allocations[p.allocation] for p in preemptions]
        for victim in victims:
            book(held, victim, -len(victim.held_slots))
        for victim in victims:
            rich, poor = snapshot.member(victim), snapshot.member(winner)
            depth = next(n for n in range(len(rich.path)) if rich.path[n] != poor.path[n]) + 1
            last = depth == len(rich.path)
            most = (burden(rich.path[:depth]) + given[rich.path[:depth]] + 1) / (rich.weight if last else 1.0)
            least = (burden(poor.path[:depth]) + winner.slots_needed) / (poor.weight if last else 1.0)
            assert most > least, "nobody is preempted by one that would then hold more"


def check_preemptions(snapshot: PoolSnapshot, plan: Plan) -> None:
    assert preempts(snapshot) or not plan.preempt
    assert len({p.allocation for p in plan.preempt}) == len(plan.preempt)
    for preemption in plan.preempt:
        victim, winner = snapshot.allocations[preemption.allocation], snapshot.allocations[preemption.for_allocation]
        assert victim.preemptible and not victim.leaving and victim.held_slots
        if snapshot.shares is None:
            assert standing(snapshot, winner) < standing(snapshot, victim), (
                "nobody is preempted by a lesser or equal one"
            )
        assert victim.job_id != winner.job_id
        spared = Pool(snapshot, replace(plan, preempt=tuple(p for p in plan.preempt if p != preemption)))
        short = [a for a in spared.usable if len(spared.usable[a] - spared.staying[a]) < spared.held(a, soft=False)]
        needs_whole = [
            agent
            for hold in plan.holds
            if hold.allocation == winner.id and len(hold.agents) > 1
            for agent, _ in hold.agents
            if spared.staying[agent]
        ]
        assert short or needs_whole, "no victim is unneeded"


def check_holds(snapshot: PoolSnapshot, plan: Plan) -> None:
    """Nothing that starts takes what is held for another."""
    pool = Pool(snapshot, plan)
    promised = (HoldKind.VACATING, HoldKind.PREEMPTING, HoldKind.MACHINES)
    for hold in plan.holds:
        for agent, slots in hold.agents:
            if hold.kind in promised:
                assert len(pool.usable[agent] - pool.staying[agent]) >= pool.held(agent, soft=False) >= slots
            elif not soft_reservations(snapshot):
                assert pool.takeable(agent, soft=True) == 0 or pool.held(agent, soft=True) <= len(
                    pool.usable[agent] - pool.staying[agent]
                )
    holders = {hold.allocation: hold for hold in plan.holds if hold.kind is HoldKind.RUNNING}
    for placement in plan.place:
        mine = snapshot.allocations[placement.allocation]
        for holder, hold in holders.items():
            lesser = (standing(snapshot, snapshot.allocations[holder])) < standing(snapshot, mine)
            on_held = bool(placement.slots) and set(placement.agents) & {agent for agent, _ in hold.agents}
            if lesser and on_held and snapshot.shares is None:
                assert snapshot.policy.preemption and mine.preemptible, "a reservation is not delayed"


def check_work_conservation(snapshot: PoolSnapshot, plan: Plan) -> None:
    pool, placed = Pool(snapshot, plan), {p.allocation for p in plan.place}
    started = Counter[str]()
    for hold_or_place in plan.place:
        started[snapshot.allocations[hold_or_place.allocation].job_id] += len(hold_or_place.slots)
    for allocation in snapshot.pending():
        job = snapshot.jobs.get(allocation.job_id)
        if allocation.id not in placed and (job is None or job.max_slots is None):
            assert not pool.fits_now(allocation), "it waits beside room that no rule keeps from it"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_every_plan_keeps_the_promises(world: World) -> None:
    snapshot = world.snapshot()
    plan = schedule(snapshot)
    check_placements(snapshot, plan)
    check_caps(snapshot, plan)
    check_preemptions(snapshot, plan)
    check_shares(snapshot, plan)
    check_holds(snapshot, plan)
    check_work_conservation(snapshot, plan)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.integers(0, 1000))
def test_the_same_pool_in_any_order_gives_the_same_plan(world: World, seed: int) -> None:
    plan = schedule(world.snapshot())
    assert schedule(world.snapshot()) == plan
    assert schedule(world.snapshot(Random(seed))) == plan


def returned(allocation: Allocation) -> Allocation:
    """The next attempt of the same task, as it is asked for after a preemption."""
    task, _, number = allocation.id.rpartition(".")
    fresh = waiting(task, allocation.job_id, allocation.slots_needed, single_node=allocation.single_node)
    return replace(
        fresh,
        id=AllocationId(f"{task}.{int(number) + 1}"),
        requested_at=NOW,
        preemptible=allocation.preemptible,
        blocked_agents=allocation.blocked_agents,
    )


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_preemption_settles_and_is_never_in_vain(world: World) -> None:
    """Victims leave and come back until nothing changes any more; whoever others left for starts at once."""
    snapshot = replace(world, supply=Supply()).snapshot()
    evicted_by: dict[str, set[str]] = {}
    for _ in range(40):
        plan = schedule(snapshot)
        for preemption in plan.preempt:
            victim, winner = (id_.rpartition(".")[0] for id_ in (preemption.allocation, preemption.for_allocation))
            evicted_by.setdefault(victim, set()).add(winner)
            assert victim not in evicted_by.get(winner, ()), "two do not preempt each other in turn"
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


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_every_job_can_be_explained_and_its_state_agrees(world: World) -> None:
    snapshot = world.snapshot()
    states = job_states(snapshot)
    assert {id_: job_standing(snapshot, id_) for id_ in snapshot.jobs} == {
        id_: states.get(id_) for id_ in snapshot.jobs
    }
    assert sum(s.requested_slots for s in states.values()) == sum(a.slots_needed for a in snapshot.allocations.values())
    assert sorted(s.jobs_ahead for s in states.values()) == list(range(len(states)))
    for job in world.jobs:
        found = explain(snapshot, job.id)
        assert found.reason.endswith(".")
        assert found.state is (states[job.id].state if job.id in states else JobState.IDLE)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds())
def test_demand_is_what_waits_for_machines(world: World) -> None:
    """Everything that waits is started, kept room for on present agents, held back by a cap, or in the demand."""
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
    for allocation in snapshot.pending():
        job = snapshot.jobs[allocation.job_id]
        if allocation.id not in served and job.max_slots is None:
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
