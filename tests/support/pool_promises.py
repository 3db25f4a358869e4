"""Invariants of every plan, as checks of one plan. They use the rules, not the code that computes a plan."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import combinations, groupby

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.plan import Hold, HoldKind, Plan
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from support.pools import NOW, waiting
from support.random_pools import MAX_AUX

# ------------------------------------------------------------------------------------------- an independent view


class Pool:
    """Slots by agent after the plan, computed directly. Users of disabled slots are excluded."""

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
        self.slots_of: dict[AllocationId, list[tuple[AgentId, int]]] = {}
        """Slots of allocations that stay, including new ones."""
        self.aux = Counter[AgentId]()
        for allocation in snapshot.allocations.values():
            side = self.going if allocation.leaving or allocation.id in victims else self.staying
            there = [(ref.agent, ref.index) for ref in allocation.held_slots]
            there = [(agent, index) for agent, index in there if index in self.usable.get(agent, ())]
            for agent, index in there:
                side[agent].add(index)
            if side is self.staying and there:
                self.slots_of[allocation.id] = there
            self.aux.update(c.agent for c in allocation.containers if not c.slots and not c.ended)
        self.idle_before = {a for a in self.usable if not self.staying[a] and not self.going[a]}
        for placement in plan.place:
            for slot in placement.slots:
                self.staying[slot.agent].add(slot.index)
            self.slots_of[placement.allocation] = [(slot.agent, slot.index) for slot in placement.slots]
            self.aux.update(placement.agents if not placement.slots else ())

    def free(self, agent: AgentId) -> int:
        return len(self.usable[agent] - self.staying[agent] - self.going[agent])

    def held(self, agent: AgentId, *, soft: bool) -> int:
        return sum(
            slots
            for hold in self.plan.holds
            for held, slots in hold.agents
            if held == agent and (soft or not hold.soft)
        )

    def takeable(self, agent: AgentId, *, soft: bool) -> int:
        eventually = len(self.usable[agent] - self.staying[agent]) - self.held(agent, soft=soft)
        return max(0, min(self.free(agent), eventually))

    def fits_now(self, allocation: Allocation) -> bool:
        """Whether it fits on slots that are neither used nor held."""
        agents = [
            a for a in self.usable if a not in allocation.blocked_agents and not self.left_to_others(a, allocation)
        ]
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

    def left_to_others(self, agent: AgentId, allocation: Allocation) -> bool:
        """The machine was launched for other pending allocations of at least the same importance; and `allocation`, or an earlier
        one that was not placed there either, has its own starting machine."""
        snapshot = self.snapshot
        launched_for = self.launched_for(agent)
        if allocation.id in launched_for:
            return False
        placed = {placement.allocation for placement in self.plan.place}
        owners = {AllocationId(gang) for machine in snapshot.supply.machines for gang in machine.gangs}
        patient = [each for each in snapshot.pending() if each.id in owners - placed and each.id not in launched_for]
        others = [other for other in snapshot.pending() if other.id in launched_for]
        return bool(patient) and any(
            snapshot.shape(other).priority <= snapshot.shape(allocation).priority for other in others
        )

    def launched_for(self, agent: AgentId) -> tuple[str, ...]:
        machine, unused = self.snapshot.agents[agent].instance_id, self.snapshot.supply.unused
        return next((each.gangs for each in unused if each.instance == machine), ())


def can_divide(slots: int, sizes: list[int], *, mixed: bool) -> bool:
    """By exhaustive search: several agents, of one size unless `mixed`."""
    sizes = [size for size in sizes if size]
    return any(
        sum(chosen) == slots and (mixed or len(set(chosen)) == 1)
        for count in range(2, len(sizes) + 1)
        for chosen in combinations(sizes, count)
    )


def standing(snapshot: PoolSnapshot, allocation: Allocation) -> tuple[int, float]:
    return snapshot.standing(allocation)[:2]


# ------------------------------------------------------------------------------------------------------ invariants


def check_placements(snapshot: PoolSnapshot, plan: Plan) -> None:
    before, taken = Pool(snapshot, replace(plan, place=(), preempt=())), Counter[tuple[AgentId, int]]()
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


def check_protection(snapshot: PoolSnapshot, plan: Plan) -> None:
    """An allocation that has just started is not preempted, and one that has just been submitted preempts none."""
    policy = snapshot.policy
    for preemption in plan.preempt:
        victim, winner = snapshot.allocations[preemption.allocation], snapshot.allocations[preemption.for_allocation]
        assert (snapshot.now - victim.running_since).total_seconds() >= policy.min_runtime_s
        assert (snapshot.now - winner.requested_at).total_seconds() >= policy.preemption_grace_s


def check_shares(snapshot: PoolSnapshot, plan: Plan) -> None:
    """After the exchange no victim has less, for its weight and with its history, than the allocation that preempted it."""
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
    for preemption in plan.preempt:
        victim, winner = snapshot.allocations[preemption.allocation], snapshot.allocations[preemption.for_allocation]
        assert victim.preemptible and not victim.leaving and victim.held_slots
        if snapshot.shares is None:
            assert yields(snapshot, victim, winner), "nobody is preempted by a lesser one, nor by any equal one"
        assert victim.job_id != winner.job_id or victim.worth.likelihood == 0.0 < winner.worth.likelihood
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
    """No placement uses slots that are held for another allocation."""
    pool = Pool(snapshot, plan)
    promised = (HoldKind.VACATING, HoldKind.PREEMPTING, HoldKind.MACHINES)
    for hold in plan.holds:
        for agent, slots in hold.agents:
            if agent not in pool.usable:
                continue  # Its link is down: nothing starts there before it reconnects.
            if hold.kind in promised:
                assert len(pool.usable[agent] - pool.staying[agent]) >= pool.held(agent, soft=False) >= slots
            elif not hold.soft:
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
                assert hold.soft and mine.preemptible, "a reservation is not delayed"


def yields(snapshot: PoolSnapshot, allocation: Allocation, claimant: Allocation) -> bool:
    """With a priority scheduler, and after `min_runtime`."""
    if not allocation.preemptible:
        return False
    if allocation.job_id == claimant.job_id:
        return allocation.worth.likelihood == 0.0 < claimant.worth.likelihood
    if snapshot.priority_of(claimant.job_id) != snapshot.priority_of(allocation.job_id):
        return snapshot.priority_of(claimant.job_id) < snapshot.priority_of(allocation.job_id)
    mine, theirs = snapshot.jobs[claimant.job_id], snapshot.jobs[allocation.job_id]
    if theirs.queue_position <= mine.queue_position:
        return False
    overtook = allocation.assigned_at is not None and allocation.assigned_at >= claimant.requested_at
    guest = overtook and not {c.agent for c in allocation.containers}.isdisjoint(claimant.reserved_agents)
    moved = mine.queue_position != mine.submitted_at.timestamp()
    return guest or (moved and (theirs.submitted_at, theirs.id) < (mine.submitted_at, mine.id))


def check_softness(snapshot: PoolSnapshot, plan: Plan) -> None:
    """In a pool with preemption, preemptible work may run on reserved slots, unless only allocations within `min_runtime` block the
    reservation: each new one there would be protected again. An allocation that may not preempt yet is delayed longer."""
    pool, policy = Pool(snapshot, plan), snapshot.policy
    reserved: list[Hold] = []
    for hold in plan.holds:
        earlier = bool(reserved)
        reserved += [hold] if hold.kind is HoldKind.RUNNING else []
        if hold.kind is not HoldKind.RUNNING or not policy.preemption or policy.min_runtime_s == 0:
            assert hold.soft is (hold.kind is HoldKind.RUNNING and policy.preemption)
        elif all(agent in pool.usable for agent, _ in hold.agents):
            holder = snapshot.allocations[hold.allocation]
            used = Counter(
                agent
                for id_, slots in pool.slots_of.items()
                if not yields(snapshot, snapshot.allocations[id_], holder)
                for agent, _ in slots
            )
            spared = all(len(pool.usable[agent]) - used[agent] >= slots for agent, slots in hold.agents)
            grace, min_runtime = timedelta(seconds=policy.preemption_grace_s), timedelta(seconds=policy.min_runtime_s)
            graced = snapshot.now + min_runtime <= holder.requested_at + grace
            powerless = graced or (earlier and not holder.preemptible)
            assert hold.soft is (powerless or not spared), (
                "a reservation waits once for those who are spared, and not again and again"
            )


def check_hold_sizes(snapshot: PoolSnapshot, plan: Plan) -> None:
    """A hold contains the slots of its claim and no others. There is one reservation per priority, or one per pool."""
    for hold in plan.holds:
        allocation = snapshot.allocations[hold.allocation]
        sizes = {agent: len(snapshot.agents[agent].usable_slots) for agent, _ in hold.agents}
        kept = sum(slots for _, slots in hold.agents)
        assert len(sizes) == len(hold.agents) > 0, "an agent is held once"
        assert not set(sizes) & set(allocation.blocked_agents), "nothing is held where it may not go"
        assert kept <= allocation.slots_needed, "nothing is held beyond what is needed"
        supply = snapshot.supply
        more = (supply.room + len(supply.machines)) * max(sizes.values()) if hold.kind is HoldKind.RUNNING else 0
        enough = kept + more >= allocation.slots_needed
        assert enough or hold.kind is HoldKind.MACHINES, (
            "what is held is enough, with the machines that can be had beside it"
        )
        if len(sizes) > 1 or kept < allocation.slots_needed:
            assert not allocation.single_node
            assert all(slots == sizes[agent] for agent, slots in hold.agents), "a gang is promised whole agents"
            assert snapshot.policy.heterogeneous_fits or len(set(sizes.values())) == 1
    reserved = [snapshot.allocations[hold.allocation] for hold in plan.holds if hold.kind is HoldKind.RUNNING]
    lines = Counter(snapshot.priority_of(each.job_id) if snapshot.shares is None else 0 for each in reserved)
    assert not reserved or max(lines.values()) == 1, "one reservation is given, not two"


def within_cap(snapshot: PoolSnapshot, plan: Plan, allocation: Allocation) -> bool:
    """The job's `max_slots` covers the allocation together with the job's running, starting and held slots, and with those of its
    other allocations for which machines are requested."""
    job = snapshot.jobs.get(allocation.job_id)
    if job is None or job.max_slots is None:
        return True
    served = {p.allocation for p in plan.place} | {h.allocation for h in plan.holds}
    served |= {AllocationId(gang.token) for gang in plan.demand.gangs}
    others = [snapshot.allocations[id_] for id_ in served - {allocation.id}]
    promised = sum(each.slots_needed for each in others if each.job_id == job.id)
    return (snapshot.job_slots.get(job.id) or 0) + promised + allocation.slots_needed <= job.max_slots


def check_waits_for_somebody(snapshot: PoolSnapshot, plan: Plan) -> None:
    """An allocation that waits for victims waits for a victim on enabled slots of its agents."""
    pool = Pool(snapshot, plan)
    for hold in plan.holds:
        if hold.kind is not HoldKind.MACHINES and all(agent in pool.usable for agent, _ in hold.agents):
            assert any(pool.free(agent) < pool.held(agent, soft=True) for agent, _ in hold.agents), (
                "nothing is kept for one that could start on it"
            )


def check_work_conservation(snapshot: PoolSnapshot, plan: Plan) -> None:
    pool, placed = Pool(snapshot, plan), {p.allocation for p in plan.place}
    for allocation in snapshot.pending():
        if allocation.id not in placed and within_cap(snapshot, plan, allocation):
            assert not pool.fits_now(allocation), "it waits beside room that no rule keeps from it"


def check_nothing_twice(plan: Plan) -> None:
    """Each allocation is in a plan at most once."""
    waiting = Counter([*(p.allocation for p in plan.place), *(h.allocation for h in plan.holds)])
    for named in (waiting, Counter(p.allocation for p in plan.preempt), Counter(g.token for g in plan.demand.gangs)):
        assert not [each for each, times in named.items() if times > 1], "what a plan does, it does once"


def check_all(snapshot: PoolSnapshot, plan: Plan) -> None:
    check_nothing_twice(plan)
    check_placements(snapshot, plan)
    check_caps(snapshot, plan)
    check_preemptions(snapshot, plan)
    check_protection(snapshot, plan)
    check_shares(snapshot, plan)
    check_holds(snapshot, plan)
    check_softness(snapshot, plan)
    check_hold_sizes(snapshot, plan)
    check_waits_for_somebody(snapshot, plan)
    check_work_conservation(snapshot, plan)


def returned(allocation: Allocation) -> Allocation:
    """The next attempt of the same task, as requested after a preemption."""
    task, _, number = allocation.id.rpartition(".")
    fresh = waiting(task, allocation.job_id, allocation.slots_needed, single_node=allocation.single_node)
    return replace(
        fresh,
        id=AllocationId(f"{task}.{int(number) + 1}"),
        requested_at=NOW,
        preemptible=allocation.preemptible,
        blocked_agents=allocation.blocked_agents,
        evictions=allocation.evictions_by_now,
        worth=allocation.worth,
    )
