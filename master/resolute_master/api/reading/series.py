"""A series of a trial's metrics with as many points as a chart has columns, and its extremes among them.

How long it takes depends on the points and not on the reports: where there are more of these, their chunks name the steps of the
extremes, and only the reports at those steps are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise

from resolute_master.api.context import ApiContext
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.event_loop import yielding
from resolute_master.store.base import MetricQuery
from resolute_master.store.metric_chunks import NUMBER, Chunk, chunk_of, step_of, whole

READ_WHOLE = 4_000
"""Up to this number of reports, or the number of points, reports are read one by one."""

PIECE = 250
"""Reports of a piece of a chunk that reaches out of the range."""


async def series(
    api: ApiContext,
    trial: TrialId,
    group: str,
    names: Sequence[str],
    *,
    most: int,
    first: int | None = None,
    last: int | None = None,
) -> tuple[MetricReport, ...]:
    """At most `most` reports of the group from step `first` to step `last`, by step: those with the smallest and the largest
    value of each name in each of a number of stretches, and the first and the last of all. `most` must be 2 at least.
    """
    (found,) = await several_series(api, trial, group, [names], most=most, first=first, last=last)
    return found


async def several_series(
    api: ApiContext,
    trial: TrialId,
    group: str,
    several: Sequence[Sequence[str]],
    *,
    most: int,
    first: int | None = None,
    last: int | None = None,
) -> list[tuple[MetricReport, ...]]:
    """The reports for each of several lists of names. A group with few reports is read once for all lists."""
    chunks = (await api.store.metric_chunks([trial], [group], first_step=first, last_step=last)).get((trial, group), ())
    known = {name for chunk in chunks for name in chunk.names}
    if sum(chunk.reports for chunk in chunks) <= max(READ_WHOLE, most):
        reports = await _all(api, trial, group, most, first, last) if known else ()
        return await asyncio.to_thread(lambda: [thinned(reports, names, most) for names in several])
    pieces = [piece for chunk in chunks for piece in await _within(api, trial, group, chunk, first, last)]
    found: list[tuple[MetricReport, ...]] = []
    for names in several:
        steps = await asyncio.to_thread(_steps, pieces, names, most) if known & set(names) else ()
        found.append(await api.store.metrics_at(trial, group, steps) if steps else ())
    return found


async def _all(
    api: ApiContext, trial: TrialId, group: str, most: int, first: int | None, last: int | None
) -> tuple[MetricReport, ...]:
    """The reports of a range that has few enough to read each."""
    limit = max(READ_WHOLE, most)
    query = MetricQuery(trial=trial, groups=(group,), first_step=first, last_step=last, limit=limit)
    return await api.store.ordered_metrics(query)


def thinned(reports: Sequence[MetricReport], names: Sequence[str], most: int) -> tuple[MetricReport, ...]:
    """The reports that contain one of the names, by step; at most `most` of them, among them the extremes."""
    having = [report for report in yielding(reports) if any(name in report.metrics for name in names)]
    if len(having) <= most:
        return tuple(having)
    stretches = min(_stretches(names, most), len(having))
    bounds = [number * len(having) // stretches for number in range(stretches + 1)]
    pieces = [chunk_of(having[a:b]) for a, b in yielding(pairwise(bounds)) if b > a]
    steps = _steps(pieces, names, most)
    return tuple(report for report in having if step_of(report) in steps)


async def _within(
    api: ApiContext, trial: TrialId, group: str, chunk: Chunk, first: int | None, last: int | None
) -> list[Chunk]:
    """The chunk, or where it reaches out of the range pieces of its part in it."""
    if (first is None or chunk.first_step >= first) and (last is None or chunk.last_step <= last):
        return [chunk]
    low = chunk.first_step if first is None else max(first, chunk.first_step)
    high = chunk.last_step if last is None else min(last, chunk.last_step)
    query = MetricQuery(trial=trial, groups=(group,), first_step=low, last_step=high, limit=chunk.reports)
    reports = await api.store.ordered_metrics(query)
    return [chunk_of(reports[begin : begin + PIECE]) for begin in yielding(range(0, len(reports), PIECE))]


def _stretches(names: Sequence[str], most: int) -> int:
    """Number of stretches: each gives two points per name, and the ends of the range two more."""
    return max(1, (most - 2) // (2 * len(names)))


def _steps(pieces: Sequence[Chunk], names: Sequence[str], most: int) -> set[int]:
    """At most `most`."""
    if not pieces:
        return set()
    ends = {pieces[0].first_step, pieces[-1].last_step}
    stretches = min(_stretches(names, most), len(pieces))
    bounds = [number * len(pieces) // stretches for number in range(stretches + 1)]
    found: set[int] = set()
    for begin, end in yielding(pairwise(bounds)):
        together = whole(pieces[begin:end])
        if together is not None:
            found |= _extremes(together, names)
    if len(found | ends) > most:  # more names than points: the ends of each, as far as there is room
        found = set(sorted(found)[: max(most - len(ends), 0)])
    if len(found) + len(ends) + len(pieces) <= most:
        found |= {piece.first_step for piece in pieces}
    return found | ends


def _extremes(chunk: Chunk, names: Iterable[str]) -> set[int]:
    told = (chunk.names.get(name) for name in names)
    return {step for one in told if one is not None and one.type == NUMBER for step in (one.low_at, one.high_at)}
