"""Every slot-second is booked once, and the five bookings sum to what was paid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.wire.states import AllocationState, FailureKind, NoticeKind
from resolute_master.domain.allocation import Allocation, AllocationExit, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark, StepReport
from resolute_master.lifecycle.cost import line_of_machine
from resolute_master.lifecycle.ledger import Booking, Books, Run, interruptions, kept_steps, marks_of_reports
from resolute_master.lifecycle.ledger import runs as runs_with
from support.cluster import a_running_allocation, an_instance, at


def booked_of(machine: Instance, books: Books, now: datetime) -> Booking:
    return line_of_machine(machine, books, now=now).booking


MACHINE = an_instance(paid_from=at(0), paid_until=at(100), joined_at=at(10))


def run_of(number: int, begin: float, end: float, **changes: object) -> Allocation:
    return replace(
        a_running_allocation(),
        id=AllocationId(f"1.aaaa.{number}"),
        run_id=number,
        state=AllocationState.TERMINATED,
        assigned_at=at(begin),
        requested_at=at(begin),
        ended_at=at(end),
        **changes,
    )


def mark(run: int, steps: int, when: float, saving: float = 0.0) -> StepMark:
    return StepMark(
        allocation_id=AllocationId(f"1.aaaa.{run}"), steps_completed=steps, at=at(when), checkpointing_s=saving
    )


def runs(allocations: list[Allocation], marks: Sequence[StepMark], saved: Mapping[TrialId, int]) -> tuple[Run, ...]:
    return runs_with(allocations, marks, kept_steps(allocations, saved))


def test_a_finished_run_is_useful_from_its_first_step() -> None:
    run = run_of(1, 10, 60, exit=AllocationExit(reason="finished", finished=True))
    booked = booked_of(MACHINE, Books(runs([run], [mark(1, 0, 20), mark(1, 40, 60)], {})), at(200))
    assert booked.starting_s == 20  # boot 10, start 10
    assert booked.useful_s == 40
    assert booked.idle_s == 40
    assert (booked.lost_s, booked.checkpointing_s) == (0, 0)


def test_steps_that_are_done_again_are_lost_from_the_last_kept_one_on() -> None:
    killed = run_of(1, 10, 60, exit=AllocationExit(reason="gone", failure=FailureKind.AGENT_FAILED))
    again = run_of(2, 200, 300, resumed_steps=20, exit=AllocationExit(reason="finished", finished=True))
    found = runs([killed, again], [mark(1, 0, 20), mark(1, 40, 60)], {})
    booked = booked_of(MACHINE, Books(found), at(400))
    assert booked.useful_s == 20
    assert booked.lost_s == 20
    (cut,) = interruptions(found)
    assert (cut.noticed, cut.steps_done, cut.steps_kept, cut.steps_lost) == (False, 40, 20, 20)


def test_the_last_report_of_a_lost_run_tells_of_steps_that_its_marks_do_not_know() -> None:
    killed = run_of(1, 10, 60, exit=AllocationExit(reason="gone", failure=FailureKind.AGENT_FAILED))
    again = run_of(2, 200, 300, resumed_steps=20, exit=AllocationExit(reason="finished", finished=True))
    marks = (mark(1, 0, 20), mark(1, 40, 50, saving=1.0))
    told = marks_of_reports(killed, marks, (report(1, 21), report(43, 51)), 20)
    assert told == (mark(1, 43, 51, saving=1.0),)
    (cut,) = interruptions(runs([killed, again], marks + told, {}))
    assert (cut.steps_done, cut.steps_lost) == (43, 23)
    assert marks_of_reports(killed, marks, (report(40, 50),), 20) == ()


def report(steps: int, when: float) -> StepReport:
    return StepReport(trial_id=TrialId(1), run_id=1, steps_completed=steps, at=at(when))


FINISHED = AllocationExit(reason="finished", finished=True)
CUT = AllocationExit(reason="gone", failure=FailureKind.AGENT_FAILED)


def booked_by_reports(run: Allocation, *reports: StepReport, kept: int | None = None) -> Booking:
    """Booking of a run on one slot whose harness makes no marks."""
    known = {} if kept is None else {run.id: kept}
    found = runs_with([run], marks_of_reports(run, (), reports, kept), known)
    return line_of_machine(replace(MACHINE, paid_until=at(200)), Books(found), now=at(200)).booking


def test_reports_stand_for_the_marks_of_a_harness_that_makes_none() -> None:
    finished = booked_by_reports(run_of(1, 10, 60, exit=FINISHED), report(10, 30), report(40, 60))
    assert (finished.starting_s, finished.useful_s, finished.lost_s) == (20, 40, 0)  # ten steps before the first report
    still_running = replace(run_of(1, 10, 60), ended_at=None)
    running = booked_by_reports(still_running, report(1, 30), report(21, 50))
    assert (running.starting_s, running.useful_s) == (29, 171)
    resumed = booked_by_reports(run_of(1, 10, 60, exit=FINISHED, resumed_steps=100), report(110, 30), report(140, 60))
    assert (resumed.starting_s, resumed.useful_s) == (20, 40)


def test_what_was_cut_off_keeps_the_steps_that_its_reports_tell_of_until_the_checkpoint() -> None:
    cut = run_of(1, 10, 60, exit=CUT)
    between = booked_by_reports(cut, report(1, 21), report(31, 51), kept=20)
    assert (between.starting_s, between.useful_s, between.lost_s) == (20, 20, 20)
    after_the_last = booked_by_reports(cut, report(1, 21), report(31, 51), kept=35)
    assert (after_the_last.starting_s, after_the_last.useful_s, after_the_last.lost_s) == (20, 35, 5)
    nothing = booked_by_reports(cut, report(1, 21), report(31, 51), kept=0)
    assert (nothing.starting_s, nothing.useful_s, nothing.lost_s) == (20, 0, 40)


def test_a_preempted_harness_without_marks_steps_until_it_saves() -> None:
    asked = PreemptRequest(reason="spot", requested_at=at(50), deadline=at(70), acknowledged_at=at(55))
    saved = run_of(1, 10, 60, preempt=asked, exit=AllocationExit(reason="preempted: spot", code=0))
    booked = booked_by_reports(saved, report(10, 30), report(30, 50), kept=35)
    assert (booked.starting_s, booked.useful_s, booked.checkpointing_s) == (20, 35, 5)


def test_one_report_tells_the_pace_since_the_program_began() -> None:
    cut = run_of(1, 10, 60, exit=CUT, started_at=at(15), ready_at=at(20))
    once = booked_by_reports(cut, report(30, 50), kept=20)
    assert (once.starting_s, once.useful_s, once.lost_s) == (20, 20, 20)


def test_what_finished_without_a_report_was_useful_from_the_beginning_of_its_program() -> None:
    silent = booked_by_reports(run_of(1, 10, 60, exit=FINISHED, started_at=at(15), ready_at=at(20)))
    assert (silent.starting_s, silent.useful_s) == (20, 40)
    running = booked_by_reports(replace(run_of(1, 10, 60, ready_at=at(20)), ended_at=None))
    assert (running.starting_s, running.useful_s) == (200, 0)


def test_a_notice_costs_its_save_and_no_steps() -> None:
    asked = PreemptRequest(
        reason="spot",
        requested_at=at(50),
        deadline=at(70),
        notice=NoticeKind.INTERRUPTION,
        acknowledged_at=at(51),
    )
    saved = run_of(1, 10, 56, preempt=asked, exit=AllocationExit(reason="preempted: spot", code=0))
    again = run_of(2, 200, 300, resumed_steps=30)
    found = runs([saved, again], [mark(1, 0, 20), mark(1, 30, 50), mark(1, 30, 54, 4.0)], {})
    booked = booked_of(MACHINE, Books(found), at(400))
    assert booked.useful_s == 30
    assert booked.checkpointing_s == 6  # the save, and the way out
    assert booked.lost_s == 0
    assert interruptions(found)[0].steps_lost == 0


def test_a_run_that_never_stepped_was_starting() -> None:
    run = run_of(1, 10, 60, exit=AllocationExit(reason="crash", failure=FailureKind.CONTAINER_FAILED, code=1))
    assert booked_of(MACHINE, Books(runs([run], [], {TrialId(1): 0})), at(200)).starting_s == 60


def test_a_refused_machine_costs_nothing() -> None:
    assert booked_of(an_instance(paid_from=None, refused="no capacity"), Books(()), at(50)).paid_s == 0


@given(
    spans=st.lists(st.tuples(st.floats(0, 130), st.floats(0, 130), st.integers(0, 60)), max_size=5),
    marks=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 60), st.floats(-10, 150), st.floats(0, 30)), max_size=20
    ),
    reports=st.lists(st.tuples(st.integers(0, 60), st.floats(-10, 150)), max_size=2),
    joined=st.one_of(st.none(), st.floats(0, 120)),
)
def test_the_five_parts_always_sum_to_the_paid_time(
    spans: list[tuple[float, float, int]],
    marks: list[tuple[int, int, float, float]],
    reports: list[tuple[int, float]],
    joined: float | None,
) -> None:
    machine = replace(MACHINE, joined_at=None if joined is None else at(joined))
    allocations = [
        run_of(number + 1, min(a, b), max(a, b), resumed_steps=steps) for number, (a, b, steps) in enumerate(spans)
    ]
    made = [mark(*each) for each in marks]
    kept = kept_steps(allocations, {})
    told = [report(*each) for each in sorted(reports)]
    for each in allocations:
        own = [one for one in made if one.allocation_id == each.id]
        made += marks_of_reports(each, own, told, kept.get(each.id))
    found = runs(allocations, made, {})
    booked = booked_of(machine, Books(found), at(500))
    assert booked.paid_s == pytest.approx(100)
    for part in (booked.useful_s, booked.starting_s, booked.checkpointing_s, booked.lost_s, booked.idle_s):
        assert part >= -1e-9
