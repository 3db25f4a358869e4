"""The checker of the kill campaign must be able to fail: each broken promise is planted and found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from support.diary_checker import TrialRecord, check

RECORD = TrialRecord(
    trial_id=1,
    state="COMPLETED",
    steps=4,
    reported={1: 1, 2: 1, 3: 2, 4: 2},
    checkpoints={"c1": 2, "c2": 4},
    resumed={1: 0, 2: 2},
)


def entry(event: str, run: int, step: int, at: int, **more: Any) -> dict[str, Any]:
    who = {"trial_id": 1, "trial_run_id": run, "rank": 0, "pid": run}
    return {"event": event, **who, "step": step, "at": f"2026-01-01T00:00:{at:02}Z", **more}


DIARY = [
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
    assert check(DIARY, [RECORD]) == []


@pytest.mark.parametrize(
    ("diary", "record", "found"),
    [
        (DIARY[:-1], RECORD, "no run wrote that it completed"),
        (DIARY, replace(RECORD, state="ERROR"), "ended ERROR"),
        ([*DIARY[:5], entry("step", 1, 4, 7), *DIARY[5:]], RECORD, "while run 1 still wrote"),
        ([*DIARY, {**entry("step", 2, 5, 11), "pid": 99}], RECORD, "run by two processes"),
        ([*DIARY[:6], *DIARY[7:]], RECORD, r"did steps \[4\] after a start at 2"),
        ([*DIARY[:5], entry("start", 2, 3, 6), *DIARY[7:]], RECORD, "step 3, which nobody saved"),
        ([*DIARY[:5], entry("start", 2, 0, 6), *DIARY[6:]], RECORD, "although step 2 was saved"),
        (DIARY, replace(RECORD, checkpoints={"c2": 4}), "c1 of step 2 was acknowledged and is unknown"),
        (DIARY, replace(RECORD, reported={1: 1, 2: 1, 4: 2}), r"reports of steps \[3\] are missing"),
        (DIARY, replace(RECORD, reported={1: 1, 2: 1, 3: 1, 4: 2}), r"did not do the step last: \{3: 1\}"),
        (DIARY, replace(RECORD, resumed={2: 1}), "the API says 1"),
        ([*DIARY, {**DIARY[0], "trial_id": 7}], RECORD, "trial 7 wrote a diary and is unknown"),
    ],
)
def test_each_broken_promise_is_found(diary: list[dict[str, Any]], record: TrialRecord, found: str) -> None:
    assert any(re.search(found, problem) for problem in check(diary, [record]))
