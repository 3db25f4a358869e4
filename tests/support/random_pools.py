"""Random pools with a history, for the properties of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import Fitting, PoolPolicy, SchedulerKind
from resolute_master.domain.usage import GRAIN, Usage
from resolute_master.domain.worth import ORDINARY, ranked
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply, UnusedMachine
from support.pools import NOW, POOL, a_job, a_policy, an_agent, applied, closed, elastic, leaving, on, waiting

SIZES = st.sampled_from([1, 2, 2, 4, 4, 4, 8])
MAX_AUX = 2


@dataclass(frozen=True)
class World:
    policy: PoolPolicy
    agents: tuple[Agent, ...]
    jobs: tuple[Job, ...]
    allocations: tuple[Allocation, ...]
    supply: Supply
    usage: tuple[Usage, ...] = ()

    def snapshot(self, random: Random | None = None) -> PoolSnapshot:
        agents, jobs, allocations, usage = list(self.agents), list(self.jobs), list(self.allocations), list(self.usage)
        if random is not None:
            for part in (agents, jobs, allocations, usage):
                random.shuffle(part)
        return PoolSnapshot.build(self.policy, agents, jobs, allocations, self.supply, usage=usage, now=NOW)


@st.composite
def policies(draw: st.DrawFn) -> PoolPolicy:
    scheduler = draw(st.sampled_from([SchedulerKind.PRIORITY, SchedulerKind.FAIR_SHARE]))
    hierarchical = scheduler is SchedulerKind.FAIR_SHARE and draw(st.booleans())
    return a_policy(
        scheduler=scheduler,
        hierarchical_shares=hierarchical,
        usage_half_life_s=draw(st.sampled_from([None, 3600.0])) if hierarchical else None,
        preemption=scheduler is SchedulerKind.PRIORITY and draw(st.booleans()),
        fitting=draw(st.sampled_from(Fitting)),
        heterogeneous_fits=draw(st.booleans()),
        # Running work has started, and pending work was submitted, at most an hour ago.
        min_runtime_s=draw(st.sampled_from([0.0, 0.0, 0.0, 600.0, 7200.0])),
        preemption_grace_s=draw(st.sampled_from([0.0, 0.0, 0.0, 600.0, 7200.0])),
        max_aux_containers_per_agent=MAX_AUX,
        scaling=draw(st.sampled_from([None, elastic(4, max_instances=100)])),
    )


@st.composite
def some_agents(draw: st.DrawFn) -> tuple[Agent, ...]:
    count = draw(st.integers(1, 6))
    return tuple(
        an_agent(
            f"a{number}",
            draw(SIZES),
            off=draw(st.sampled_from([(), (), (), (0,)])),
            draining=draw(st.sampled_from([False, False, False, True])),
            instance=f"i{number}",
        )
        for number in range(count)
    )


@st.composite
def some_slots_closed(draw: st.DrawFn, agents: tuple[Agent, ...]) -> tuple[Agent, ...]:
    """Disabled slots, used or not."""
    return tuple(
        closed(agent, *draw(st.sampled_from([(), (), (), (0,), (len(agent.slots) - 1,)])), draining=draw(st.booleans()))
        for agent in agents
    )


@st.composite
def some_jobs(draw: st.DrawFn) -> tuple[Job, ...]:
    return tuple(
        a_job(
            f"j{number}",
            priority=draw(st.integers(41, 43)) - 5 * (number > 3),
            second=draw(st.integers(0, 3)),
            max_slots=draw(st.sampled_from([None, None, None, 4])),
            weight=draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])),
            owner=UserId(draw(st.integers(1, 3))),
            workspace_id=draw(st.integers(1, 2)),
        )
        for number in range(6)
    )


@st.composite
def crowded_worlds(draw: st.DrawFn) -> World:
    """A pool shared by workspaces and users, in which one user with several jobs holds nearly all slots. Gangs of other users
    arrive that fit nowhere, and more work of the same user that differs in job and weight only.

    More than half of the plans preempt."""
    sizes, weights = st.sampled_from([3, 4, 4]), st.sampled_from([1.0, 1.0, 2.0, 0.5])
    agents = tuple(
        an_agent(f"a{number}", size) for number, size in enumerate(draw(st.lists(sizes, min_size=2, max_size=5)))
    )
    mine = [a_job(f"j{number}", weight=draw(weights)) for number in range(3)]
    others = [
        a_job(
            f"j{number}",
            weight=draw(weights),
            owner=UserId(draw(st.integers(1, 3))),
            workspace_id=draw(st.integers(1, 2)),
        )
        for number in range(3, 5)
    ]

    def tasks(prefix: str, jobs: list[Job], slots: list[int], most: int) -> list[Allocation]:
        drawn = draw(st.lists(st.tuples(st.sampled_from(jobs), st.sampled_from(slots)), min_size=1, max_size=most))
        return [waiting(f"{prefix}{number}", job.id, size, second=number) for number, (job, size) in enumerate(drawn)]

    running: list[Allocation] = []
    for agent in agents:
        # Some slots stay free, but rarely a whole agent.
        for slot in range(draw(st.integers(1, len(agent.slots)))):
            job = draw(st.sampled_from([*mine, mine[0], mine[0], *others[:1]]))
            running.append(on(waiting(f"{agent.id}-{slot}", job.id), {agent.id: (slot,)}))
    fresh = [*tasks("mine", mine, [1, 1, 1, 2], 6), *tasks("gang", others, [2, 3, 4, 4], 4)]
    policy = a_policy(
        scheduler=SchedulerKind.FAIR_SHARE,
        hierarchical_shares=True,
        usage_half_life_s=draw(st.sampled_from([None, None, 3600.0])),
    )
    if draw(st.sampled_from([False, False, True])):
        agents = draw(some_slots_closed(agents))
    return World(policy, agents, (*mine, *others), (*running, *fresh), Supply(), draw(some_usage()))


@st.composite
def drained_worlds(draw: st.DrawFn) -> World:
    """Agents with one disabled but used slot, and gangs that request all other slots of several agents."""
    size = draw(st.integers(1, 3))
    agents = tuple(closed(an_agent(f"a{number}", size + 1), size) for number in range(draw(st.integers(2, 4))))
    jobs = draw(some_jobs())
    running = [
        on(
            waiting(f"{agent.id}-{slot}", draw(st.sampled_from(jobs)).id, preemptible=draw(st.booleans())),
            {agent.id: (slot,)},
        )
        for agent in agents
        for slot in {size, *draw(st.sampled_from([(), (), (0,), range(size)]))}
    ]
    work = [leaving(each) if draw(st.sampled_from([False, False, True])) else each for each in running]
    gangs = draw(
        st.lists(st.tuples(st.sampled_from(jobs), st.sampled_from([1, 2 * size, 2 * size])), min_size=1, max_size=4)
    )
    fresh = [waiting(f"new{n}", job.id, slots, second=n) for n, (job, slots) in enumerate(gangs)]
    return World(draw(policies()), agents, jobs, (*work, *fresh), Supply())


@st.composite
def some_allocations(draw: st.DrawFn, prefix: str, jobs: int, slots: list[int], most: int) -> tuple[Allocation, ...]:
    return tuple(
        waiting(
            f"{prefix}{number}",
            f"j{draw(st.integers(0, jobs - 1))}",
            draw(st.sampled_from(slots)),
            second=draw(st.integers(0, 3)),
            single_node=draw(st.sampled_from([False, False, True])),
            preemptible=draw(st.sampled_from([True, True, True, False])),
            blocked_agents=draw(st.sampled_from([(), (), (), (AgentId("a0"),)])),
            worth=draw(
                st.sampled_from([ORDINARY, ORDINARY, ranked(0.0, 1, 0.5), ranked(0.25, 0), ranked(1.0, 2, 0.1)])
            ),
        )
        for number in range(draw(st.integers(most // 4, most)))
    )


@st.composite
def supplies(draw: st.DrawFn, policy: PoolPolicy, unused: list[InstanceId], waiting: list[AllocationId]) -> Supply:
    """`unused` contains machines without work; `waiting` contains work for which machines may have been launched."""
    if policy.scaling is None:
        return Supply()
    gangs = st.lists(st.sampled_from(waiting), max_size=3, unique=True) if waiting else st.just([])
    machines = tuple(
        ComingMachine(instance=InstanceId(f"m{n}"), slots=4, gangs=tuple(draw(gangs)))
        for n in range(draw(st.integers(0, 2)))
    )
    joined = tuple(
        UnusedMachine(instance=instance, gangs=tuple(found)) for instance in unused if (found := draw(gangs))
    )
    offer = AvailableOffer(offer_id="m", slots=4, room=draw(st.sampled_from([None, None, 0, 1, 2])))
    return Supply(machines=machines, unused=joined, offers=(offer,), room=draw(st.sampled_from([0, 0, 1, 3])))


@st.composite
def some_usage(draw: st.DrawFn) -> tuple[Usage, ...]:
    """Charges of the users of `some_jobs` for past usage, if the pool has a memory."""
    charges = draw(st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 3)), st.integers(1, 80), max_size=4))
    return tuple(
        replace(Usage.none_yet(POOL, workspace, UserId(owner), now=NOW), charged=grains * GRAIN)
        for (workspace, owner), grains in charges.items()
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A pool with a history: some work was placed, some of it is preempted or has ended, and new work was submitted."""
    policy, agents, jobs = draw(policies()), draw(some_agents()), draw(some_jobs())
    past = World(policy, agents, jobs, draw(some_allocations("old", 4, [1, 1, 2, 4, 0, 8], 16)), Supply()).snapshot()
    past = applied(past, schedule(past))
    allocations: list[Allocation] = []
    for allocation in past.allocations.values():
        fate = draw(st.sampled_from(["stays", "stays", "stays", "leaves", "gone"]))
        if fate == "leaves" and not waits(allocation):
            allocations.append(leaving(allocation))
        elif fate != "gone":
            allocations.append(allocation)
    allocations += draw(some_allocations("new", 6, [1, 2, 3, 4, 6, 8, 12, 0], 8))
    used = {container.agent for allocation in allocations for container in allocation.containers}
    unused = [agent.instance_id for agent in agents if agent.id not in used and agent.instance_id is not None]
    # Priorities may have changed since, so that running work is not always the most important.
    return World(
        policy,
        draw(some_slots_closed(agents)),
        draw(some_jobs()),
        tuple(allocations),
        draw(supplies(policy, unused, [allocation.id for allocation in allocations])),
        draw(some_usage()),
    )
