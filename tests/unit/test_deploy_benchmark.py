"""What the benchmark of `det deploy` reads of Terraform's log and of a trial's."""

from __future__ import annotations

import json

import pytest
from benchmarks.deploy import first_steps, terraform_run

NOON = 1_767_268_800.0  # 2026-01-01, 12:00 UTC


def event(kind: str, second: int) -> str:
    return json.dumps({"type": kind, "@timestamp": f"2026-01-01T12:00:{second:02d}.500000Z"})


def test_terraform_runs_from_its_first_resource_to_its_last() -> None:
    lines = [
        "a word of the provider",
        event("planned_change", 1),
        event("apply_start", 3),
        event("apply_start", 4),
        event("apply_complete", 9),
        event("apply_complete", 30),
        event("outputs", 31),
    ]
    assert terraform_run(lines) == (NOON + 3.5, NOON + 30.5, 2)


def line(second: int, text: str) -> dict[str, str]:
    return {"timestamp": f"2026-01-01T12:00:{second:02d}Z", "message": text}


def test_the_first_step_comes_after_the_queue_and_the_machine() -> None:
    lines = [
        line(1, "INFO: Trial 1 run 1 waits for 1 slot(s) of pool default"),
        line(8, "INFO: Allocation 1.x placed on default-1 (slots 0)"),
        line(10, "INFO: step 1: validation loss 1"),
        line(11, "INFO: step 2: validation loss 0.5"),
    ]
    assert list(first_steps(lines).values()) == [NOON + 1, NOON + 8, NOON + 10]


def test_a_log_without_a_step_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="no line of the trial's log says 'step 1: '"):
        first_steps([line(1, "Trial 1 run 1 waits for 1"), line(8, "Allocation 1.x placed on default-1")])
