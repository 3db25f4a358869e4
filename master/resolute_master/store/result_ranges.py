"""Ranges of what the best trials of experiments reached, by the columns of a search: for tables that colour numbers by size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from resolute_master.store.metric_chunks import NUMBER, Chunk, NameSummary, from_text, number_of, whole
from resolute_master.store.search_filter import Statistic

SEARCHER_METRIC = "searcherMetricsVal"

Ranges = Mapping[str, tuple[float, float]]
"""By column the smallest and the largest finite value."""

ChunkRow = tuple[int, str, str | bytes]
"""Trial, group and text of a chunk."""


def ranges_of(rows: Iterable[ChunkRow], searcher_metric: tuple[float, float] | None) -> Ranges:
    """`rows` are ordered by trial, group and first step. The columns are named as `search_filter` does: `GROUP.METRIC.min`."""
    found: dict[str, tuple[float, float]] = {} if searcher_metric is None else {SEARCHER_METRIC: searcher_metric}
    for (_, group), chunks in groupby(rows, lambda row: row[:2]):
        together = whole([_chunk(text) for _, _, text in chunks])
        for name, one in ({} if together is None else together.names).items():
            for statistic, value in _values(one):
                column = f"{group}.{name}.{statistic}"
                low, high = found.get(column, (value, value))
                found[column] = min(low, value), max(high, value)
    return dict(sorted(found.items()))


def _chunk(text: str | bytes) -> Chunk:
    return Chunk(first_step=0, last_step=0, reports=0, names=from_text(text))


def _values(one: NameSummary) -> Iterator[tuple[Statistic, float]]:
    """As the search compares them: the last value also of a name that was text before."""
    values = {Statistic.LAST: number_of(one.last)}
    if one.type == NUMBER:
        values |= {Statistic.MIN: one.low, Statistic.MAX: one.high, Statistic.MEAN: one.total / one.count}
    return ((statistic, value) for statistic, value in values.items() if value is not None and math.isfinite(value))
