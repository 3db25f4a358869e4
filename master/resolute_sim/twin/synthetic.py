"""Generates a trace of jobs from a seed, similar to a month of a shared research cluster.

Users submit jobs in bursts (a sweep), more by day than by night and fewer at the weekend. Run times are heavy-tailed: a mixture of
quick failures, runs of hours and runs of days. About one job in seven requests several slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from resolute_master.forecast.trace_job import TraceJob

DAYS = 30
JOBS = 9_500
"""Jobs of such a cluster in thirty days."""
GROUPS = ("vision", "speech", "language", "ranking")
SLOTS = ((1, 857), (2, 45), (4, 42), (8, 46), (16, 6), (12, 2), (24, 2))
"""Slots, and their frequency per thousand jobs."""
BURST = 5.0
"""Mean size of a burst."""
RUN_TIMES = ((0.25, math.log(300.0), 0.8), (0.45, math.log(4_000.0), 1.1), (0.30, math.log(60_000.0), 1.0))
"""Share, and mean and deviation of the logarithm of seconds: failures, short runs, long runs."""
LONGEST_S = 14 * 86_400.0


def synthetic_jobs(seed: int = 0, *, jobs: int = JOBS, days: float = DAYS) -> tuple[TraceJob, ...]:
    """The same seed gives the same jobs, in the order of submission."""
    random = Random(seed)
    moments = sorted(_moments(random, jobs, days))
    found = [
        TraceJob(
            job_id=f"s{number:06d}",
            submit_s=float(round(submit_s)),
            duration_s=float(round(_run_time(random))),
            slots=random.choices([slots for slots, _ in SLOTS], [share for _, share in SLOTS])[0],
            group=group,
        )
        for number, (submit_s, group) in enumerate(moments)
    ]
    return tuple(sorted(found, key=lambda job: (job.submit_s, job.job_id)))


def _moments(random: Random, jobs: int, days: float) -> Iterator[tuple[float, str]]:
    left = jobs
    while left > 0:
        at_s = random.uniform(0.0, days * 86_400.0)
        if random.random() > _activity(at_s):
            continue
        group = random.choices(GROUPS, (5, 3, 2, 1))[0]
        size = min(left, 1 + int(random.expovariate(1.0 / (BURST - 1.0))))
        left -= size
        for _ in range(size):
            at_s += random.expovariate(1.0 / 10.0)
            yield min(at_s, days * 86_400.0 - 1.0), group


def _activity(at_s: float) -> float:
    """Relative rate of submissions at a time; 1 is the maximum."""
    hour, day = at_s / 3600.0 % 24.0, int(at_s // 86_400) % 7
    daily = 0.65 + 0.35 * math.sin((hour - 9.0) / 24.0 * 2.0 * math.pi)
    return daily * (0.5 if day >= 5 else 1.0)


def _run_time(random: Random) -> float:
    _, mean, deviation = random.choices(RUN_TIMES, [share for share, _, _ in RUN_TIMES])[0]
    return min(LONGEST_S, max(5.0, random.lognormvariate(mean, deviation)))
