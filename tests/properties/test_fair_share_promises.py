"""Where a pool that is divided by fair share comes to rest."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.ids import UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.pools import NOW, a_job, a_policy, an_agent, applied, at_rest, gone, waiting

SIZES = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=4)
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


@settings(max_examples=120, deadline=None)
@given(SIZES, some_jobs(), st.permutations(range(6)))
def test_slots_settle_at_weighted_max_min_whoever_came_first(
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


@settings(max_examples=80, deadline=None)
@given(SIZES, some_jobs())
def test_sharing_pays_for_everybody(sizes: list[int], jobs: list[tuple[Job, int]]) -> None:
    """Nobody has less than the part of the pool that its weight would buy, rounded down, unless it wants less."""
    snapshot = a_pool(sizes, jobs)
    for tasks, (job, _) in zip(work(jobs), jobs, strict=True):
        for task in tasks:
            snapshot = snapshot.after(waiting(task, job.id))
    snapshot = at_rest(snapshot)
    weights = sum(Fraction(job.weight) for job, count in jobs if count)
    for job, count in jobs:
        if count:
            own = int(sum(sizes) * Fraction(job.weight) / weights)
            assert held(snapshot, job) >= min(own, demand(job, count))


@settings(max_examples=80, deadline=None)
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


@settings(max_examples=60, deadline=None)
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
