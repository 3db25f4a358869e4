"""The mix of short work in bursts, and its cost for a policy that knows it beforehand."""

from __future__ import annotations

from statistics import median

import pytest
from benchmarks.bursts import bursty_jobs, clairvoyant, knows_every_gap

from resolute_master.forecast.trace_job import TraceJob


def two(gap_s: float) -> list[TraceJob]:
    """One after the other, each of 1,000 s."""
    starts = (0.0, 1000.0 + gap_s)
    return [TraceJob(job_id=str(at), submit_s=at, duration_s=1000.0, slots=1, group="g") for at in starts]


def test_the_mix_is_short_single_slot_work_and_the_same_for_each_seed() -> None:
    jobs = bursty_jobs(1, jobs=4000)
    assert jobs == bursty_jobs(1, jobs=4000) != bursty_jobs(2, jobs=4000)
    assert 0.985 < sum(job.slots == 1 for job in jobs) / len(jobs) < 0.995
    assert 420.0 < median(job.duration_s for job in jobs) < 660.0


@pytest.mark.parametrize(("gap_s", "extra_s", "launches"), [(100.0, 280.0, 1), (500.0, 360.0, 2)])
def test_a_gap_is_paid_where_it_is_shorter_than_a_boot(gap_s: float, extra_s: float, launches: int) -> None:
    found = clairvoyant(two(gap_s), boot_s=180.0, wait_mean_s=0.0)
    assert (found.excess, found.wait_mean_s, found.launches) == (extra_s / 2000.0, 0.0, launches)


def test_what_may_wait_saves_boots() -> None:
    """The second one waits for the end of the first."""
    found = clairvoyant(two(-60.0), boot_s=180.0, wait_mean_s=30.0)
    assert found.launches == 1 and found.excess == pytest.approx(0.09) and found.wait_mean_s == 30.0


def test_who_does_not_boot_ahead_waits_for_the_boot_and_pays_longer_gaps_to_wait_less() -> None:
    most = knows_every_gap(two(500.0), boot_s=180.0, wait_mean_s=180.0)
    less = knows_every_gap(two(500.0), boot_s=180.0, wait_mean_s=90.0)
    assert (most.excess, most.wait_mean_s) == (0.18, 180.0)
    assert (less.excess, less.wait_mean_s) == (0.25, 90.0)
