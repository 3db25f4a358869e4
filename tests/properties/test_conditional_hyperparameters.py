"""Hyperparameters that are there only where others have certain values, in every method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.searcher.events import PointsProposed
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.grid import GridSearch
from resolute_master.searcher.hyperparameters import sample
from support.effort import examples
from support.searches import SearchRun

SPACE: Mapping[str, Any] = {
    "optimizer": {
        "name": {"type": "categorical", "vals": ["sgd", "adam", "none"]},
        "momentum": {"type": "double", "minval": 0.1, "maxval": 0.9, "count": 2, "when": {"optimizer.name": ["sgd"]}},
        "schedule": {"type": "categorical", "vals": ["flat", "step"], "when": {"optimizer.name": ["sgd", "adam"]}},
    },
    # It comes before what it depends on, and that depends on something itself.
    "every": {"type": "int", "minval": 1, "maxval": 3, "count": 3, "when": {"optimizer.schedule": ["step"]}},
    "batch": {"type": "int", "minval": 1, "maxval": 2, "count": 2},
    "eps": {"type": "const", "val": 1e-8, "when": {"optimizer.name": ["adam"]}},
}
HALVING = {"name": "async_halving", "metric": "loss", "num_rungs": 2, "divisor": 2, "max_trials": 12, "max_length": 4}
PBT = {"name": "pbt", "metric": "loss", "population_size": 4, "num_rounds": 6, "length_per_round": 1}
CONFIGS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "random": {"name": "random", "max_trials": 12},
    "grid": {"name": "grid", "max_concurrent_trials": 0},
    "async_halving": HALVING,
    "adaptive_asha": {**HALVING, "name": "adaptive_asha"},
    "pbt": {**PBT, "replace_function": {"truncate_fraction": 0.5}, "explore_function": {"resample_probability": 0.5}},
    "optuna": {"name": "optuna", "metric": "loss", "max_trials": 12, "random_trials": 6, "max_length": 1},
}


def is_whole(point: Mapping[str, Any]) -> None:
    """Everything is there that should be, and nothing else."""
    name, schedule = point["optimizer"]["name"], point["optimizer"].get("schedule")
    assert ("momentum" in point["optimizer"]) == (name == "sgd")
    assert (schedule is not None) == (name in ("sgd", "adam"))
    assert ("every" in point) == (schedule == "step")
    assert ("eps" in point) == (name == "adam")
    assert 1 <= point["batch"] <= 2
    assert 1 <= point.get("every", 1) <= 3
    assert 0.1 <= point["optimizer"].get("momentum", 0.5) <= 0.9


def played(config: Mapping[str, Any], seed: int) -> Iterator[Mapping[str, Any]]:
    """Every trial does what it is told to; the points of all."""
    run = SearchRun(config, seed=seed, space=SPACE, reload=False)
    draws = Generator(seed + 1)
    for _ in range(400):
        point_request = run.method.point_request(run.search)
        if point_request is not None:
            run.tell(
                PointsProposed(points=tuple(sample(point_request.space, draws) for _ in range(point_request.points)))
            )
        busy = [each for each in run.open if each in run.stopped or not run.row(each).idle]
        if not busy:
            break
        trial = busy[0]
        if trial in run.stopped or run.row(trial).length is None:
            run.end(trial)
        else:
            run.complete(trial, float(run.row(trial).number * 7 % 5))
    assert not run.open
    yield from run.points.values()


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**31))
def test_every_point_has_what_its_choices_ask_for(name: str, seed: int) -> None:
    points = list(played(CONFIGS[name], seed))
    assert points
    for point in points:
        is_whole(point)


def test_a_grid_has_every_point_once() -> None:
    grid = GridSearch(SPACE, at_once=0)
    points = [grid.point(index) for index in range(grid.max_trials)]
    momenta, every = (0.1, 0.9), (1, 2, 3)
    sgd = product(momenta, [None, *every])
    adam = [None, *every]
    assert len(points) == 2 * (len(list(sgd)) + len(adam) + 1)
    assert len({repr(point) for point in points}) == len(points)
    for point in points:
        is_whole(point)


def test_conditions_change_nothing_of_what_else_is_drawn() -> None:
    plain = {
        name: {k: v for k, v in spec.items() if k != "when"} for name, spec in SPACE.items() if name != "optimizer"
    }
    group = {name: {k: v for k, v in spec.items() if k != "when"} for name, spec in SPACE["optimizer"].items()}
    for seed in range(50):
        with_them = sample(SPACE, Generator(seed))
        without = sample({**plain, "optimizer": group}, Generator(seed))
        assert all(without[key] == value for key, value in with_them.items() if key != "optimizer")
        assert with_them["optimizer"].items() <= without["optimizer"].items()
