"""What every explanation keeps. What it says is done to the pool here, by other means, and the scheduler is asked."""

from __future__ import annotations

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.scheduler.blockers import Blockers, parts_of
from resolute_master.scheduler.explain import Explanation, explain, reasons_of
from resolute_master.scheduler.plan import HoldKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.supply import AvailableOffer, Supply
from resolute_master.scheduler.what_if import Change, WhatIf
from support.effort import examples
from support.pool_promises import returned
from support.pools import a_job, an_agent, applied, elastic
from support.pools import gone as ended
from support.random_pools import World, policies, some_agents, some_allocations, worlds

OTHER = PoolName("other")
PASSES = 400
"""Enough to find everything in pools of this size."""

SLOW = settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def switched_on(agent: Agent) -> Agent:
    return replace(agent, enabled=True, draining=False, disconnected_at=None, notice=None)


def opened(agent: Agent) -> Agent:
    slots = tuple(replace(slot, enabled=True, draining=False) for slot in agent.slots)
    return replace(agent, enabled=True, draining=False, slots=slots)


def gone(world: World, target: AllocationId, blockers: Blockers) -> PoolSnapshot:
    """The world without the blockers, built from nothing."""
    away = {*blockers.running, *blockers.ahead}
    mine = next(a for a in world.allocations if a.id == target)
    changed = replace(
        world,
        agents=tuple(opened(a) if a.id in blockers.agents else a for a in world.agents),
        jobs=tuple(replace(j, max_slots=None) if blockers.cap and j.id == mine.job_id else j for j in world.jobs),
        allocations=tuple(
            replace(a, blocked_agents=()) if a.id == target and blockers.blocked else a
            for a in world.allocations
            if a.id not in away
        ),
    )
    return changed.snapshot()


def placed(snapshot: PoolSnapshot, target: AllocationId) -> bool:
    return target in {p.allocation for p in schedule(snapshot).place}


def served(snapshot: PoolSnapshot, target: AllocationId) -> bool:
    """It starts now, or when those have left who are leaving or are asked to leave."""
    plan = schedule(snapshot)
    waits_for_leavers = {h.allocation for h in plan.holds if h.kind in (HoldKind.VACATING, HoldKind.PREEMPTING)}
    return target in {p.allocation for p in plan.place} | waits_for_leavers


def without_leavers(snapshot: PoolSnapshot, leavers: tuple[AllocationId, ...]) -> PoolSnapshot:
    """They have saved and ended. Whom nobody killed waits again."""
    for leaver in leavers:
        allocation = snapshot.allocations[leaver]
        snapshot = snapshot.after(ended(allocation))
        if allocation.killed_at is None:
            snapshot = snapshot.after(returned(allocation))
    return snapshot


def changed(world: World, other: World, mine: Allocation, found: WhatIf) -> PoolSnapshot:
    """The world in which somebody has made the change."""
    job = next(j for j in world.jobs if j.id == mine.job_id)

    def with_job(**values: object) -> PoolSnapshot:
        return world.snapshot().with_job(replace(job, **values))  # type: ignore[arg-type]

    def with_request(**values: object) -> PoolSnapshot:
        return world.snapshot().with_allocation(replace(mine, **values))  # type: ignore[arg-type]

    match found.change:
        case Change.PRIORITY:
            return with_job(priority=int(found.value), queue_position=job.submitted_at.timestamp())
        case Change.AHEAD_OF:
            return ahead_of(world, job, JobId(found.value))
        case Change.WEIGHT:
            return with_job(weight=float(found.value))
        case Change.MAX_SLOTS:
            return with_job(max_slots=int(found.value))
        case Change.POOL:
            place = job.submitted_at.timestamp()
            there = other.snapshot().with_job(replace(job, pool=OTHER, queue_position=place))
            return there.with_allocation(replace(mine, pool=OTHER))
        case Change.SLOTS:
            return with_request(slots_needed=int(found.value))
        case Change.SINGLE_NODE:
            return with_request(single_node=False)
        case Change.BLOCKED_AGENTS:
            return with_request(blocked_agents=())
        case Change.AGENT:
            agent = world.snapshot().agents[AgentId(found.value)]
            return world.snapshot().with_agent(switched_on(agent))
        case Change.AGENT_SLOTS | Change.AGENTS:
            snapshot = world.snapshot()
            for id_ in found.value.split(", "):
                snapshot = snapshot.with_agent(opened(snapshot.agents[AgentId(id_)]))
            return snapshot
        case Change.MORE_AGENTS:
            return world.snapshot().with_agent(an_agent("~zz", int(found.value)))


