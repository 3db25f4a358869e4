"""Successive halving: the sizes of brackets and rungs, and who goes on."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.searcher.events import Create, ExitReason, SearchAction, Shutdown, Stop, Train
from resolute_master.searcher.halving import LOST, adaptive_brackets, one_bracket, rung_counts
from resolute_master.searcher.method import Planned, TrialState
from resolute_master.searcher.methods import make
from support.searches import SPACE, SearchRun


def a_search(**more: Any) -> dict[str, Any]:
    """Three rungs of 1, 3 and 9; up to twelve trials."""
    base = {"name": "async_halving", "num_rungs": 3, "divisor": 3, "max_trials": 12, "max_concurrent_trials": 3}
    return {**base, "metric": "loss", "smaller_is_better": True, **more}


def by_time(**more: Any) -> SearchRun:
    return SearchRun(a_search(**{"max_time": 9, "time_metric": "batches", **more}))


def by_length(**more: Any) -> SearchRun:
    return SearchRun(a_search(max_length={"batches": 9}, **more))


def kinds(actions: tuple[SearchAction, ...]) -> list[type]:
    return [type(action) for action in actions]


# ------------------------------------------------------------------------------------------------------------ sizes


def test_a_rung_is_a_divisor_part_of_the_next_and_never_nothing() -> None:
    bracket = one_bracket(num_rungs=4, divisor=4, max_trials=5, units=20, at_once=0)
    assert bracket.units == (1, 1, 5, 20)
    assert bracket.at_once == 5
    assert one_bracket(num_rungs=2, divisor=2.5, max_trials=50, units=10, at_once=0).at_once == 2
    assert one_bracket(num_rungs=2, divisor=2.5, max_trials=50, units=10, at_once=7).at_once == 7


@pytest.mark.parametrize(
    ("trials", "divisor", "rungs", "sizes"),
    [(20, 3, (3, 2, 1), [12, 5, 3]), (100, 4, (4, 3, 2), [70, 22, 8]), (2, 4, (3, 2, 1), [1, 1, 1])],
)
def test_trials_are_shared_out_among_brackets(
    trials: int, divisor: float, rungs: tuple[int, ...], sizes: list[int]
) -> None:
    brackets = adaptive_brackets(rungs, divisor=divisor, max_trials=trials, units=1000, at_once=0)
    assert [bracket.max_trials for bracket in brackets] == sizes


@pytest.mark.parametrize(
    ("searcher", "expected"),
    [
        ({"max_time": 100, "max_trials": 10, "divisor": 4, "max_concurrent_trials": 2}, [(2, 7, 1), (1, 3, 1)]),
        (
            {
                "max_time": 1000,
                "max_trials": 10,
                "divisor": 3,
                "mode": "conservative",
                "max_concurrent_trials": 5,
            },
            [(3, 7, 2), (2, 2, 2), (1, 1, 1)],
        ),
    ],
)
def test_places_are_shared_out_among_brackets(searcher: dict[str, Any], expected: list[tuple[int, ...]]) -> None:
    counts = rung_counts(
        mode=searcher.get("mode", "standard"),
        max_rungs=5,
        bracket_rungs=(),
        divisor=searcher["divisor"],
        max_trials=searcher["max_trials"],
        units=searcher["max_time"],
    )
    brackets = adaptive_brackets(
        counts,
        divisor=searcher["divisor"],
        max_trials=searcher["max_trials"],
        units=searcher["max_time"],
        at_once=searcher["max_concurrent_trials"],
    )
    assert [(len(each.units), each.max_trials, each.at_once) for each in brackets] == expected


def test_without_a_limit_every_bracket_begins_as_many_as_the_last_one_has() -> None:
    brackets = adaptive_brackets((3, 2, 1), divisor=3, max_trials=60, units=9, at_once=0)
    assert [bracket.max_trials for bracket in brackets] == [34, 16, 10]
    assert {bracket.at_once for bracket in brackets} == {10}
    brackets = adaptive_brackets((3, 2, 1), divisor=3, max_trials=10, units=9, at_once=0)
    assert [bracket.at_once for bracket in brackets] == [3, 2, 1]


@pytest.mark.parametrize(
    ("mode", "expected"), [("aggressive", [4]), ("standard", [4, 3, 2]), ("conservative", [4, 3, 2, 1])]
)
def test_the_mode_says_how_early_trials_are_stopped(mode: str, expected: list[int]) -> None:
    common: dict[str, Any] = {"max_rungs": 5, "divisor": 4.0, "max_trials": 100, "units": 1000}
    assert rung_counts(mode=mode, bracket_rungs=(), **common) == expected
    assert rung_counts(mode=mode, bracket_rungs=(1, 3), **common) == [3, 1]


def test_the_plan_counts_who_ends_at_each_rung() -> None:
    searcher = {**a_search(max_time=9, time_metric="batches"), "name": "adaptive_asha", "bracket_rungs": [3, 1]}
    searcher["max_trials"] = 20
    method = make(searcher, SPACE)
    # 15 trials in three rungs: ten end at the first, four at the second, one at the last; five train to the end.
    assert method.plan() == (Planned(trials=10, units=1), Planned(trials=4, units=3), Planned(trials=6, units=9))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"max_length": None}, "max_length"),
        ({"divisor": 1}, "divisor"),
        ({"max_length": 0}, "max_length"),
        ({"num_rungs": 0}, "0 rung"),
        ({"num_rungs": 101}, "101 rungs"),
    ],
)
def test_what_cannot_be_searched_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        make({**a_search(max_length={"batches": 9}), **change}, SPACE)


# --------------------------------------------------------------------------------------------------------- stopping


def test_the_first_at_a_rung_goes_on_and_a_worse_one_is_stopped_and_replaced() -> None:
    run = by_time()
    first, second, third = run.open
    assert run.validate(first, 0.5, 1) == ()
    assert kinds(run.validate(second, 0.6, 1)) == [Stop, Create]
    assert run.validate(third, 0.5, 1) == ()  # of equals the newest is the first
    assert run.row(second).reason == "it was stopped at rung 0 (1): rank 2 of 2; the best 1 continue"


def test_nothing_is_decided_before_a_rung() -> None:
    run = by_time(max_time=90)
    first = run.open[0]
    assert run.validate(first, 0.1, 9.9) == ()
    assert run.row(first).standings == ()
    run.validate(first, 0.1, 10.2)
    assert [standing.board for standing in run.row(first).standings] == ["0/0"]


def test_one_report_may_pass_several_rungs_and_counts_in_each() -> None:
    run = by_time()
    first = run.open[0]
    assert kinds(run.validate(first, 0.5, 9)) == [Stop, Create]
    assert [standing.board for standing in run.row(first).standings] == ["0/0", "0/1", "0/2"]
    assert run.row(first).reason == "it has trained to the last rung 2 (9): rank 1 of 1"


def test_a_larger_metric_is_better_when_it_is_said_so() -> None:
    run = by_time(smaller_is_better=False)
    first, second, _ = run.open
    run.validate(first, 0.5, 1)
    assert run.validate(second, 0.6, 1) == ()


def test_a_metric_that_is_no_number_is_the_worst() -> None:
    run = by_time()
    first, second, third = run.open
    run.validate(first, float("nan"), 1)
    assert run.validate(second, 1e300, 1) == ()
    assert kinds(run.validate(third, float("nan"), 1)) == [Stop, Create]


@pytest.mark.parametrize(("metric", "time"), [(None, 1), (0.1, None), (0.1, float("nan")), (0.1, float("inf"))])
def test_a_report_without_its_numbers_is_the_end_of_the_search(metric: float | None, time: float | None) -> None:
    run = by_time()
    (end,) = run.validate(run.open[0], metric, time)
    assert isinstance(end, Shutdown)
    assert end.failure
    assert "does not hold" in end.reason


def test_a_failed_trial_counts_behind_all_at_its_rung_and_is_replaced() -> None:
    run = by_time()
    first = run.open[0]
    run.validate(first, 0.5, 1)
    assert kinds(run.end(first, ExitReason.ERRORED)) == [Create]
    assert [(s.board, s.score) for s in run.row(first).standings] == [("0/0", 0.5), ("0/1", LOST)]


def test_a_stopped_trial_that_fails_on_its_way_out_is_counted_once() -> None:
    run = by_time()
    first, second, _ = run.open
    run.validate(first, 0.5, 1)
    run.validate(second, 0.6, 1)
    assert run.end(second, ExitReason.ERRORED) == ()
    assert len(run.row(second).standings) == 1


def test_an_invalid_trial_leaves_no_trace_and_is_replaced() -> None:
    run = by_time(max_trials=3)
    first = run.open[0]
    run.validate(first, 0.5, 1)
    assert kinds(run.end(first, ExitReason.INVALID_HPARAMS)) == [Create]
    assert run.records.size("0/0") == 0


def test_code_that_ends_by_itself_makes_no_new_trial() -> None:
    run = by_time()
    assert run.end(run.open[0]) == ()
    run.end(run.open[0])
    assert run.end(run.open[0]) == (Shutdown(cancel=False, failure=False),)


def test_progress_counts_results_of_the_first_rung_and_in_the_end_who_has_ended() -> None:
    run = by_time(max_trials=3)
    for trial in list(run.open):
        run.validate(trial, 0.5, 1)
    assert run.progress == pytest.approx(3 / (1.2 * 3))
    for trial in list(run.open)[:-1]:
        run.end(trial)
    assert run.progress == pytest.approx(max(2 / 3, 1 / 1.2))


# ------------------------------------------------------------------------------------------------- stopping by length


def test_rungs_are_handed_out_as_lengths_that_count_from_the_beginning() -> None:
    run = by_length(stop_once=True)
    first = run.open[0]
    assert run.row(first).length == 1
    assert run.complete(first, 0.5) == (Train(request_id=first, length=3),)
    assert run.complete(first, 0.4) == (Train(request_id=first, length=9),)
    assert kinds(run.complete(first, 0.3)) == [Stop, Create]


def test_validations_beside_lengths_are_not_counted() -> None:
    run = by_length(stop_once=True)
    assert run.validate(run.open[0], 0.5, 9) == ()
    assert run.records.size("0/0") == 0


def test_the_time_metric_decides_where_both_are_given() -> None:
    run = by_time(max_length={"batches": 20})
    first = run.open[0]
    assert run.row(first).length == 20
    run.validate(first, 0.5, 1)
    assert [standing.board for standing in run.row(first).standings] == ["0/0"]
    assert kinds(run.complete(first, 0.4)) == [Stop]


# -------------------------------------------------------------------------------------------------------- promoting


def test_a_trial_waits_until_enough_others_have_told() -> None:
    run = by_length()
    first, second, third = run.open
    assert kinds(run.complete(first, 0.5)) == [Create]
    row = run.row(first)
    assert run.method.stage(row, run.records).state is TrialState.WAITING
    assert row.reason == "it waits at rung 0 (1): rank 1 of 1; the best 0 continue"
    assert kinds(run.complete(second, 0.6)) == [Create]
    assert run.complete(third, 0.7) == (Train(request_id=first, length=3),)  # one of three, and it is the first
    assert run.row(first).reason == "it was promoted from rung 0 (1)"


def test_of_equals_the_oldest_is_promoted() -> None:
    run = by_length()
    first, second, third = run.open
    run.complete(first, 0.5)
    run.complete(second, 0.5)
    assert run.complete(third, 0.5) == (Train(request_id=first, length=3),)


def test_a_waiting_trial_that_has_ended_is_promoted_as_the_worst_of_the_next_rung() -> None:
    run = by_length()
    first, second, third = run.open
    run.complete(first, 0.1)
    run.end(first, ExitReason.USER_CANCELED)
    run.complete(second, 0.2)
    assert kinds(run.complete(third, 0.3)) == [Create]  # the promotion of one that has left gives nobody work
    assert [(s.board, s.score) for s in run.row(first).standings] == [("0/0", 0.1), ("0/1", LOST)]


@pytest.mark.parametrize("reason", [None, ExitReason.ERRORED, ExitReason.USER_CANCELED])
def test_a_trial_that_leaves_before_its_length_keeps_nobody_waiting(reason: ExitReason | None) -> None:
    run = by_length(max_trials=3)
    first, second, third = run.open
    run.complete(first, 0.1)
    run.complete(second, 0.2)
    assert kinds(run.end(third, reason)) == [Train, Stop]
    assert run.row(first).length == 3
    assert second in run.stopped


def test_who_waits_where_nobody_comes_any_more_is_stopped() -> None:
    run = by_length(max_trials=3)
    first, second, third = run.open
    run.complete(first, 0.1)
    run.complete(second, 0.2)
    assert run.complete(third, 0.3) == (
        Train(request_id=first, length=3),
        Stop(request_id=second),
        Stop(request_id=third),
    )
    assert run.complete(first, 0.1) == (Stop(request_id=first),)
    assert run.row(second).reason == "it was stopped at rung 0 (1): rank 2, not promoted"


def test_an_invalid_trial_after_the_others_were_stopped_is_replaced_and_its_successor_ends() -> None:
    run = by_length(max_trials=2, num_rungs=1)
    first, second = run.open
    run.complete(first, 0.1)
    (create,) = run.end(second, ExitReason.INVALID_HPARAMS)
    assert isinstance(create, Create)
    assert run.complete(create.request_id, 0.2) == (Stop(request_id=create.request_id),)
