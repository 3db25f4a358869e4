"""Summaries of metric reports, updated with each report: for each group of a trial at most a few hundred chunks.

A chunk summarises each name over consecutive steps. Adjacent chunks can be merged: a group's summary is that of its chunks. Each
records the steps of its extremes, for charts of series with more points than the chart.

Pure: reports in, chunks out. A report that continues the last chunk extends it; otherwise the surrounding chunks are rebuilt from
their rows, which are about as many as a chunk holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from resolute_master.domain.json_text import canonical
from resolute_master.domain.metrics import MetricReport

SMALLEST_CHUNK = 1_000
"""Reports of a chunk at least: to read them again takes some milliseconds."""

LARGEST_SHARE = 128
"""A chunk holds up to this part of what came before it, so that the number of chunks grows with the logarithm of the reports."""

NUMBER, TEXT = "number", "string"
NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}
_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")

_PLAIN = {float, int}

NO_STEP = -1
"""The position of a report without a step count: before all others."""


class NameSummary(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one name came to. The numbers are there for the type `number` only; a name of several types is a `string`.

    NaN is no extreme where there are other numbers. `last` is None where the newest report lacks the name.
    """

    type: str
    last: Any
    count: int = 0
    low: float = math.nan
    low_at: int = NO_STEP
    """The first step with this value."""
    high: float = math.nan
    high_at: int = NO_STEP
    total: float = 0.0


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Consecutive reports of a group, from `first_step` up to `last_step`. Without `reports` there is none.

    `preceding` is the number of earlier reports of the group when the chunk was started: it determines its maximum size.
    """

    first_step: int
    last_step: int
    reports: int
    preceding: int = 0
    names: Mapping[str, NameSummary]

    @property
    def full(self) -> bool:
        return self.reports >= capacity(self.preceding)


def capacity(preceding: int) -> int:
    """Reports of a chunk, from an offset."""
    return max(SMALLEST_CHUNK, preceding // LARGEST_SHARE)


def step_of(report: MetricReport) -> int:
    return NO_STEP if report.steps_completed is None else report.steps_completed


# ---------------------------------------------------------------------------------------------------------- building


def chunk_of(reports: Sequence[MetricReport], preceding: int = 0) -> Chunk:
    """One chunk of reports in the order of their steps; there must be one at least."""
    names = reports[0].metrics.keys()
    alike = all(report.metrics.keys() == names for report in reports)
    return Chunk(
        first_step=step_of(reports[0]),
        last_step=step_of(reports[-1]),
        reports=len(reports),
        preceding=preceding,
        names=_columns(reports, names) if alike else _mixed(reports),
    )


def chunks_of(reports: Sequence[MetricReport], preceding: int = 0) -> list[Chunk]:
    """As many as are needed; reports of one step stay together."""
    return extended(None, reports, preceding)


def extended(last: Chunk | None, reports: Sequence[MetricReport], preceding: int = 0) -> list[Chunk]:
    """What becomes of the `last` chunk of a group when these reports follow it, and the chunks after it.

    Without a last one the first chunk has `preceding` reports before it. The steps of the reports must not fall, nor be below those
    of the last chunk; unless it is the first of the list, the last chunk has not changed.
    """
    made: list[Chunk] = []
    left = list(reports)
    if last is not None:
        preceding = last.preceding + last.reports
        room = capacity(last.preceding) - last.reports
        taken = _whole_steps(left, max(room, 0))
        if taken:
            made.append(merged(last, chunk_of(left[:taken])))
            preceding = made[0].preceding + made[0].reports
        left = left[taken:]
    while left:
        taken = _whole_steps(left, capacity(preceding))
        made.append(chunk_of(left[:taken], preceding))
        preceding += taken
        left = left[taken:]
    return made


def _whole_steps(reports: Sequence[MetricReport], at_most: int) -> int:
    """How many of them make a chunk of about that size, so that the next chunk begins with another step."""
    taken = min(at_most, len(reports))
    while 0 < taken < len(reports) and step_of(reports[taken]) == step_of(reports[taken - 1]):
        taken += 1
    return taken


def in_order(last: Chunk | None, reports: Sequence[MetricReport]) -> bool:
    """Whether the reports of one group follow the last chunk and each other, each at a step of its own."""
    before = NO_STEP if last is None else last.last_step
    for report in reports:
        if report.steps_completed is None or report.steps_completed <= before:
            return False
        before = report.steps_completed
    return True


def by_group(reports: Iterable[MetricReport]) -> dict[tuple[int, str], list[MetricReport]]:
    """Reports of one trial and group, in their order."""
    found: dict[tuple[int, str], list[MetricReport]] = {}
    for key, following in groupby(reports, lambda report: (report.trial_id, report.group)):
        found.setdefault(key, []).extend(following)
    return found


# ----------------------------------------------------------------------------------------------------------- merging


def merged(earlier: Chunk, later: Chunk) -> Chunk:
    """Both as one; the later one follows the earlier one."""
    names = {name: _absent(one) for name, one in earlier.names.items() if name not in later.names}
    for name, one in later.names.items():
        before = earlier.names.get(name)
        names[name] = one if before is None else _merged(before, one)
    return Chunk(
        first_step=earlier.first_step,
        last_step=later.last_step,
        reports=earlier.reports + later.reports,
        preceding=earlier.preceding,
        names=names,
    )


def whole(chunks: Sequence[Chunk]) -> Chunk | None:
    """All chunks of a group, in their order, as one."""
    if len(chunks) < 2:
        return chunks[0] if chunks else None
    middle = len(chunks) // 2
    left, right = whole(chunks[:middle]), whole(chunks[middle:])
    assert left is not None and right is not None
    return merged(left, right)


def _absent(one: NameSummary) -> NameSummary:
    return msgspec.structs.replace(one, last=None)


def _merged(before: NameSummary, after: NameSummary) -> NameSummary:
    if before.type != after.type or before.type != NUMBER:
        return NameSummary(type=before.type if before.type == after.type else TEXT, last=after.last)
    low, high = before, before
    if math.isnan(before.low) or after.low < before.low:
        low = after
    if math.isnan(before.high) or after.high > before.high:
        high = after
    return NameSummary(
        type=NUMBER,
        last=after.last,
        count=before.count + after.count,
        low=low.low,
        low_at=low.low_at,
        high=high.high,
        high_at=high.high_at,
        total=before.total + after.total,
    )


# ------------------------------------------------------------------------------------------------------------ values


def type_of(value: Any) -> str:
    """The contract's name of a value's type. Times are `date`; the words for what JSON cannot spell are numbers."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return NUMBER
    if isinstance(value, str):
        if value.lower() in NOT_FINITE:
            return NUMBER
        return "date" if _TIME.match(value) else TEXT
    return "array" if isinstance(value, list | tuple) else "object"


