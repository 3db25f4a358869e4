"""The load of `benchmarks.load`, small: every phase does what it says, and nothing is refused or lost on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.load import Load, measure, rows

SMALL = Load(agents=12, slots=2, jobs=40, task_s=4.0, report_s=1.0, seconds=4.0)


@pytest.mark.parametrize(
    "database",
    [
        pytest.param("sqlite", marks=pytest.mark.nightly),
        pytest.param("postgres", marks=[pytest.mark.needs("postgres"), pytest.mark.nightly]),
    ],
)
def test_a_small_load_is_borne_through_a_restart_and_the_loss_of_all_machines(tmp_path: Path, database: str) -> None:
    phases = measure(replace(SMALL, database=database), tmp_path, {"steady", "restart"})
    assert set(phases) == {"join", "steady", "restart"}
    clients = json.loads((tmp_path / "clients.json").read_text())
    assert clients["connected"] == SMALL.agents
    assert clients["ended"] > 0 and clients["submitted"] > 0 and clients["reports"] > 0
    assert not [name for name in clients if name.startswith("refused")], clients
    assert phases["steady"].cycles_ms and phases["steady"].commands
    assert {row.name for row in rows(SMALL, phases)} >= {"cycle of the engine, p99", "restart: cycle"}
    log = (tmp_path / "master.log").read_text()
    assert " ERROR " not in log and "Traceback" not in log, log[-3000:]
