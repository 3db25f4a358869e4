"""A search over hyperparameters as pictures: lines through one axis a hyperparameter, and a small plot of each against the metric.

Geometry alone, in units of the picture; templates draw it. So it can be seen without scripts, printed and scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resolute_master.domain.experiment import Experiment
from resolute_web.axes import METRIC, Choice, Choices, Scale, fits, key_of, scale_of
from resolute_web.trials import TrialRow, best_first, flat
from resolute_web.words import number

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 48, 40, 28
PLOT_WIDTH, PLOT_HEIGHT = 240, 150
MOST_AXES = 8
SHADES = 5
"""Number of shades of the metric, from the best fifth to the worst."""


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """`key` names it in the address; `marked` is where its chosen range begins, from above, and how high it is."""

    key: str
    name: str
    x: float
    labels: Sequence[Label]
    scale: Scale
    downward: bool
    choice: Choice
    marked: tuple[float, float] | None

    def y(self, value: Any) -> float:
        return _height(self.scale.place(value), self.downward)


@dataclass(frozen=True, slots=True)
class Track:
    """One trial. `shade` 0 is the best fifth; the template draws the worst first, and those outside of what is chosen before."""

    trial: int
    points: str
    shade: int
    text: str
    outside: bool


@dataclass(frozen=True, slots=True)
class Parallel:
    axes: Sequence[Axis]
    tracks: Sequence[Track]
    width: int = WIDTH
    height: int = HEIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    shade: int
    text: str


@dataclass(frozen=True, slots=True)
class Scatter:
    name: str
    dots: Sequence[Dot]
    labels: Sequence[Label]
    width: int = PLOT_WIDTH
    height: int = PLOT_HEIGHT


def parallel(
    rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment, choices: Choices
) -> Parallel | None:
    """The metric is the last axis, better above. None where there is nothing to compare."""
    told = _shown(rows, names, experiment)
    names = names[:MOST_AXES]
    if len(told) < 2 or not names:
        return None
    columns = [[flat(row.trial.hparams).get(name) for row in told] for name in names]
    columns.append([row.best for row in told])
    step = (WIDTH - LEFT - RIGHT) / len(names)
    axes = [
        _axis(key, name, round(LEFT + index * step, 1), scale_of(column), downward=downward, choices=choices)
        for index, (column, (key, name, downward)) in enumerate(zip(columns, _named(names, experiment), strict=True))
    ]
    tracks = [
        Track(
            row.trial.id,
            " ".join(f"{axis.x},{axis.y(column[number_])}" for axis, column in zip(axes, columns, strict=True)),
            _shade(number_, len(told)),
            _in_words(row, names, experiment),
            outside=not fits(row, choices),
        )
        for number_, row in enumerate(told)
    ]
    worst_first = tracks[::-1]
    return Parallel(axes, sorted(worst_first, key=lambda track: not track.outside))


def _named(names: Sequence[str], experiment: Experiment) -> Sequence[tuple[str, str, bool]]:
    """Key and title of each axis, and whether small values are above."""
    found = [(key_of(name), name, False) for name in names]
    return [*found, (METRIC, experiment.metric, experiment.smaller_is_better)]


def _axis(key: str, name: str, x: float, scale: Scale, *, downward: bool, choices: Choices) -> Axis:
    choice = choices.get(key, Choice())
    labels = [Label(x, _height(at, downward), text) for at, text in scale.labels]
    marked = None
    if scale.numeric and (choice.low is not None or choice.high is not None):
        places = (scale.place_of_end(choice.low, 0.0), scale.place_of_end(choice.high, 1.0))
        above, below = sorted(_height(place, downward) for place in places)
        marked = (above, round(max(below - above, 2.0), 1))
    return Axis(key, name, x, labels, scale, downward, choice, marked)


def _height(place: float, downward: bool) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (place if downward else 1 - place), 1)


def scatters(rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment) -> Sequence[Scatter]:
    """One a hyperparameter; empty where there is nothing to compare."""
    told = _shown(rows, names, experiment)
    if len(told) < 2:
        return ()
    metric = scale_of([row.best for row in told])
    return [_scatter(name, told, metric, experiment) for name in names]


def _scatter(name: str, told: Sequence[TrialRow], metric: Scale, experiment: Experiment) -> Scatter:
    values = [flat(row.trial.hparams).get(name) for row in told]
    across = scale_of(values)
    left, bottom, width, height = 44, PLOT_HEIGHT - 22, PLOT_WIDTH - 56, PLOT_HEIGHT - 36
    dots = [
        Dot(
            round(left + width * across.place(value), 1),
            round(bottom - height * metric.place(row.best), 1),
            _shade(number_, len(told)),
            f"trial {row.trial.id}: {name} {number(value)}, {experiment.metric} {number(row.best)}",
        )
        for number_, (row, value) in enumerate(zip(told, values, strict=True))
    ]
    below = [Label(round(left + width * at, 1), PLOT_HEIGHT - 6, text) for at, text in across.labels]
    beside = [Label(left - 6, round(bottom - height * at, 1), text) for at, text in metric.labels]
    return Scatter(name, list(reversed(dots)), [*below, *beside])


def _shown(rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment) -> Sequence[TrialRow]:
    """Trials with a result, the best first."""
    finite = [row for row in rows if row.best is not None and math.isfinite(row.best)]
    return best_first(finite, experiment)


def _shade(place: int, of: int) -> int:
    return min(SHADES - 1, place * SHADES // max(1, of))


def _in_words(row: TrialRow, names: Sequence[str], experiment: Experiment) -> str:
    values = flat(row.trial.hparams)
    told = ", ".join(f"{name} {number(values.get(name))}" for name in names)
    return f"trial {row.trial.id}: {told}; {experiment.metric} {number(row.best)}"
