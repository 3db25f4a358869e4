"""The history of a pool as a trace of jobs: what counts, from when, and how long it ran."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from resolute.wire.states import FailureKind
from resolute_master.domain.allocation import Allocation, AllocationExit, PreemptRequest
from resolute_master.domain.ids import JobId
from resolute_master.forecast.history import HISTORY_DAYS, History, history
from support.cluster import T0, an_allocation, at
from support.pools import a_job

DAY_S = 86_400.0
LOST = AllocationExit(reason="its machine is gone", failure=FailureKind.AGENT_FAILED)
FAILED = AllocationExit(reason="it failed", failure=FailureKind.CONTAINER_FAILED, code=1)
JOBS = {JobId("job-1"): a_job("job-1", priority=7, max_slots=9)}


def ran(name: str, requested_s: float, given_s: float, ended_s: float | None, **changes: Any) -> Allocation:
    ended = None if ended_s is None else at(ended_s)
    return an_allocation(name, requested_at=at(requested_s), assigned_at=at(given_s), ended_at=ended, **changes)


def told(*attempts: Allocation, now_s: float = DAY_S, whole: bool = True) -> History:
    return history(attempts, JOBS, at(now_s), whole=whole)


def test_a_run_counts_from_its_slots_to_its_end_and_its_times_from_the_first_request() -> None:
    found = told(ran("1.b.1", 500, 700, 1000, slots_needed=4, single_node=True), ran("1.a.1", 100, 400, 1400))
    assert (found.begin, found.days) == (at(100), (DAY_S - 100) / DAY_S)
    first, second = found.jobs
    assert (first.job_id, first.submit_s, first.duration_s, first.slots) == ("1.a", 0.0, 1000.0, 1)
    assert (second.job_id, second.submit_s, second.duration_s, second.slots) == ("1.b", 400.0, 300.0, 4)
    assert (first.group, first.workspace, first.priority, first.max_slots) == ("1", "1", 7, 9)
    assert (first.single_node, second.single_node) == (False, True)


def test_what_holds_no_slots_and_what_nobody_knows_is_left_out() -> None:
    aux, stranger = ran("1.c.1", 0, 0, 9, slots_needed=0), ran("1.d.1", 0, 0, 9, job_id=JobId("gone"))
    assert told(aux, stranger, an_allocation("1.e.1")).jobs == ()
    assert told().days == HISTORY_DAYS


def test_what_runs_now_counts_with_the_time_that_it_has_run() -> None:
    (job,) = told(ran("1.a.1", 0, 60, None), now_s=3600).jobs
    assert job.duration_s == 3540.0


def test_attempts_that_follow_each_other_are_one_job_and_work_that_was_lost_counts_once() -> None:
    saved = at(900)
    lost = ran("1.a.1", 0, 100, 1100, ready_at=at(150), started_at=at(120), saved_at=saved, exit=LOST)
    again = ran("1.a.2", 1100, 1300, 2000)
    (job,) = told(lost, again).jobs
    # Kept until the last checkpoint: 750 s after it was ready, and so 850 s after it was given its slots.
    assert (job.submit_s, job.duration_s) == (0.0, (saved - at(150)).total_seconds() + 700.0)
    asked = PreemptRequest(reason="r", requested_at=at(1000), deadline=at(2000), for_another=True)
    (job,) = told(ran("1.a.1", 0, 100, 1100, preempt=asked), again).jobs
    assert job.duration_s == 700.0, "nothing of it was saved"


def test_a_program_that_fails_by_itself_would_do_so_with_other_machines_too() -> None:
    (job,) = told(ran("1.a.1", 0, 100, 1100, exit=FAILED), ran("1.a.2", 1101, 1101, 1200)).jobs
    assert job.duration_s == 1099.0


def test_a_task_that_was_paused_is_several_jobs() -> None:
    jobs = told(ran("1.a.1", 0, 0, 1000), ran("1.a.2", 5000, 5000, 5500)).jobs
    assert [(each.job_id, each.submit_s, each.duration_s) for each in jobs] == [
        ("1.a", 0.0, 1000.0),
        ("1.a#2", 5000.0, 500.0),
    ]


def test_only_the_last_days_count_and_what_ran_into_them_counts_from_their_beginning() -> None:
    now_s = 40 * DAY_S
    begin_s = now_s - HISTORY_DAYS * DAY_S
    found = told(
        ran("1.a.1", 0, 0, 5 * DAY_S), ran("1.b.1", 0, 0, begin_s + 100), ran("1.c.1", begin_s + 7, begin_s + 8, now_s),
        now_s=now_s,
    )  # fmt: skip
    assert found.days == HISTORY_DAYS and found.begin == T0 + timedelta(seconds=begin_s)
    assert [(each.job_id, each.submit_s, each.duration_s) for each in found.jobs] == [
        ("1.b", 0.0, 100.0),
        ("1.c", 7.0, now_s - begin_s - 8.0),
    ]


def test_where_older_ones_are_not_known_it_begins_with_the_first_end_that_is() -> None:
    found = told(ran("1.a.1", 0, 0, 1000), ran("1.b.1", 0, 500, 2000), ran("1.c.1", 1500, 1500, None), whole=False)
    assert found.begin == at(1000)
    assert [(each.job_id, each.submit_s, each.duration_s) for each in found.jobs] == [
        ("1.b", 0.0, 1000.0),
        ("1.c", 500.0, DAY_S - 1500.0),
    ]


def test_a_deadline_counts_from_the_beginning_unless_it_has_passed_at_the_submission() -> None:
    later, before = ran("1.a.1", 50, 60, 100, deadline=at(500)), ran("1.b.1", 80, 80, 100, deadline=at(80))
    assert [each.deadline_s for each in told(later, before).jobs] == [450.0, None]
