"""`grid`: every point of the search space once."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, product
from typing import Any

from msgspec import Struct

from resolute.errors import InvalidInput
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.searcher.conditions import Path, Presence, controlling
from resolute_master.searcher.events import ExitReason
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.method import Draft, Method, Planned, share_done
from resolute_master.searcher.records import Records

MAX_VALUES = 100_000
"""Most values of one axis: a longer one makes more trials than any cluster runs."""

Axis = tuple[Path, Sequence[Any]]
"""Path of a hyperparameter, and its values."""


class GridSearch(Method):
    """The product of all axes, the last one fastest, begun from its end; at most `at_once` trials at a time (0: all). Where some
    axes are there only under conditions, one such product after the other.

    A point is never tried twice, whatever its trial comes to.
    """

    def __init__(self, space: Space, *, at_once: int, length: int | None = None) -> None:
        if at_once < 0:
            raise InvalidInput(f"searcher.max_concurrent_trials: must be 0 (all at once) or more, not {at_once}")
        all_axes = axes(space)
        if not all_axes:
            raise InvalidInput(
                "hyperparameters: grid search has no hyperparameter to search; give at least one, or use single"
            )
        empty = next((path for path, values in all_axes if not values), None)
        if empty is not None:
            raise InvalidInput(f"hyperparameters.{'.'.join(empty)}.vals: is empty; give at least one value")
        self._blocks = _blocks(space, all_axes)
        self._ends = tuple(accumulate(block.points for block in self._blocks))
        self._points = self._ends[-1]
        self._groups = tuple(path[:-1] for path, _ in all_axes)
        self.max_trials = self._points
        self._limit = at_once or self._points
        self._length = length

    @property
    def at_once(self) -> int:
        return min(self._limit, self.max_trials)

    def begin(self, draft: Draft) -> None:
        self._fill(draft)

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        self._fill(draft)

    def progress(self, search: Search, records: Records) -> float:
        # A point that has turned out invalid is done with, too.
        return 1.0 if search.over else share_done(search, self._points) + search.invalid / self._points

    def plan(self) -> tuple[Planned, ...]:
        return (Planned(trials=self._points, units=self._length),)

    def _fill(self, draft: Draft) -> None:
        while draft.search.requested < self._points and draft.search.open < self._limit:
            point = self.point(self._points - 1 - draft.search.requested)
            draft.create({}, hparams=point, length=self._length)

    def point(self, index: int) -> dict[str, Any]:
        """The point with this index from the start of the grid, counted from 0."""
        number = bisect_right(self._ends, index)
        block = self._blocks[number]
        index -= self._ends[number] - block.points
        point: dict[str, Any] = {}
        for group in self._groups:
            _group(point, group)
        for path, values in reversed(block.axes):
            index, at = divmod(index, len(values))
            _group(point, path[:-1])[path[-1]] = values[at]
        return point


class _Block(Struct, frozen=True):
    """A part of the grid that is a product; the last axis is the fastest."""

    axes: tuple[Axis, ...]

    @property
    def points(self) -> int:
        return math.prod(len(values) for _, values in self.axes)


def _blocks(space: Space, all_axes: Sequence[Axis]) -> list[_Block]:
    """One block for each combination of the choices that others depend on, the last of them the fastest; a single one if there
    are none."""
    chosen, by_path = controlling(space), dict(all_axes)
    if math.prod(len(by_path[path]) for path in chosen) > MAX_VALUES:
        raise InvalidInput(
            f"hyperparameters: the choices that others depend on have more than {MAX_VALUES} combinations; use fewer"
        )
    found: list[_Block] = []
    for values in product(*(by_path[path] for path in chosen)):
        fixed = {".".join(path): value for path, value in zip(chosen, values, strict=True)}
        presence = Presence(space, fixed)
        # A choice that is not there has no values to tell apart.
        if any(v != by_path[p][0] and not presence.of(".".join(p)) for p, v in zip(chosen, values, strict=True)):
            continue
        there = [(path, options) for path, options in all_axes if presence.of(".".join(path))]
        found.append(_Block(tuple((p, [fixed[".".join(p)]] if p in chosen else options) for p, options in there)))
    return found


def _group(point: dict[str, Any], path: Path) -> dict[str, Any]:
    for name in path:
        point = point.setdefault(name, {})
    return point


def axes(space: Space, above: Path = ()) -> list[Axis]:
    """One axis for each leaf, by sorted names, depth first."""
    found: list[Axis] = []
    for name in sorted(space):
        spec, path = space[name], (*above, name)
        if isinstance(spec, Mapping) and spec.get("type") is None and spec:
            found += axes(spec, path)
        else:
            found.append((path, _values(spec, path)))
    return found


def _values(spec: Any, path: Path) -> Sequence[Any]:
    if not isinstance(spec, Mapping):
        return [spec]
    match spec.get("type"):
        case None:
            return [{}]  # an empty group
        case "const":
            return [spec["val"]]
        case "categorical":
            vals: Sequence[Any] = spec["vals"]
            return vals
        case "int":
            return _integers(int(spec["minval"]), int(spec["maxval"]), _count(spec, path))
        case "double":
            return _evenly(float(spec["minval"]), float(spec["maxval"]), _count(spec, path))
        case "log":
            base = float(spec["base"])
            return [base**power for power in _evenly(float(spec["minval"]), float(spec["maxval"]), _count(spec, path))]
        case other:
            raise InvalidInput(
                f"hyperparameters.{'.'.join(path)}.type: '{other}' is none of const, int, double, log, categorical"
            )


def _count(spec: Mapping[str, Any], path: Path) -> int:
    count = spec.get("count")
    if count is None:
        raise InvalidInput(f"hyperparameters.{'.'.join(path)}.count: grid search requires the number of values; add it")
    if not 1 <= count <= MAX_VALUES:
        raise InvalidInput(f"hyperparameters.{'.'.join(path)}.count: {count} must be from 1 to {MAX_VALUES}")
    return int(count)


def _integers(low: int, high: int, count: int) -> list[int]:
    count = min(count, high - low + 1)
    if count == 1:
        return [_half_away(low + high, 2)]
    return [_half_away(low * (count - 1) + step * (high - low), count - 1) for step in range(count)]


def _half_away(numerator: int, denominator: int) -> int:
    """The nearest whole number; of two, the one further from zero."""
    whole = (2 * abs(numerator) + denominator) // (2 * denominator)
    return whole if numerator >= 0 else -whole


def _evenly(low: float, high: float, count: int) -> list[float]:
    """Evenly spaced values, both ends included; the middle alone for a count of 1."""
    if count == 1:
        return [(low + high) / 2]
    return [*(low + step * (high - low) / (count - 1) for step in range(count - 1)), high]