def ahead_of(world: World, job: Job, competitor: JobId) -> PoolSnapshot:
    """The jobs of the priority renumbered, this one right before its competitor."""
    jobs = {j.id: j for j in world.jobs}
    mates = sorted((j for j in world.jobs if j.priority == job.priority), key=lambda j: (j.queue_position, j.id))
    order = [j.id for j in mates if j.id != job.id]
    order.insert(order.index(competitor), job.id)
    snapshot = world.snapshot()
    for place, id_ in enumerate(order):
        snapshot = snapshot.with_job(replace(jobs[id_], queue_position=float(place)))
    return snapshot


def explanations(world: World, others: dict[PoolName, PoolSnapshot]) -> list[tuple[Allocation, Explanation]]:
    snapshot = world.snapshot()
    found = []
    for job in world.jobs:
        told = explain(snapshot, job.id, others, passes=PASSES)
        if told.waiting is not None:
            found.append((snapshot.allocations[told.waiting], told))
    return found


@SLOW
@given(worlds())
def test_without_what_is_in_its_way_it_starts_and_with_any_of_it_it_does_not(world: World) -> None:
    for mine, told in explanations(world, {}):
        if told.start is not None and not told.start.after:
            assert placed(world.snapshot(), mine.id) and told.blockers is None
            continue
        assert not placed(world.snapshot(), mine.id)
        if told.blockers is None:
            event("nothing is in its way")
            alone = replace(world, allocations=(mine,), agents=tuple(opened(a) for a in world.agents))
            assert not placed(alone.snapshot(), mine.id) or not mine.slots_needed
            continue
        assert placed(gone(world, mine.id, told.blockers), mine.id)
        assert told.blockers.smallest and not told.gave_up
        parts = parts_of(told.blockers)
        assert parts
        event(f"{len(parts)} in its way")
        for part in parts:
            rest = [other for other in parts if other != part]
            fewer = Blockers(
                running=tuple(i for p in rest for i in p.running),
                ahead=tuple(i for p in rest for i in p.ahead),
                cap=any(p.cap for p in rest),
                agents=tuple(i for p in rest for i in p.agents),
                blocked=any(p.blocked for p in rest),
            )
            assert not placed(gone(world, mine.id, fewer), mine.id), "each is needed"


@st.composite
def other_pools(draw: st.DrawFn) -> World:
    """Another pool, in which something waits."""
    policy = replace(draw(policies()), name=OTHER, scaling=None)
    agents = tuple(replace(agent, pool=OTHER) for agent in draw(some_agents())[:3])
    work = draw(some_allocations("there", 2, [1, 2, 4], 4))
    jobs = tuple(a_job(f"there{number}", pool=OTHER) for number in range(2))
    allocations = tuple(replace(a, pool=OTHER, job_id=JobId(f"there{a.job_id[1:]}")) for a in work)
    return World(policy, agents, jobs, allocations, Supply())


@SLOW
@given(worlds(), other_pools())
def test_what_is_said_to_start_it_starts_it(world: World, other: World) -> None:
    for mine, told in explanations(world, {OTHER: other.snapshot()}):
        for found in told.what_if.found if told.what_if is not None else ():
            event(found.change)
            after = changed(world, other, mine, found)
            if found.start.after:
                assert served(after, mine.id) and told.start is None
                later = without_leavers(applied(after, schedule(after)), found.start.after)
                assert placed(later, mine.id), "nobody else takes the room"
            else:
                assert placed(after, mine.id)


