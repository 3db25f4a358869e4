"""Grid search: which values an axis takes, and in which order the points come."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.searcher.events import ExitReason, Shutdown
from resolute_master.searcher.grid import axes
from resolute_master.searcher.methods import make
from support.searches import SearchRun

GRID = {"name": "grid", "metric": "loss", "max_concurrent_trials": 2}


def values(spec: Any) -> list[Any]:
    ((_, found),) = axes({"x": spec})
    return list(found)


def ranged(type_: str, low: float, high: float, count: int, **more: Any) -> dict[str, Any]:
    return {"type": type_, "minval": low, "maxval": high, "count": count, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"type": "const", "val": [1]}, [[1]]),
        ("plain", ["plain"]),
        ({"type": "categorical", "vals": ["b", "a", None]}, ["b", "a", None]),
        (ranged("int", 0, 10, 3), [0, 5, 10]),
        (ranged("int", 0, 3, 9), [0, 1, 2, 3]),
        (ranged("int", 0, 5, 1), [3]),
        (ranged("int", -5, 0, 1), [-3]),
        (ranged("int", 0, 5, 3), [0, 3, 5]),
        (ranged("int", -5, 0, 3), [-5, -3, 0]),
        (ranged("double", 0, 1, 1), [0.5]),
        (ranged("double", 0, 1, 3), [0.0, 0.5, 1.0]),
        (ranged("double", 0.1, 0.3, 2), [0.1, 0.3]),
        (ranged("log", -2, 0, 1, base=10), [0.1]),
        (ranged("log", -2, 0, 3, base=10), [0.01, 0.1, 1.0]),
        ({}, [{}]),
    ],
)
def test_the_values_of_an_axis(spec: Any, expected: list[Any]) -> None:
    assert values(spec) == expected


def test_axes_are_walked_by_sorted_names_depth_first() -> None:
    space = {
        "z": 1,
        "b": {"y": {"type": "const", "val": 2}, "a": {"type": "categorical", "vals": [3, 4]}, "e": {}},
        "a": {"type": "categorical", "vals": [5]},
    }
    assert [path for path, _ in axes(space)] == [("a",), ("b", "a"), ("b", "e"), ("b", "y"), ("z",)]


def test_the_last_axis_is_the_fastest_and_points_are_taken_from_the_end() -> None:
    space = {
        "a": {"type": "categorical", "vals": ["x", "y"]},
        "b": {"c": ranged("int", 1, 3, 3), "d": {}},
    }
    run = SearchRun(GRID, space=space)
    while run.open:
        run.end(run.open[0])
    points = [run.points[each] for each in run.created]
    assert points == [{"a": a, "b": {"c": c, "d": {}}} for a in ("y", "x") for c in (3, 2, 1)]
    assert run.shutdown == Shutdown(cancel=False, failure=False)


def test_an_invalid_point_is_not_replaced() -> None:
    run = SearchRun(GRID, space={"a": ranged("int", 1, 3, 3)})
    run.end(run.open[0], ExitReason.INVALID_HPARAMS)
    assert run.progress == pytest.approx(1 / 3)
    while run.open:
        run.end(run.open[0])
    assert [run.points[each]["a"] for each in run.created] == [3, 2, 1]


def test_a_grid_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="grid search has no hyperparameter to search"):
        make(GRID, {})
    with pytest.raises(InvalidInput, match=r"hyperparameters\.a\.b\.vals: is empty"):
        make(GRID, {"a": {"b": {"type": "categorical", "vals": []}}})
    with pytest.raises(InvalidInput, match=r"hyperparameters\.a\.count"):
        make(GRID, {"a": {"type": "int", "minval": 0, "maxval": 2}})
