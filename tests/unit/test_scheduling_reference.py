"""Whatever docs/scheduling.md names as what holds a rule is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_all_that_holds_a_rule_exists() -> None:
    page = (ROOT / "docs" / "scheduling.md").read_text()
    tables = [block.splitlines() for block in page.split("\n\n") if block.splitlines()[0].endswith("| held by |")]
    last_cells = "\n".join(row.rsplit("|", 2)[1] for table in tables for row in table)
    named = {*re.findall(r"`([\w.]+)`", last_cells), *re.findall(r"`(?:\w+/)*(test_[\w.]+)`", page)}
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "master" / "resolute_sim").rglob("*.py")]
    there = {path.name for path in files} | {n for path in files for n in re.findall(r"def (\w+)\(", path.read_text())}
    assert len(named) > 50 and named <= there, sorted(named - there)