def number_of(value: Any) -> float | None:
    """None for what is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return NOT_FINITE.get(value.lower()) if isinstance(value, str) else None


def _columns(reports: Sequence[MetricReport], names: Iterable[str]) -> dict[str, NameSummary]:
    """Summaries of reports that all have the same names, computed a column at a time, which is fast for columns of plain
    numbers."""
    found: dict[str, NameSummary] = {}
    for name in names:
        column = [report.metrics[name] for report in reports]
        found[name] = _of_numbers(column, reports) or _of_values(zip(column, reports, strict=True), column[-1])
    return found


def _of_numbers(column: Sequence[Any], reports: Sequence[MetricReport]) -> NameSummary | None:
    """None where there is anything else than numbers, or one that is not finite."""
    if not set(map(type, column)) <= _PLAIN:
        return None
    try:
        total = float(sum(column))
    except OverflowError:
        return None
    if not math.isfinite(total):
        return None
    low, high = min(column), max(column)
    return NameSummary(
        type=NUMBER,
        last=column[-1],
        count=len(column),
        low=float(low),
        low_at=step_of(reports[column.index(low)]),
        high=float(high),
        high_at=step_of(reports[column.index(high)]),
        total=total,
    )


def _mixed(reports: Sequence[MetricReport]) -> dict[str, NameSummary]:
    columns: dict[str, list[tuple[Any, MetricReport]]] = {}
    for report in reports:
        for name, value in report.metrics.items():
            columns.setdefault(name, []).append((value, report))
    newest = reports[-1].metrics
    return {name: _of_values(column, newest.get(name)) for name, column in columns.items()}


def _of_values(column: Iterable[tuple[Any, MetricReport]], last: Any) -> NameSummary:
    found: NameSummary | None = None
    for value, report in column:
        one = _of_value(value, step_of(report))
        found = one if found is None else _merged(found, one)
    assert found is not None
    return msgspec.structs.replace(found, last=last)


def _of_value(value: Any, step: int) -> NameSummary:
    kind = type_of(value)
    number = number_of(value) if kind == NUMBER else None
    if number is None:
        return NameSummary(type=kind, last=value)
    return NameSummary(
        type=NUMBER, last=value, count=1, low=number, low_at=step, high=number, high_at=step, total=number
    )


# -------------------------------------------------------------------------------------------------------------- text


def to_text(names: Mapping[str, NameSummary]) -> str:
    """The names of a chunk as JSON: by name its type and last value, and for numbers what they came to."""
    plain = {
        name: [one.type, one.last]
        if one.type != NUMBER
        else [one.type, one.last, one.count, one.low, one.low_at, one.high, one.high_at, one.total]
        for name, one in names.items()
    }
    return canonical(plain).decode()


def from_text(text: str | bytes) -> dict[str, NameSummary]:
    """The reverse of `to_text`."""
    return {name: _read(row) for name, row in msgspec.json.decode(text).items()}


def _read(row: Sequence[Any]) -> NameSummary:
    if row[0] != NUMBER:
        return NameSummary(type=row[0], last=row[1])
    _, last, count, low, low_at, high, high_at, total = row
    return NameSummary(
        type=NUMBER,
        last=last,
        count=count,
        low=float(low),
        low_at=low_at,
        high=float(high),
        high_at=high_at,
        total=float(total),
    )


def names_in(bodies: Iterable[tuple[str, str | bytes]]) -> tuple[tuple[str, str, str], ...]:
    """Group, name and type of all names of these texts of chunks; each once, a name of several types as text."""
    found: dict[tuple[str, str], str] = {}
    for group, body in bodies:
        for name, row in msgspec.json.decode(body).items():
            kind = found.setdefault((group, name), row[0])
            if kind != row[0]:
                found[group, name] = TEXT
    return tuple((group, name, kind) for (group, name), kind in sorted(found.items()))
