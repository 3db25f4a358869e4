"""What is chosen on the axes of a search's picture."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import WireTrialState
from resolute_master.domain.trial import Validation
from resolute_web.axes import Choice, choices_of, fits, scale_of
from resolute_web.search_pictures import parallel
from resolute_web.trials import TrialRow
from support.stores import a_trial, an_experiment, moment


def a_row(number: int, best: float | None, **hparams: Any) -> TrialRow:
    validation = None if best is None else Validation(steps_completed=1, metric=best, metrics={}, at=moment(1))
    trial = a_trial(number, hparams=hparams, best_validation=validation)
    return TrialRow(trial=trial, state=WireTrialState.COMPLETED, seconds=1.0, best=best, latest=best)


ROWS = [
    a_row(1, 0.5, lr=0.1, net={"kind": "cnn"}),
    a_row(2, 0.25, lr=0.01, net={"kind": "mlp"}),
    a_row(3, 1.0, lr=0.001, net={"kind": "cnn"}),
    a_row(4, None, lr=0.01, net={"kind": "cnn"}),
]


@pytest.mark.parametrize(
    ("query", "trials"),
    [
        ({}, [1, 2, 3, 4]),
        ({"from:hp.lr": "0.01"}, [1, 2, 4]),
        ({"from:hp.lr": "0.01", "to:hp.lr": "1e-2"}, [2, 4]),
        ({"to:hp.lr": "0.05", "is:hp.net.kind": "cnn"}, [3, 4]),
        ({"to:metric": "0.5"}, [1, 2]),
        ({"to:metric": "", "is:hp.net.kind": ""}, [1, 2, 3, 4]),
        ({"from:hp.absent": "0"}, []),
        ({"is:hp.absent": "x"}, []),
        ({"did": "pause", "from": "3", "to:other": "1"}, [1, 2, 3, 4]),
    ],
)
def test_trials_in_the_ranges_of_the_address_are_chosen(query: dict[str, str], trials: list[int]) -> None:
    chosen = choices_of(query)
    assert [row.trial.id for row in ROWS if fits(row, chosen)] == trials


@pytest.mark.parametrize("text", ["a", "nan", "inf", "1 2", "1e999"])
def test_an_end_that_is_no_number_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"from:hp\.lr: .* is not a number"):
        choices_of({"from:hp.lr": text})


@pytest.mark.parametrize("value", [True, None, "0.5", math.nan, math.inf, [0.5], {}])
def test_what_is_no_finite_number_is_in_no_range(value: Any) -> None:
    assert not Choice(low=0.0).holds(value)
    assert Choice().holds(value)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1), st.floats(allow_nan=False, allow_infinity=False))
def test_places_of_values_and_ends_lie_on_the_axis(values: list[float], end: float) -> None:
    scale = scale_of(values)
    assert all(0 <= scale.place(value) <= 1 for value in values)
    assert 0 <= scale.place_of_end(end, 0.0) <= 1
    assert (scale.place_of_end(None, 0.0), scale.place_of_end(None, 1.0)) == (0.0, 1.0)


def test_lines_outside_of_what_is_chosen_are_drawn_first_and_the_range_is_marked() -> None:
    searcher = {"name": "random", "metric": "loss", "smaller_is_better": True}
    experiment = an_experiment(1, config={"searcher": searcher})
    picture = parallel(ROWS, ("lr", "net.kind"), experiment, choices_of({"from:hp.lr": "0.01"}))
    assert picture is not None
    assert [(track.trial, track.outside) for track in picture.tracks] == [(3, True), (1, False), (2, False)]
    rate, kind, metric = picture.axes
    assert (rate.key, kind.key, metric.key) == ("hp.lr", "hp.net.kind", "metric")
    assert rate.marked == (rate.y(0.1), rate.y(0.01) - rate.y(0.1))
    assert kind.marked is None and kind.scale.words == ["cnn", "mlp"]
    everything = parallel(ROWS, ("lr", "net.kind"), experiment, {})
    assert everything is not None and not any(track.outside for track in everything.tracks)
