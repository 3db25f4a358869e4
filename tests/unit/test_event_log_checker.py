"""The checker of the kill campaign must be able to fail: each injected fault is found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from support.event_log_checker import TrialRecord, check

RECORD = TrialRecord(
    trial_id=1,
    state="COMPLETED",
    steps=4,
    reported={1: 1, 2: 1, 3: 2, 4: 2},
    values={1: 1, 2: 2, 3: 3, 4: 4},
    checkpoints={"c1": 2, "c2": 4},
    resumed={1: 0, 2: 2},
    exits={1: 137, 2: 0},
    said=(
        "master: placed\n",
        *(f"[time] INFO: event 1 {what}\n" for what in ("start 0", "step 1", "step 2", "save 2", "step 3")),
        *(f"event 2 {what}\n" for what in ("start 2", "step 3", "step 4", "save 4", "end 4")),
    ),
)
LINES = RECORD.said or ()


def entry(event: str, run: int, step: int, at: int, **more: Any) -> dict[str, Any]:
    who = {"trial_id": 1, "trial_run_id": run, "rank": 0, "pid": run}
    return {"event": event, **who, "step": step, "at": f"2026-01-01T00:00:{at:02}Z", **more}


EVENT_LOG = [
    entry("start", 1, 0, 1),
    entry("step", 1, 1, 2),
    entry("step", 1, 2, 3),
    entry("save", 1, 2, 4, uuid="c1"),
    entry("step", 1, 3, 5),
    entry("start", 2, 2, 6),
    entry("step", 2, 3, 7),
    entry("step", 2, 4, 8),
    entry("save", 2, 4, 9, uuid="c2"),
    entry("end", 2, 4, 10, why="completed", code=0),
]


def test_a_true_story_has_no_problems() -> None:
    assert check(EVENT_LOG, [RECORD]) == []


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, said=None),
        # With a machine are lost the lines that no agent had read, and the exit code.
        replace(RECORD, cut=frozenset({1}), exits={1: None, 2: 0}, said=(*LINES[:4], *LINES[6:])),
        # Printed, and killed before it was written down.
        replace(RECORD, said=(*LINES[:6], "event 1 save 3", *LINES[6:])),
        # Killed after its last word.
        replace(RECORD, exits={1: 137, 2: 137}),
    ],
)
def test_what_kills_explain_is_no_problem(record: TrialRecord) -> None:
    assert check(EVENT_LOG, [record]) == []


@pytest.mark.parametrize(
    ("event_log", "record", "found"),
    [
        (EVENT_LOG[:-1], RECORD, "no run wrote that it completed"),
        (EVENT_LOG, replace(RECORD, state="ERROR"), "ended ERROR"),
        ([*EVENT_LOG[:5], entry("step", 1, 4, 7), *EVENT_LOG[5:]], RECORD, "while run 1 still wrote"),
        ([*EVENT_LOG, {**entry("step", 2, 5, 11), "pid": 99}], RECORD, "run by two processes"),
        ([*EVENT_LOG[:6], *EVENT_LOG[7:]], RECORD, r"did steps \[4\] after a start at 2"),
        ([*EVENT_LOG[:5], entry("start", 2, 3, 6), *EVENT_LOG[7:]], RECORD, "step 3, which nobody saved"),
        ([*EVENT_LOG[:5], entry("start", 2, 0, 6), *EVENT_LOG[6:]], RECORD, "although step 2 was saved"),
        (EVENT_LOG, replace(RECORD, checkpoints={"c2": 4}), "c1 of step 2 was acknowledged and is unknown"),
        (EVENT_LOG, replace(RECORD, reported={1: 1, 2: 1, 4: 2}), r"reports of steps \[3\] are missing"),
        (EVENT_LOG, replace(RECORD, reported={1: 1, 2: 1, 3: 1, 4: 2}), r"did not do the step last: \{3: 1\}"),
        (EVENT_LOG, replace(RECORD, resumed={2: 1}), "the API says 1"),
        ([*EVENT_LOG, {**EVENT_LOG[0], "trial_id": 7}], RECORD, "trial 7 wrote an event log and is unknown"),
        ([EVENT_LOG[0], *EVENT_LOG], RECORD, "run 1 was started twice"),
        (EVENT_LOG, replace(RECORD, values={1: 1, 2: 2, 3: 2, 4: 4}), r"values of other steps: \{3: 2\}"),
        (EVENT_LOG, replace(RECORD, values={1: 1, 2: 2, 4: 4}), "values of other steps"),
        (EVENT_LOG, replace(RECORD, repeated=frozenset({3})), r"steps \[3\] count more than once"),
        (EVENT_LOG, replace(RECORD, exits={2: 0}), "run 1 has no recorded end"),
        (EVENT_LOG, replace(RECORD, exits={1: None, 2: 0}), "run 1 has no exit code although its machine lived on"),
        (EVENT_LOG, replace(RECORD, exits={1: 137, 2: 3}), r"run 2 ended with \[0\], the API says 3"),
        (EVENT_LOG, replace(RECORD, exits={1: 0, 2: 0}), "run 1 never wrote that it ended"),
        (EVENT_LOG, replace(RECORD, said=LINES[:-1]), r"the log of run 2 lacks its last lines: \[\('end', 4\)\]"),
        (EVENT_LOG, replace(RECORD, said=(*LINES[:3], *LINES[2:])), r"the log of run 1 holds \('step', 1\) 2 times"),
        (EVENT_LOG, replace(RECORD, said=(*LINES[:3], *LINES[4:])), "the log of run 1 is not what it wrote down"),
        (EVENT_LOG, replace(RECORD, said=(*LINES, "event 2 step 5\n", "event 2 step 6\n")), "the log of run 2 is not"),
        (EVENT_LOG, replace(RECORD, said=(*LINES, "event 3 start 4\n", "event 3 step 5\n")), "the log of run 3 is not"),
        (EVENT_LOG, replace(RECORD, cut=frozenset({1}), said=(*LINES[:3], *LINES[4:])), "the log of run 1 is not what"),
    ],
)
def test_each_broken_promise_is_found(event_log: list[dict[str, Any]], record: TrialRecord, found: str) -> None:
    assert any(re.search(found, problem) for problem in check(event_log, [record]))
