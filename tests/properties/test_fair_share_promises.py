"""Where a pool that is divided by fair share comes to rest."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil, floor

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.effort import examples
from support.pools import NOW, a_job, a_policy, an_agent, applied, at_rest, gone, waiting

SIZES = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4)
TASKS = st.lists(st.sampled_from([1, 1, 2, 3, 4, 8]), min_size=1, max_size=4)
"""Slots of the tasks of a job, in turn."""
WEIGHTS = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])


@st.composite
def some_jobs(draw: st.DrawFn) -> list[tuple[Job, int]]:
    """Jobs with how many tasks of one slot each has."""
    return [
        (
            a_job(
                f"j{n}",
                weight=draw(WEIGHTS),
                max_slots=draw(st.sampled_from([None, None, 1, 3])),
                second=draw(st.integers(0, 3)),
                owner=UserId(draw(st.integers(1, 3))),
                workspace_id=draw(st.integers(1, 2)),
            ),
            draw(st.integers(0, 20)),
        )
        for n in range(draw(st.integers(1, 6)))
    ]


def a_pool(sizes: list[int], jobs: list[tuple[Job, int]], *, hierarchical: bool = False) -> PoolSnapshot:
    return PoolSnapshot.build(
        a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=hierarchical),
        [an_agent(f"a{n}", size) for n, size in enumerate(sizes)],
        [job for job, _ in jobs],
        [],
        now=NOW,
    )


def work(jobs: list[tuple[Job, int]]) -> list[list[str]]:
    return [[f"{job.id}-{n}" for n in range(count)] for job, count in jobs]


def held(snapshot: PoolSnapshot, job: Job) -> int:
    return snapshot.job_slots.get(job.id) or 0


def demand(job: Job, count: int) -> int:
    return count if job.max_slots is None else min(count, job.max_slots)


@settings(max_examples=examples(120))
@given(SIZES, some_jobs(), st.permutations(range(6)))
def test_slots_settle_at_weighted_max_min_in_any_order_of_arrival(
    sizes: list[int], jobs: list[tuple[Job, int]], order: list[int]
) -> None:
    """Jobs come one after the other, each finding the pool at rest. In the end no slot could be moved from a job to one
    that would still be poorer, and none is idle while somebody wants it."""
    snapshot = a_pool(sizes, jobs)
    for number in order:
        if number < len(jobs):
            for task in work(jobs)[number]:
                snapshot = snapshot.after(waiting(task, jobs[number][0].id))
            snapshot = at_rest(snapshot)
    total = sum(held(snapshot, job) for job, _ in jobs)
    assert total == min(sum(sizes), sum(demand(job, count) for job, count in jobs)), "no slot is idle, and none twice"
    for poor, wanted in jobs:
        assert held(snapshot, poor) <= demand(poor, wanted)
        if held(snapshot, poor) < demand(poor, wanted):
            mine = Fraction(held(snapshot, poor) + 1) / Fraction(poor.weight)
            for rich, _ in jobs:
                if rich.id != poor.id:
                    assert Fraction(held(snapshot, rich)) / Fraction(rich.weight) <= mine


Group = tuple[str, ...]
"""A workspace, a user in it, a job of his; in a pool without hierarchical shares a job. The pool is ()."""


class Level:
    """What the groups within one group have and want, at rest. Whatever is not said of a job, it has."""

    def __init__(self, snapshot: PoolSnapshot, around: Group) -> None:
        self.held: Counter[Group] = Counter()
        self.largest: Counter[Group] = Counter()
        """Slots of the largest of a group's tasks that run."""
        self.weights: dict[Group, Fraction] = {}
        for allocation in snapshot.allocations.values():
            member = snapshot.member(allocation)
            path, depth = member.path, len(around) + 1
            if path[: depth - 1] == around:
                group, slots = path[:depth], len(allocation.held_slots)
                self.held[group] += slots
                self.largest[group] = max(self.largest[group], slots)
                self.weights[group] = Fraction(member.weight if depth == len(path) else 1)

    def part(self, group: Group, slots: int) -> Fraction:
        """Share of this number of slots, by weight."""
        return slots * self.weights[group] / sum(self.weights.values())

    def beyond_one_slot(self, group: Group) -> int:
        """What the largest task of each of the others has: taken away, it could be too much."""
        return sum(max(self.largest[other] - 1, 0) for other in self.weights if other != group)


def groups_of(snapshot: PoolSnapshot, allocation: Allocation) -> list[tuple[Group, Group]]:
    """Each group that it belongs to, after the group around that."""
    path = snapshot.member(allocation).path
    return [(path[:depth], path[: depth + 1]) for depth in range(len(path))]


