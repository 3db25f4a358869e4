"""When what waits will start: the pool as it is now, played forward many times on run times like those of the past. Pure.

Each course draws how long everything that runs or waits will (still) run, and how long machines take to join, and lets the
production scheduler and planner decide. The starts that it finds are one sample; the middle 90 % of all samples are the range.
Work that is not submitted yet is not foreseen: more important work that comes later makes a start later than was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from random import Random

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, InstanceId
from resolute_master.foresight.course import Course, Frictions, Work
from resolute_master.foresight.decide import Production
from resolute_master.foresight.market import Given, MarketMove, Refused
from resolute_master.foresight.pool import VirtualPool
from resolute_master.foresight.run_times import LEAST, RunTimes
from resolute_master.scheduler.snapshot import waits
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S

COURSES = 30
"""Enough that the middle 90 % leaves out the one or two extremes at either end."""
DECISIONS = 6_000
"""That all courses together may take: each is about a millisecond of processor time."""
HORIZON_S = 14 * 86_400.0
"""Nothing is foreseen beyond."""
JOIN_SPREAD = 0.15
"""Deviation of the logarithm of the time to join: machines of one kind differ by about so much."""
LOW, HIGH = 0.05, 0.95
ALIKE = 0.8
"""So much of a user's work shares its luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When one allocation will start. `expected_at` is the median, `earliest` to `latest` the range that holds it with 90 %;
    `latest` None: more than one course in twenty did not see it start. Without `expected_at` nothing can be said, and `basis`
    says why."""

    expected_at: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None
    basis: str


def estimates(
    pool: VirtualPool, run_times: RunTimes, *, seed: int, courses: int = COURSES, decisions: int = DECISIONS
) -> dict[AllocationId, Estimate]:
    """Of everything that waits in `pool`, which is not changed. The same arguments give the same estimates."""
    jobs = pool.snapshot.jobs
    targets = [a.id for a in pool.snapshot.allocations.values() if waits(a) and a.job_id in jobs]
    if not targets:
        return {}
    starts: dict[AllocationId, list[float]] = {id_: [] for id_ in targets}
    played, left = 0, decisions
    while played < courses and left > 0:
        course = _course(pool, run_times, Random(f"{seed}/{played}"))
        left -= _play(course, targets, left, starts)
        played += 1
    return {id_: _estimate(pool, run_times, id_, starts[id_], played) for id_ in targets}


def _play(course: Course, targets: list[AllocationId], decisions: int, starts: dict[AllocationId, list[float]]) -> int:
    """Until all have started, or the horizon or the bound is reached; the decisions that it took."""
    works = {id_: course.works[id_] for id_ in targets}
    open_ = set(targets)

    def over() -> bool:
        open_.difference_update([id_ for id_ in open_ if works[id_].first_start_s is not None])
        return not open_ or course.now_s > HORIZON_S or course.decisions >= decisions

    course.run(over, strict=False)
    for id_, work in works.items():
        at_s = work.first_start_s
        starts[id_].append(inf if at_s is None or at_s > HORIZON_S else at_s)
    return course.decisions


def _course(pool: VirtualPool, run_times: RunTimes, random: Random) -> Course:
    joins = {
        id_: DEFAULT_JOIN_TIME_S if belief.join_time_s is None else belief.join_time_s
        for id_, belief in pool.beliefs.items()
    }
    course = Course(
        pool=pool.copy(),
        decider=Production(),
        market=_Likely(joins, random),
        epoch=pool.now,
        frictions=Frictions(),
    )
    likeness = _Likeness(random)
    for allocation in pool.snapshot.allocations.values():
        # What a job that has moved to another pool still holds here is taken to stay.
        if allocation.job_id in pool.snapshot.jobs:
            course.adopt(_work(pool, run_times, allocation, likeness))
    for id_, view in pool.machines.items():
        if view.joined_at is None:
            usual_s = joins.get(view.offer_id, DEFAULT_JOIN_TIME_S) * _spread(random)
            asked_s = (view.requested_at - pool.now).total_seconds()
            course.expect(InstanceId(id_), max(1.0, asked_s + usual_s))
    return course


def _work(pool: VirtualPool, run_times: RunTimes, allocation: Allocation, likeness: _Likeness) -> Work:
    job = pool.snapshot.jobs[allocation.job_id]
    since = allocation.assigned_at
    elapsed_s = 0.0 if since is None else max(0.0, (pool.now - since).total_seconds())
    left_s = run_times.remaining_s(likeness.part(int(job.owner)), int(job.owner), allocation.slots_needed, elapsed_s)
    runs = not waits(allocation)
    return Work(
        job=job,
        first=allocation,
        submit_s=0.0,
        length_s=(elapsed_s if runs else 0.0) + (2.0 * HORIZON_S if left_s is None else left_s),
        slots=allocation.slots_needed,
        runs=allocation.run_id if runs else allocation.run_id - 1,
        started_s=-elapsed_s if runs else None,
    )


def _estimate(pool: VirtualPool, run_times: RunTimes, id_: AllocationId, starts: list[float], played: int) -> Estimate:
    allocation = pool.snapshot.allocations[id_]
    job = pool.snapshot.jobs.get(allocation.job_id)
    known = None if job is None else run_times.basis(int(job.owner), allocation.slots_needed)
    ordered = sorted(starts)
    middle_s = ordered[len(ordered) // 2]
    if middle_s == inf:
        too_few = f"only {len(run_times)} run(s) of the pool have ended, and {LEAST} are needed"
        why = (
            too_few
            if known is None
            else f"it did not start within {HORIZON_S / 86_400:.0f} days in most of {played} courses"
        )
        return Estimate(basis=why)
    past = (
        "machines that are there or coming"
        if known is None
        else f"run times of {known.runs} ended run(s) of {known.of}"
    )
    low_s, high_s = ordered[int(len(ordered) * LOW)], ordered[min(len(ordered) - 1, int(len(ordered) * HIGH))]
    return Estimate(
        expected_at=pool.now + timedelta(seconds=middle_s),
        earliest=pool.now + timedelta(seconds=low_s),
        latest=None if high_s == inf else pool.now + timedelta(seconds=high_s),
        basis=f"{played} courses of the present queue, with {past}",
    )


class _Likeness:
    """Work that one user submits together is alike: a sweep fails as a whole or runs for days as a whole. In each course most
    of a user's work has a run time of the same rank, so that when the first will end is no surer than the past has it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._common: dict[int, float] = {}

    def part(self, user: int) -> float:
        if user not in self._common:
            self._common[user] = self._random.random()
        return self._common[user] if self._random.random() < ALIKE else self._random.random()


def _spread(random: Random) -> float:
    return random.lognormvariate(0.0, JOIN_SPREAD)


class _Likely:
    """Every offer is given, and its machines join about when they usually do."""

    def __init__(self, joins: Mapping[str, float], random: Random) -> None:
        self._joins, self._random = joins, random

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        return Given(boot_s=self._joins.get(offer_id, DEFAULT_JOIN_TIME_S) * _spread(self._random))

    def ended(self, offer_id: str) -> None:
        """There are always more."""

    def next_move(self, after_s: float) -> float | None:
        return None

    def move(self, now_s: float, alive: Mapping[str, list[InstanceId]]) -> MarketMove:
        return MarketMove(at_s=now_s)

    def price(self, offer_id: str, now_s: float) -> float | None:
        return None
