"""Metrics as lines to draw and as rows of a table: from the summaries that are kept as reports come, and from thinned series.

What is read depends on what is shown, never on how much a trial has reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute_master.api.context import ApiContext
from resolute_master.api.reading.series import several_series
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.lifecycle.reports import number
from resolute_master.store.base import MetricQuery
from resolute_master.store.metric_chunks import NO_STEP, NUMBER, Chunk, whole

MOST_POINTS = 1000
"""Most points of one line: about the width of a screen in pixels."""

PLACES = ("epoch", "epochs", "batches")
"""Reported beside metrics: where on the axis a report is, which makes no curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One report of one name."""

    step: int
    at: datetime
    value: float
    epoch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What one name of a group came to. `last` is None where its newest value is no number."""

    group: str
    name: str
    least: float
    most: float
    last: float | None


Summaries = Mapping[tuple[str, str], Summary]
"""By group and name, in order."""


async def summaries_of(api: ApiContext, trial: TrialId) -> Summaries:
    """Summaries of everything that the trial has reported as numbers by step. A name whose type changed has no range and no
    line."""
    return await told_of(api, trial, await api.store.metric_chunks([trial]))


async def told_of(api: ApiContext, trial: TrialId, known: Mapping[tuple[int, str], Sequence[Chunk]]) -> Summaries:
    """The same, of the chunks of its groups."""
    found: dict[tuple[str, str], Summary] = {}
    for (_, group), chunks in sorted(known.items()):
        together = whole(chunks)
        if together is None or together.last_step == NO_STEP:
            continue
        numbers = {name: one for name, one in sorted(together.names.items()) if one.type == NUMBER}
        earlier = await _earlier(api, trial, group, chunks, [name for name, one in numbers.items() if one.last is None])
        for name, one in numbers.items():
            last = number(earlier.get(name) if one.last is None else one.last)
            found[group, name] = Summary(group=group, name=name, least=one.low, most=one.high, last=last)
    return found


async def _earlier(
    api: ApiContext, trial: TrialId, group: str, chunks: Sequence[Chunk], names: Sequence[str]
) -> dict[str, Any]:
    """The last values of names that the newest report lacks: from the reports of the last chunk that has each."""
    found: dict[str, Any] = {}
    for chunk in reversed(chunks):
        wanted = [name for name in names if name not in found and name in chunk.names]
        if not wanted:
            continue
        query = MetricQuery(
            trial=trial, groups=(group,), first_step=chunk.first_step, last_step=chunk.last_step, limit=chunk.reports
        )
        for report in await api.store.ordered_metrics(query):
            found |= {name: report.metrics[name] for name in wanted if name in report.metrics}
    return found


def names_of(told: Iterable[tuple[str, str]], first: str) -> list[str]:
    """Names that have a curve, among pairs of group and name; `first` comes first."""
    names = {name for _, name in told if name not in PLACES}
    return sorted(names, key=lambda name: (name != first, name))


async def line_of(api: ApiContext, trial: TrialId, group: str, name: str, most: int = MOST_POINTS) -> Sequence[Point]:
    """By step, at most a number of points: of each stretch the smallest and the largest, so that a spike of one report is drawn
    however many there are. What is not finite is left out."""
    (line,) = (await lines_of(api, trial, group, [name], most)).values()
    return line


async def lines_of(
    api: ApiContext, trial: TrialId, group: str, names: Sequence[str], most: int = MOST_POINTS
) -> Mapping[str, Sequence[Point]]:
    """The same of several names, by name."""
    found = await several_series(api, trial, group, [(name,) for name in names], most=most)
    return {name: _points(reports, name) for name, reports in zip(names, found, strict=True)}


def _points(reports: Iterable[MetricReport], name: str) -> Sequence[Point]:
    points: list[Point] = []
    for report in reports:
        value = _finite(report.metrics.get(name))
        if value is not None and report.steps_completed is not None:
            epoch = _finite(report.metrics.get("epoch", report.metrics.get("epochs")))
            points.append(Point(step=report.steps_completed, at=report.reported_at, value=value, epoch=epoch))
    return points


def _finite(value: object) -> float | None:
    found = number(value)
    return found if found is not None and math.isfinite(found) else None


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
