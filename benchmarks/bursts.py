"""A mix of short jobs in bursts, and the lowest cost of that mix for a clairvoyant policy.

99 % of the jobs request one slot, the others 2, 4 or 8. Run times have a median of nine minutes and a long tail. Users submit more
by day than by night, mostly a few jobs at a time and sometimes dozens (a sweep).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from resolute_master.forecast.trace_job import TraceJob

JOBS, DAYS = 9_000, 3.0
MEDIAN_S, DEVIATION = 540.0, 1.0
"""Median of the run times, and standard deviation of their logarithm."""
LONGEST_S, SHORTEST_S = 86_400.0, 10.0
SLOTS = ((1, 990), (2, 5), (4, 3), (8, 2))
"""Slots, and their frequency per thousand jobs."""
SMALL_BURST, LARGE_BURST, LARGE_SHARE = 3.0, 40.0, 0.05
"""Mean sizes of small and large bursts, and the share of large ones."""
WITHIN_BURST_S = 8.0
"""Mean interval between the submissions of one burst."""
GROUPS = ("search", "vision", "speech", "tests")


def bursty_jobs(seed: int = 0, *, jobs: int = JOBS, days: float = DAYS) -> tuple[TraceJob, ...]:
    """The same seed gives the same jobs, in the order of submission."""
    random = Random(f"bursts {seed}")
    found = [
        TraceJob(
            job_id=f"b{number:06d}",
            submit_s=float(round(submit_s)),
            duration_s=float(round(min(LONGEST_S, max(SHORTEST_S, length_s)))),
            slots=random.choices([slots for slots, _ in SLOTS], [share for _, share in SLOTS])[0],
            group=group,
        )
        for number, (submit_s, length_s, group) in enumerate(sorted(_submissions(random, jobs, days)))
    ]
    return tuple(sorted(found, key=lambda job: (job.submit_s, job.job_id)))


def _submissions(random: Random, jobs: int, days: float) -> Iterator[tuple[float, float, str]]:
    """Start, length and owner. Half of the deviation of a run time is common to its burst."""
    left, share = jobs, math.sqrt(0.5)
    while left > 0:
        at_s = random.uniform(0.0, days * 86_400.0)
        if random.random() > 0.6 + 0.4 * math.sin((at_s / 3600.0 % 24.0 - 9.0) / 24.0 * 2.0 * math.pi):
            continue
        mean = LARGE_BURST if random.random() < LARGE_SHARE else SMALL_BURST
        size = min(left, 1 + int(random.expovariate(1.0 / (mean - 1.0))))
        left -= size
        common, group = random.gauss(0.0, 1.0), random.choice(GROUPS)
        for _ in range(size):
            at_s += random.expovariate(1.0 / WITHIN_BURST_S)
            own = random.gauss(0.0, 1.0)
            yield at_s, MEDIAN_S * math.exp(DEVIATION * share * (common + own)), group


@dataclass(frozen=True, slots=True, kw_only=True)
class Clairvoyant:
    """The result of a clairvoyant policy."""

    excess: float
    """Paid slot-seconds beyond those of the work / slot-seconds of the work."""
    wait_mean_s: float
    launches: int


def clairvoyant(jobs: Sequence[TraceJob], *, boot_s: float, wait_mean_s: float) -> Clairvoyant:
    """A policy that knows all submissions and run times, pays the same boots, and lets jobs wait for `wait_mean_s` on average.

    It buys single slots, so that no machine is half empty. It keeps a free slot only if the next job arrives within a boot
    time, and pays for the gap; else it ends the slot at once, and boots the next one before its job arrives, so that no job
    waits for a boot. A job waits for a slot that becomes free within `wait_limit`. `wait_limit` is the same for all jobs, and
    is chosen so that the mean wait is at most `wait_mean_s`."""
    low, high = 0.0, 20.0 * boot_s
    best = _with_wait_limit(jobs, boot_s, 0.0)
    for _ in range(25):
        middle = (low + high) / 2.0
        found = _with_wait_limit(jobs, boot_s, middle)
        if found.wait_mean_s > wait_mean_s:
            high = middle
            continue
        low = middle
        best = min(best, found, key=lambda each: each.excess)
    return best


KEPT_S = (15.0, 30.0, 60.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 2400.0)
WAIT_LIMITS = (0.0, 0.1, 0.25, 0.5, 1.0)
"""Fractions of a boot time."""


def knows_every_gap(jobs: Sequence[TraceJob], *, boot_s: float, wait_mean_s: float) -> Clairvoyant:
    """Like `clairvoyant`, except that a job that needs a new machine waits for its boot, as in our policy.

    The policy knows the length of each gap and the end of each run. It keeps a slot if its gap is not longer than a period, and
    lets a job wait for a slot that becomes free within a fraction of a boot time. The result is the cheapest combination of period
    and fraction with a mean wait of at most `wait_mean_s`.
    """
    found = [
        _with_wait_limit(jobs, boot_s, part * boot_s, kept_s=kept_s, ahead=False)
        for kept_s in KEPT_S
        for part in WAIT_LIMITS
    ]
    fitting = [each for each in found if each.wait_mean_s <= wait_mean_s]
    return min(fitting, key=lambda each: each.excess) if fitting else min(found, key=lambda each: each.wait_mean_s)


def _with_wait_limit(
    jobs: Sequence[TraceJob], boot_s: float, wait_limit_s: float, *, kept_s: float | None = None, ahead: bool = True
) -> Clairvoyant:
    free: list[float] = []
    """Times at which the unassigned slots become free, sorted."""
    extra_s = waited_s = work_s = 0.0
    launches = 0
    for job in jobs:
        at_s = job.submit_s
        work_s += job.duration_s * job.slots
        free = free[bisect_left(free, at_s - (boot_s if kept_s is None else kept_s)) :]
        # A gang takes all of its slots at once: it waits for the last one.
        taken = [slot for slot in free if slot <= at_s + wait_limit_s]
        ready = bisect_left(taken, at_s + 1e-9)
        chosen = [*reversed(taken[:ready]), *taken[ready:]][: job.slots]
        boots = not ahead and len(chosen) < job.slots
        start_s = max([at_s + boot_s * boots, *chosen])
        for slot in chosen:
            free.remove(slot)
        extra_s += sum(start_s - slot for slot in chosen) + boot_s * (job.slots - len(chosen))
        launches += job.slots - len(chosen)
        waited_s += start_s - at_s
        for _ in range(job.slots):
            insort(free, start_s + job.duration_s)
    return Clairvoyant(excess=extra_s / work_s, wait_mean_s=waited_s / len(jobs), launches=launches)
