"""A search over hyperparameters as pictures: lines through one axis a hyperparameter, and a small plot of each against the metric.

Geometry alone, in units of the picture; templates draw it. So it can be seen without scripts, printed and scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resolute_master.domain.experiment import Experiment
from resolute_web.trials import TrialRow, best_first, flat
from resolute_web.words import number

WIDTH, HEIGHT = 960, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 48, 40, 28
PLOT_WIDTH, PLOT_HEIGHT = 240, 150
MOST_AXES = 8
SHADES = 5
"""Of the metric, from the best fifth to the worst."""


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    x: float
    labels: Sequence[Label]


@dataclass(frozen=True, slots=True)
class Track:
    """One trial. `shade` 0 is the best fifth; the template draws the worst first."""

    trial: int
    points: str
    shade: int
    text: str


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


class Scale:
    """From values to a place between 0 and 1: by size (by order of magnitude where they span some), or words by their order."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._words: list[str] = []
        numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        self._numeric = bool(numbers) and len(numbers) == len(values) and all(map(math.isfinite, numbers))
        if not self._numeric:
            self._words = sorted({number(value) for value in values})
            return
        self._low, self._high = min(numbers), max(numbers)
        self._log = self._low > 0 and self._high / self._low >= 50

    def place(self, value: Any) -> float:
        if not self._numeric:
            steps = len(self._words) - 1
            return self._words.index(number(value)) / steps if steps else 0.5
        low, high, at = self._low, self._high, float(value)
        if self._log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low) if high > low else 0.5

    @property
    def labels(self) -> Sequence[tuple[float, str]]:
        """Place and text of some values."""
        if not self._numeric:
            return [(self.place(word), word) for word in self._words[:12]]
        middle = math.sqrt(self._low * self._high) if self._log else (self._low + self._high) / 2
        return [(self.place(value), number(value, 3)) for value in (self._low, middle, self._high)]


def parallel(rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment) -> Parallel | None:
    """The metric is the last axis, better above. None where there is nothing to compare."""
    told = _told(rows, names, experiment)
    names = names[:MOST_AXES]
    if len(told) < 2 or not names:
        return None
    columns = [[flat(row.trial.hparams).get(name) for row in told] for name in names]
    columns.append([row.best for row in told])
    scales = [Scale(column) for column in columns]
    step = (WIDTH - LEFT - RIGHT) / len(names)
    span = HEIGHT - TOP - BOTTOM
    turned = [False] * len(names) + [experiment.smaller_is_better]

    def y_of(axis: int, place: float) -> float:
        return round(TOP + span * (place if turned[axis] else 1 - place), 1)

    axes = [
        Axis(
            name,
            round(LEFT + index * step, 1),
            [Label(round(LEFT + index * step, 1), y_of(index, at), text) for at, text in scales[index].labels],
        )
        for index, name in enumerate([*names, experiment.metric])
    ]
    tracks = [
        Track(
            row.trial.id,
            " ".join(
                f"{axes[axis].x},{y_of(axis, scales[axis].place(column[number_]))}"
                for axis, column in enumerate(columns)
            ),
            _shade(number_, len(told)),
            _in_words(row, names, experiment),
        )
        for number_, row in enumerate(told)
    ]
    return Parallel(axes, list(reversed(tracks)))


def scatters(rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment) -> Sequence[Scatter]:
    """One a hyperparameter; empty where there is nothing to compare."""
    told = _told(rows, names, experiment)
    if len(told) < 2:
        return ()
    metric = Scale([row.best for row in told])
    return [_scatter(name, told, metric, experiment) for name in names]


def _scatter(name: str, told: Sequence[TrialRow], metric: Scale, experiment: Experiment) -> Scatter:
    values = [flat(row.trial.hparams).get(name) for row in told]
    across = Scale(values)
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


def _told(rows: Sequence[TrialRow], names: Sequence[str], experiment: Experiment) -> Sequence[TrialRow]:
    """Trials with a result, the best first."""
    finite = [row for row in rows if row.best is not None and math.isfinite(row.best)]
    return best_first(finite, experiment)


def _shade(place: int, of: int) -> int:
    return min(SHADES - 1, place * SHADES // max(1, of))


def _in_words(row: TrialRow, names: Sequence[str], experiment: Experiment) -> str:
    values = flat(row.trial.hparams)
    told = ", ".join(f"{name} {number(values.get(name))}" for name in names)
    return f"trial {row.trial.id}: {told}; {experiment.metric} {number(row.best)}"
