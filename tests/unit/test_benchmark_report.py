"""The rows of benchmarks: what they judge, and that the page tells the last run of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.report import Row, Run, Spread, Target


def _run(result: float) -> Run:
    row = Row(
        name="start, median",
        subject=Spread.of([31.0, 30.0, 42.5], "ms"),
        bound_name="the bare program",
        bound=Spread.of([10.0, 9.5, 12.0], "ms"),
        result=result,
        unit="ms more",
        target=Target(at_most=25.0),
    )
    return Run(command="python -m benchmarks start", date="2026-01-02", machine="2 cores", rows=(row,))


@pytest.mark.parametrize(
    ("target", "result", "met"),
    [
        (Target(at_most=3.0), 3.0, True),
        (Target(at_most=3.0), 3.1, False),
        (Target(at_least=0.15), 0.15, True),
        (Target(at_least=0.15), 0.1, False),
    ],
)
def test_a_target_is_met_at_its_limit_and_missed_beyond(target: Target, result: float, met: bool) -> None:
    row = Row(name="x", subject=Spread.one(1.0, "s"), result=result, target=target)
    assert row.met is met
    assert ("**no**" in row.cells()) is not met


def test_a_row_without_a_target_is_not_judged() -> None:
    assert Row(name="x", subject=Spread.one(1.0, "s"), result=2.0).met is None


def test_the_page_shows_the_last_run_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    kept = tmp_path / "benchmarks.json"
    report.save(kept, {"start": _run(30.0)})
    report.save(kept, report.load(kept) | {"start": _run(20.0)})
    page = "# Page\n\n<!-- rows: start -->\nold\n<!-- end -->\n\ntext\n<!-- rows: other -->\nkept\n<!-- end -->\n"
    written = report.page(page, report.load(kept))
    assert (
        "| start, median | 31 ms (30 to 42.5) | the bare program: 10 ms (9.50 to 12) | 20 ms more | ≤ 25 ms more | yes |"
        in written
    )
    assert "old" not in written and written.endswith("text\n<!-- rows: other -->\nkept\n<!-- end -->\n")
    assert report.page(written, report.load(kept)) == written


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    assert report.ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == 3.0


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert (report.percentile(values, 99), report.percentile(values, 50), report.percentile([7.0], 99)) == (
        99.0,
        50.0,
        7.0,
    )
