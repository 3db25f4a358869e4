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
from resolute_master.domain.metrics import MetricReport, StepMark
from resolute_master.lifecycle.cost import line_of_machine
from resolute_master.lifecycle.ledger import Booking, Books, Run, interruptions, kept_steps, mark_of_report
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
    told = mark_of_report(killed.id, report(1, 43, 51), marks)
    assert told == (mark(1, 43, 51, saving=1.0),)
    (cut,) = interruptions(runs([killed, again], marks + told, {}))
    assert (cut.steps_done, cut.steps_lost) == (43, 23)
    assert mark_of_report(killed.id, report(1, 40, 50), marks) == ()
    assert mark_of_report(killed.id, report(1, 43, 51), ()) == (mark(1, 43, 51),)


def report(run: int, steps: int, when: float) -> MetricReport:
    return MetricReport(
        trial_id=TrialId(1), run_id=run, group="training", steps_completed=steps, reported_at=at(when), metrics={}
    )


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
    joined=st.one_of(st.none(), st.floats(0, 120)),
)
def test_the_five_parts_always_sum_to_the_paid_time(
    spans: list[tuple[float, float, int]], marks: list[tuple[int, int, float, float]], joined: float | None
) -> None:
    machine = replace(MACHINE, joined_at=None if joined is None else at(joined))
    allocations = [
        run_of(number + 1, min(a, b), max(a, b), resumed_steps=steps) for number, (a, b, steps) in enumerate(spans)
    ]
    found = runs(allocations, [mark(*each) for each in marks], {})
    booked = booked_of(machine, Books(found), at(500))
    assert booked.paid_s == pytest.approx(100)
    for part in (booked.useful_s, booked.starting_s, booked.checkpointing_s, booked.lost_s, booked.idle_s):
        assert part >= -1e-9
