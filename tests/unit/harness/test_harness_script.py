"""The language of scripted trials, and the event log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.errors import InvalidInput
from resolute.testing.event_log import EventLog, read_event_log
from resolute.testing.script import (
    Exit,
    Fault,
    Log,
    Save,
    Script,
    Sleep,
    Steps,
    Validate,
    WaitForFile,
    WaitForPreemption,
    parse_script,
)


def test_every_sentence() -> None:
    script = parse_script(
        [
            "report 10 every 0.05s",
            "Step 3  every 50ms",
            "report 2",
            "sleep 2m",
            "log 100 lines",
            "checkpoint",
            "validate",
            "wait for preemption",
            "wait for /shared/Go",
            "exit 3",
            "checkpoint every 5",
            "validate every 7",
            "exit 3 at step 7 on run 1 on rank 0",
            "die at step 8 on run 2",
            "die with signal 15 at step 9",
            "hang at step 10",
            "exit 5 on preemption on run 4",
            "ignore preemption",
            "",
        ]
    )
    assert script == Script(
        commands=(
            Steps(count=10, every_s=0.05, report=True),
            Steps(count=3, every_s=0.05, report=False),
            Steps(count=2, every_s=0.0, report=True),
            Sleep(seconds=120.0),
            Log(lines=100),
            Save(),
            Validate(),
            WaitForPreemption(),
            WaitForFile(path="/shared/Go"),
            Exit(code=3),
        ),
        faults=(
            Fault(step=7, run=1, rank=0, code=3),
            Fault(step=8, run=2, rank=None, signal=9),
            Fault(step=9, run=None, rank=None, signal=15),
            Fault(step=10, run=None, rank=None, hang=True),
        ),
        checkpoint_every=5,
        validate_every=7,
        ignore_preemption=True,
        fail_on_preemption=(5, 4),
    )
    assert script.total_steps == 15


def test_one_text_is_cut_at_semicolons() -> None:
    assert parse_script("report 1; checkpoint") == parse_script(["report 1", "checkpoint"])


@pytest.mark.parametrize("script", [["report ten"], "dance", ["checkpoint every 0"], [3], 7, {"report": 1}])
def test_what_is_not_understood_is_quoted(script: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_script(script)
    assert str(script if not isinstance(script, list) else script[0]) in str(error.value)


def test_faults_apply_to_their_step_run_and_rank() -> None:
    fault = Fault(step=7, run=1, rank=None, code=3)
    assert fault.applies(step=7, run=1, rank=4)
    assert not fault.applies(step=7, run=2, rank=0)
    assert not fault.applies(step=6, run=1, rank=0)


def test_an_event_log_keeps_whole_lines_only(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    identity = {"allocation_id": "3.task.1", "rank": 0}
    event_log = EventLog(f"{tmp_path}/event_log/", clock=clock, identity=identity)
    event_log.write("start", step=0)
    clock.advance(1.5)
    event_log.write("save", step=4, uuid="c1")
    event_log.close()
    file = tmp_path / "event_log" / "3.task.1.rank-0.jsonl"
    with open(file, "a") as cut_short:
        cut_short.write('{"event": "st')
    first, second = read_event_log(tmp_path / "event_log")
    assert (first["event"], first["step"], second["uuid"]) == ("start", 0, "c1")
    assert second["at"] == "2026-01-01T00:00:01.500000Z" and second["allocation_id"] == "3.task.1"
    assert read_event_log(file) == [first, second]