@SLOW
@given(worlds(), st.sampled_from([0.0, 7200.0]), st.sampled_from([0.0, 7200.0]))
def test_slots_that_lie_idle_beside_it_are_kept_by_a_rule_with_a_name(
    world: World, grace: float, min_runtime: float
) -> None:
    policy = replace(world.policy, preemption_grace_s=grace, min_runtime_s=min_runtime)
    snapshot = replace(world, policy=policy).snapshot()
    eager = replace(world, policy=replace(policy, preemption_grace_s=0.0, min_runtime_s=0.0)).snapshot()
    plan = schedule(snapshot)
    for job in world.jobs:
        told = explain(snapshot, job.id, passes=2)
        if told.waiting is None or placed(snapshot, told.waiting) or served(snapshot, told.waiting):
            continue
        mine = snapshot.allocations[told.waiting]
        # Those before it, who may not make others leave yet, take instead what is free, what is kept, or the machine that comes.
        for_those_before = any(words in told.reason for words in ("starting", "may launch", " go to ", "kept for"))
        if served(eager, mine.id) and not for_those_before:
            assert "preemption_grace" in told.reason or "min_runtime" in told.reason
        free = {agent: len(room.free) for agent, room in snapshot.rooms.items() if agent not in mine.blocked_agents}
        if not mine.slots_needed or max(free.values(), default=0) < mine.slots_needed:
            continue
        rules = ("its own job", "kept for", "now", "starting", "may launch", "can never start")
        assert any(rule in told.reason for rule in rules), told.reason
        kept = [hold for hold in plan.holds if hold.allocation in told.reason]
        event("a rule")
        if "kept for others" in told.reason:
            assert kept, "the reason names whose it is"


@SLOW
@given(worlds(), st.sampled_from([0.0, 7200.0]))
def test_a_list_gives_the_reasons_that_single_explanations_give(world: World, grace: float) -> None:
    snapshot = replace(world, policy=replace(world.policy, preemption_grace_s=grace)).snapshot()
    alone = {job.id: explain(snapshot, job.id, passes=2) for job in world.jobs}
    waiting = {id_: told.reason for id_, told in alone.items() if told.waiting is not None}
    assume(waiting)
    assert reasons_of(snapshot, list(alone)) == waiting


@st.composite
def pools_without_machines(draw: st.DrawFn) -> World:
    """Elastic ones, of offers that can be had or cannot."""
    scaling = elastic(max_instances=draw(st.integers(1, 3)))
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    offers = tuple(replace(scaling.offers[0], offer_id=f"o{n}", slots=size) for n, size in enumerate(sizes))
    had = tuple(
        AvailableOffer(offer_id=o.offer_id, slots=o.slots, one_only=draw(st.sampled_from([False, False, True])))
        for o in offers
        if draw(st.sampled_from([True, True, False]))
    )
    policy = replace(draw(policies()), scaling=replace(scaling, offers=offers))
    work = draw(some_allocations("w", 6, [1, 2, 3, 4, 5, 6, 8, 12, 0], 6))
    supply = Supply(offers=had, room=draw(st.integers(0, scaling.max_instances)))
    return World(policy, (), tuple(a_job(f"j{n}", second=n) for n in range(6)), work, supply)


@SLOW
@given(pools_without_machines())
def test_what_is_said_of_machines_that_are_not_there_is_true(world: World) -> None:
    scaling = world.policy.scaling
    assert scaling is not None
    snapshot = world.snapshot()
    for job in world.jobs:
        told = explain(snapshot, job.id, passes=2)
        if told.waiting is None:
            continue
        mine = snapshot.allocations[told.waiting]
        sizes = {offer.slots for offer in scaling.offers}
        there = tuple(an_agent(f"a{size}-{n}", size) for size in sizes for n in range(scaling.max_instances))
        best = replace(world, agents=there, allocations=(replace(mine, blocked_agents=()),))
        never = "can never start" in told.reason
        event("never" if never else told.reason.partition("accepts work, ")[2] or "counts on machines")
        if mine.slots_needed:
            assert never == (not placed(best.snapshot(), mine.id)), told.reason
        alone = explain(replace(world, allocations=(mine,)).snapshot(), job.id, passes=2).reason
        if "accepts work, and" in told.reason:
            to_others = "go to earlier work" in told.reason
            assert to_others == ("machines that the pool may launch" in alone)
            assert to_others or alone == told.reason, "others have nothing to do with it"


@settings(SLOW, max_examples=15)
@given(worlds(), st.integers(2, 20))
def test_the_effort_is_bounded_and_the_answer_the_same_each_time(world: World, passes: int) -> None:
    snapshot = world.snapshot()
    waiting = [j.id for j in world.jobs if any(waits(a) and a.job_id == j.id for a in world.allocations)]
    assume(waiting)
    for job in waiting:
        told = explain(snapshot, job, passes=passes)
        assert told.passes <= passes
        assert told == explain(world.snapshot(), job, passes=passes)
        if told.what_if is not None and not told.what_if.complete:
            assert told.gave_up
