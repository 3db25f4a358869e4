"""Population-based training: who goes on, who makes room, and what a copy looks like."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.searcher.events import Create, ExitReason, SearchAction, Shutdown, Stop, Train
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.method import TrialState
from resolute_master.searcher.methods import make
from resolute_master.searcher.population import Exploration, explored
from support.searches import SearchRun

SPACE: dict[str, Any] = {
    "choice": {"type": "categorical", "vals": ["a", "b"]},
    "fixed": 3,
    "net": {"layers": {"type": "int", "minval": 1, "maxval": 9}, "width": {"type": "double", "minval": 1, "maxval": 4}},
    "rate": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
}


def a_search(**more: Any) -> dict[str, Any]:
    base = {"name": "pbt", "metric": "loss", "smaller_is_better": True, "population_size": 5, "num_rounds": 2}
    return {**base, "length_per_round": {"batches": 10}, "replace_function": {"truncate_fraction": 0.4}, **more}


def first_round(run: SearchRun) -> tuple[SearchAction, ...]:
    """The trials do as well as their number says, the first one best; answers what the last report brings about."""
    *others, last = run.open
    for number, trial in enumerate(others):
        assert run.complete(trial, float(number)) == ()
        assert run.method.stage(run.row(trial), run.records).state is TrialState.WAITING
    return run.complete(last, float(len(others)))


def test_the_worst_make_room_for_copies_of_the_best_that_begin_at_their_checkpoints() -> None:
    run = SearchRun(a_search(), space=SPACE)
    first, second, third, fourth, fifth = run.open
    actions = first_round(run)
    assert [type(each) for each in actions] == [Train] * 3 + [Stop] * 2 + [Create] * 2
    assert [each.request_id for each in actions[:5]] == [first, second, third, fourth, fifth]  # type: ignore[union-attr]
    assert [each.length for each in actions if isinstance(each, Train)] == [20, 20, 20]
    assert [each.source for each in actions if isinstance(each, Create)] == [first, second]
    assert run.row(fifth).reason == "it was replaced after round 0: rank 5 of 5"
    copy = run.row(run.created[5])
    assert copy.length == 10, "its own steps begin at 0"
    assert run.points[copy.request_id]["fixed"] == 3


def test_the_last_round_ends_the_search() -> None:
    run = SearchRun(a_search(), space=SPACE)
    first_round(run)
    live = [each for each in run.open if each not in run.stopped]
    for trial in live:
        run.complete(trial, 0.5)
    assert set(run.created) == run.stopped
    for trial in list(run.open):
        run.end(trial)
    assert run.shutdown == Shutdown(cancel=False, failure=False)
    assert len(run.created) == 7


def test_a_trial_that_is_lost_is_replaced_at_the_end_of_the_round_before_others_are() -> None:
    run = SearchRun(a_search(), space=SPACE)
    first, second, third, fourth, fifth = run.open
    run.end(first, ExitReason.ERRORED)
    run.complete(second, 0.1)
    run.end(third)
    run.complete(fourth, 0.2)
    actions = run.complete(fifth, 0.3)
    assert [type(each) for each in actions] == [Train] * 3 + [Create] * 2
    assert [each.source for each in actions if isinstance(each, Create)] == [second, fourth]


def test_an_invalid_copy_is_made_anew_from_the_same_trial() -> None:
    run = SearchRun(a_search(), space=SPACE)
    first = run.open[0]
    first_round(run)
    (create,) = run.end(run.created[5], ExitReason.INVALID_HPARAMS)
    assert isinstance(create, Create)
    assert create.source == first


def test_a_copy_stays_within_its_bounds_and_choices_stay_unless_drawn_anew() -> None:
    generator = Generator(5)
    point = {"choice": "a", "fixed": 3, "net": {"layers": 9, "width": 1.0}, "rate": 0.1}
    perturbed = [
        explored(SPACE, point, Exploration(resample_probability=0.0, perturb_factor=0.5), generator) for _ in range(50)
    ]
    assert {each["choice"] for each in perturbed} == {"a"}
    assert {each["net"]["layers"] for each in perturbed} == {9, 4}
    assert {each["net"]["width"] for each in perturbed} == {1.0, 1.5}
    assert {each["rate"] for each in perturbed} == {0.1, 0.05}
    drawn = [
        explored(SPACE, point, Exploration(resample_probability=1.0, perturb_factor=0.0), generator) for _ in range(50)
    ]
    assert {each["choice"] for each in drawn} == {"a", "b"}
    assert len({each["rate"] for each in drawn}) == 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"population_size": 0}, "population of 0"),
        ({"replace_function": {"truncate_fraction": 0.6}}, "truncate_fraction: must be from 0 to 0.5"),
    ],
)
def test_what_cannot_be_searched_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        make(a_search(**change), SPACE)