def may_have_more(snapshot: PoolSnapshot) -> list[Allocation]:
    return [each for each in snapshot.pending() if not snapshot.over_cap(each)]


def full_of(snapshot: PoolSnapshot, jobs: list[tuple[Job, int]], sizes: list[int]) -> PoolSnapshot:
    """With as many tasks of each job as it says, of these sizes in turn. Each job finds the pool at rest when it comes."""
    for tasks, (job, _) in zip(work(jobs), jobs, strict=True):
        for number, task in enumerate(tasks):
            snapshot = snapshot.after(waiting(task, job.id, sizes[number % len(sizes)]))
        snapshot = at_rest(snapshot)
    return snapshot


@settings(max_examples=examples(160))
@given(SIZES, some_jobs(), st.booleans())
def test_each_group_holds_at_least_its_share(sizes: list[int], jobs: list[tuple[Job, int]], hierarchical: bool) -> None:
    """Tasks of one slot. On each level, nobody has less than the part that its weight would buy of what the group around it has,
    rounded down, unless it wants less."""
    snapshot = full_of(a_pool(sizes, jobs, hierarchical=hierarchical), jobs, [1])
    some = may_have_more(snapshot)
    assert not some or sum(snapshot.job_slots.values()) == sum(sizes)
    for allocation in some:
        for around, group in groups_of(snapshot, allocation):
            level = Level(snapshot, around)
            assert level.held[group] >= floor(level.part(group, sum(level.held.values())))


@st.composite
def pools_without_pieces(draw: st.DrawFn) -> PoolSnapshot:
    """At rest. Room is never in pieces: tasks have one slot, or there is one agent, or all tasks take whole agents of one size."""
    jobs, hierarchical = draw(some_jobs()), draw(st.booleans())
    match draw(st.sampled_from(["one slot", "one agent", "whole agents"])):
        case "one slot":
            agents, tasks = draw(SIZES), [1]
        case "one agent":
            agents, tasks = [draw(st.sampled_from([4, 8, 12]))], draw(TASKS)
        case _:
            agents, tasks = (
                [2] * draw(st.integers(2, 8)),
                draw(st.lists(st.sampled_from([2, 4, 6, 8]), min_size=1, max_size=4)),
            )
    return full_of(a_pool(agents, jobs, hierarchical=hierarchical), jobs, tasks)


@settings(max_examples=examples(200))
@given(pools_without_pieces())
def test_with_one_more_task_each_waiting_group_would_exceed_its_share_on_each_level(snapshot: PoolSnapshot) -> None:
    """Its part of what is kept for nobody else, less what the largest task of each of the others has beyond one slot."""
    holds = schedule(snapshot).holds
    total = sum(room.size for room in snapshot.rooms.values())
    idle = total - sum(snapshot.job_slots.values())
    for allocation in may_have_more(snapshot):
        kept = sum(slots for hold in holds if hold.allocation != allocation.id for _, slots in hold.agents)
        for around, group in groups_of(snapshot, allocation):
            level = Level(snapshot, around)
            shared = sum(level.held.values()) + idle - kept
            least = level.part(group, shared - level.beyond_one_slot(group))
            assert level.held[group] + allocation.slots_needed > least


@settings(max_examples=examples(200))
@given(SIZES, some_jobs(), TASKS, st.booleans())
def test_no_agent_has_richer_victims_enough_for_work_that_waits_below_its_share(
    sizes: list[int], jobs: list[tuple[Job, int]], tasks: list[int], hierarchical: bool
) -> None:
    """Room may be in pieces. On each agent, what is free and kept for nobody else, and what the others could leave there, is less
    than the task needs; and the first that waits has a reservation."""
    snapshot = full_of(a_pool(sizes, jobs, hierarchical=hierarchical), jobs, tasks)
    plan = schedule(snapshot)
    some = may_have_more(snapshot)
    assert plan.holds or not any(each.slots_needed <= max(sizes) for each in some), (
        "the first that waits has a reservation"
    )
    for allocation in some:
        for agent, room in snapshot.rooms.items():
            if room.size >= allocation.slots_needed:
                kept = sum(dict(hold.agents).get(agent, 0) for hold in plan.holds if hold.allocation != allocation.id)
                assert len(room.free) - kept + given_back(snapshot, allocation, agent) < allocation.slots_needed


