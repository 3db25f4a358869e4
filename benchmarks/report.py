"""The rows of a benchmark, each a subject with its bound and target, and the page with the tables.

A benchmark is a module `benchmarks.<name>` with `main() -> list[Row]`, listed in `benchmarks.__main__.BENCHMARKS`. It runs its
subjects in turn (`benchmarks.timing`), so that a drift of the machine's speed affects them equally.

`docs/benchmarks.json` contains the rows of the last run of each benchmark; the tables of `docs/benchmarks.md` are generated from
it, each between two markers `<!-- rows: name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MARKED = re.compile(r"(<!-- rows: (?P<name>[a-z_]+) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and range of a measurement, in `unit`."""

    median: float
    low: float
    high: float
    unit: str

    @classmethod
    def of(cls, values: Sequence[float], unit: str) -> Spread:
        return cls(median=statistics.median(values), low=min(values), high=max(values), unit=unit)

    @classmethod
    def one(cls, value: float, unit: str) -> Spread:
        """A measurement with a single value, such as a percentile."""
        return cls(median=value, low=value, high=value, unit=unit)

    def text(self) -> str:
        if self.low == self.high:
            return f"{number(self.median)} {self.unit}"
        return f"{number(self.median)} {self.unit} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The limit of the result; exactly one of the two is given."""

    at_most: float | None = None
    at_least: float | None = None

    def met(self, result: float) -> bool:
        return (self.at_most is None or result <= self.at_most) and (self.at_least is None or result >= self.at_least)

    def text(self, unit: str) -> str:
        sign, limit = ("≤", self.at_most) if self.at_most is not None else ("≥", self.at_least)
        return f"{sign} {number(limit or 0.0)} {unit}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a table: the subject, the bound or peer of the same run, and the result.

    The target applies to `result`: a ratio (`unit` empty), or a figure in `unit`, such as a difference to the bound. `bound` and
    `result` may be None; `notes` is one short line for the table.
    """

    name: str
    subject: Spread
    bound_name: str = ""
    bound: Spread | None = None
    result: float | None = None
    unit: str = ""
    target: Target | None = None
    notes: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.target is None or self.result is None else self.target.met(self.result)

    def cells(self) -> tuple[str, ...]:
        bound = f"{self.bound_name}: {self.bound.text()}" if self.bound else self.bound_name
        result = "" if self.result is None else f"{number(self.result)} {self.unit}".rstrip()
        target = "" if self.target is None else self.target.text(self.unit)
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return (self.name, self.subject.text(), bound, result, target, met, self.notes)


HEADINGS = ("", "measured: median (range)", "beside it", "result", "target", "met", "notes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a benchmark: command, date, machine and rows."""

    command: str
    date: str
    machine: str
    rows: tuple[Row, ...]

    def text(self) -> str:
        return "\n".join("  |  ".join(cell for cell in row.cells() if cell) for row in self.rows)

    def markdown(self) -> str:
        used = [i for i, heading in enumerate(HEADINGS) if not heading or any(row.cells()[i] for row in self.rows)]
        lines = [
            [HEADINGS[i] for i in used],
            ["---" for _ in used],
            *([row.cells()[i] for i in used] for row in self.rows),
        ]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"`{self.command}`, {self.date}, {self.machine}:\n\n{table}\n"


def number(value: float) -> str:
    """Three significant digits, and no exponent."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def ratio(subject: Sequence[float], bound: Sequence[float]) -> float:
    """The median of the rounds' ratios: each round's subject over the bound of the same round."""
    return statistics.median(own / other for own, other in zip(subject, bound, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: the smallest value that at least `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def load(path: Path) -> dict[str, Run]:
    """The last run of each benchmark; empty if the file is missing."""
    if not path.exists():
        return {}
    return {name: _run(body) for name, body in json.loads(path.read_text()).items()}


def save(path: Path, runs: dict[str, Run]) -> None:
    path.write_text(json.dumps({name: asdict(run) for name, run in sorted(runs.items())}, indent=1) + "\n")


def page(text: str, runs: dict[str, Run]) -> str:
    """The page with the tables of `runs` between their markers; a table without a run does not change."""

    def table(match: re.Match[str]) -> str:
        run = runs.get(match["name"])
        return match[0] if run is None else f"{match[1]}{run.markdown()}{match[3]}"

    return MARKED.sub(table, text)


def _run(body: dict[str, Any]) -> Run:
    return Run(**{**body, "rows": tuple(_row(row) for row in body["rows"])})


def _row(body: dict[str, Any]) -> Row:
    bound, target = body["bound"], body["target"]
    return Row(
        **{
            **body,
            "subject": Spread(**body["subject"]),
            "bound": None if bound is None else Spread(**bound),
            "target": None if target is None else Target(**target),
        }
    )
