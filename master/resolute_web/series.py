"""Metrics as lines to draw: of each name the points by their step, thinned so that extremes stay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute_master.domain.metrics import MetricReport
from resolute_master.lifecycle.reports import number

MOST_POINTS = 1000
"""Of one line: about what a screen has columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One report of one name."""

    step: int
    at: datetime
    value: float
    epoch: float | None = None


Lines = Mapping[tuple[str, str], Sequence[Point]]
"""By group and name."""


def lines_of(reports: Iterable[MetricReport]) -> Lines:
    """Numbers of unarchived reports, by their step; what is not finite is left out."""
    found: dict[tuple[str, str], list[Point]] = {}
    for report in reports:
        if report.archived or report.steps_completed is None:
            continue
        epoch = _finite(report.metrics.get("epoch", report.metrics.get("epochs")))
        for name, value in report.metrics.items():
            drawn = _finite(value)
            if drawn is not None:
                point = Point(step=report.steps_completed, at=report.reported_at, value=drawn, epoch=epoch)
                found.setdefault((report.group, name), []).append(point)
    return {key: sorted(points, key=lambda point: point.step) for key, points in sorted(found.items())}


def _finite(value: object) -> float | None:
    found = number(value)
    return found if found is not None and math.isfinite(found) else None


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """At most so many, in order: of each stretch its smallest and its largest, and the ends of the line.

    So a spike of one report is drawn, however many there are.
    """
    if len(points) <= most:
        return points
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(points) - 1}
    for place in range(stretches):
        begin, end = place * len(points) // stretches, (place + 1) * len(points) // stretches
        stretch = range(begin, end)
        kept.add(min(stretch, key=lambda index: points[index].value))
        kept.add(max(stretch, key=lambda index: points[index].value))
    return [points[index] for index in sorted(kept)]


def column_of(
    label: str, points: Sequence[Point], *, begun: datetime, best: bool = False, place: int | None = None
) -> dict[str, Any]:
    """As charts.js reads it: columns of one length; times in seconds since `begun`. `place` chooses the colour."""
    return {
        "label": label,
        "best": best,
        "place": place,
        "step": [point.step for point in points],
        "time": [round((point.at - begun).total_seconds(), 3) for point in points],
        "epoch": [point.epoch for point in points],
        "value": [point.value for point in points],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A line in words."""

    group: str
    name: str
    count: int
    least: float
    most: float
    last: float


def summary(group: str, name: str, points: Sequence[Point]) -> Summary:
    values = [point.value for point in points]
    return Summary(group=group, name=name, count=len(values), least=min(values), most=max(values), last=values[-1])
