"""The method of `docs/adding/a-searcher.md`, as it stands there, under the promises of all methods."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from resolute_master.searcher.events import ExitReason
from resolute_master.searcher.methods import METHODS
from support.searches import SearchRun

PAGE = Path(__file__).resolve().parents[3] / "docs" / "adding" / "a-searcher.md"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> SearchRun:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    made = {**METHODS, "median": lambda searcher, space: names["MedianStop"](space, max_trials=8, at_once=4)}
    monkeypatch.setattr("resolute_master.searcher.methods.METHODS", made)
    return SearchRun({"name": "median"})


def test_the_method_of_the_page_stops_the_worse_half_and_comes_to_its_end(run: SearchRun) -> None:
    first, second, third, _ = run.open
    run.validate(first, 0.1)
    run.validate(second, 0.2)
    assert run.stopped == set()
    run.validate(third, 0.3)
    assert run.stopped == {third}
    assert run.row(third).reason == "rank 3 of 3 at its first validation"
    run.end(third, ExitReason.INVALID_HPARAMS)
    while run.open:
        run.end(run.open[0])
    assert run.search.valid == 8
    assert run.shutdown is not None and run.shutdown.complete