def given_back(snapshot: PoolSnapshot, claimant: Allocation, agent: AgentId) -> int:
    """Slots of the agent that the others (jobs, or workspaces) are rich enough to leave, whatever they leave first: of each what it
    has there, up to what it has beyond its equal with the claimant's when that has its task, less what its largest task has
    beyond one slot."""
    around, mine = groups_of(snapshot, claimant)[0]
    level, there = Level(snapshot, around), Counter[Group]()
    for allocation in snapshot.allocations.values():
        path = snapshot.member(allocation).path
        there[path[: len(mine)]] += sum(slot.agent == agent for slot in allocation.held_slots)
    then = (level.held[mine] + claimant.slots_needed) / level.weights[mine]
    found = 0
    for other in level.weights.keys() - {mine}:
        beyond = level.held[other] - then * level.weights[other] - max(level.largest[other] - 1, 0)
        found += max(0, min(there[other], ceil(beyond)))
    return found


@settings(max_examples=examples(80))
@given(SIZES, some_jobs(), st.integers(2, 4))
def test_users_are_even_however_they_split_their_work(
    sizes: list[int], jobs: list[tuple[Job, int]], parts: int
) -> None:
    """With hierarchical shares, one that splits its work over several jobs holds as much as with one job."""

    def totals(divided: bool) -> int:
        mine = [a_job("mine" if not divided else f"mine{n}", owner=UserId(9)) for n in range(parts if divided else 1)]
        everybody = [*jobs, *((job, 24 // len(mine)) for job in mine)]
        snapshot = a_pool(sizes, everybody, hierarchical=True)
        for tasks, (job, _) in zip(work(everybody), everybody, strict=True):
            for task in tasks:
                snapshot = snapshot.after(waiting(task, job.id))
        snapshot = at_rest(snapshot)
        return sum(held(snapshot, job) for job in mine)

    assert abs(totals(divided=True) - totals(divided=False)) <= 1


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=24), st.sampled_from([1, 3, 5, 8, 16]))
def test_a_gang_starts_however_many_small_ones_keep_coming(sizes: list[int], gang: int) -> None:
    """What runs ends, the oldest first, and there is always more to take its place."""
    snapshot = a_pool([8, 8], [(a_job("small"), 0), (a_job("gang"), 0)])
    for number, size in enumerate(sizes):
        snapshot = snapshot.after(waiting(f"0-{number:02}", "small", size))
    snapshot = applied(snapshot, schedule(snapshot))
    snapshot = snapshot.after(waiting("gang", "gang", gang, second=1))
    for number in range(1, 33):
        for more in range(3):
            snapshot = snapshot.after(waiting(f"{number}-{more:02}", "small", 1 + more, second=1 + number))
        snapshot = applied(snapshot, schedule(snapshot))
        if snapshot.job_slots.get(a_job("gang").id):
            return
        for allocation in list(snapshot.leaving()):
            snapshot = snapshot.after(gone(allocation))
        oldest = min(snapshot.running(), key=lambda a: (a.requested_at, a.id), default=None)
        if oldest is not None:
            snapshot = snapshot.after(gone(oldest))
    raise AssertionError("the gang starves")


GROUPS = st.tuples(st.integers(1, 12), st.integers(1, 12))
"""A workspace and a user: names of one and of two digits, whose order as text is another one."""


@settings(max_examples=examples(60))
@given(st.booleans(), GROUPS, st.lists(GROUPS, min_size=1, max_size=3), st.sampled_from([1, 4, 8]))
def test_a_job_starts_however_many_new_ones_of_the_same_weight_keep_coming(
    hierarchical: bool, group: tuple[int, int], others: list[tuple[int, int]], slots: int
) -> None:
    """Whoever they belong to, and however short they are: each is over before the next one starts."""

    def job_of(name: str, owner: tuple[int, int], second: float) -> Job:
        return a_job(name, workspace_id=owner[0], owner=UserId(owner[1]), second=second)

    snapshot = a_pool([slots], [(job_of("old", group, 0), 0)], hierarchical=hierarchical)
    snapshot = snapshot.after(job_of("first", others[0], -1)).after(waiting("first", "first", slots, second=-1))
    snapshot = applied(snapshot, schedule(snapshot)).after(waiting("old", "old", slots))
    for number in range(1, 33):
        name = f"new{number}"
        snapshot = snapshot.after(job_of(name, others[number % len(others)], number))
        snapshot = snapshot.after(waiting(name, name, slots, second=number))
        for allocation in list(snapshot.running()):
            snapshot = snapshot.after(gone(allocation))
        snapshot = applied(snapshot, schedule(snapshot))
        if snapshot.job_slots.get(a_job("old").id):
            return
    raise AssertionError("the old job starves")
