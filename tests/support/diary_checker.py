"""What the tasks wrote down themselves, held against what the cluster says: nothing lost, nothing run twice.

Reads the diaries (fsynced line by line by the tasks) and plain values from the API; knows no code of the cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """What the API says of one trial that has ended."""

    trial_id: int
    state: str
    steps: int
    """How many steps its script has."""
    reported: Mapping[int, int]
    """step -> trial run of the training report that counts."""
    checkpoints: Mapping[str, int]
    """uuid -> steps of every checkpoint."""
    resumed: Mapping[int, int]
    """run -> the step that the API says it resumed from."""


def check(diary: Iterable[Entry], records: Sequence[TrialRecord]) -> list[str]:
    """Every broken promise, in words; empty when there is none."""
    of_trial: dict[int, list[Entry]] = defaultdict(list)
    for entry in diary:
        of_trial[entry["trial_id"]].append(entry)
    problems: list[str] = []
    for record in records:
        entries = of_trial.pop(record.trial_id, [])
        problems += [f"trial {record.trial_id}: {text}" for text in _trial(record, entries)]
    problems += [f"trial {id_} wrote a diary and is unknown to the API" for id_ in sorted(of_trial)]
    return problems


def _trial(record: TrialRecord, entries: Sequence[Entry]) -> list[str]:
    runs: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        runs[entry["trial_run_id"]].append(entry)
    return [
        *_finished(record, runs),
        *_one_at_a_time(runs),
        *_steps_in_order(record, runs),
        *_saves_known(record, runs),
        *_reports_complete(record, runs),
    ]


def _finished(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    ends = [e for run in runs.values() for e in run if e["event"] == "end" and e.get("why") == "completed"]
    problems = [] if record.state == "COMPLETED" else [f"ended {record.state}"]
    if len(ends) < 1:
        problems.append("no run wrote that it completed")
    if any(e["step"] != record.steps for e in ends):
        problems.append(f"completed at step {[e['step'] for e in ends]} of {record.steps}")
    return problems


def _one_at_a_time(runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """A run begins only after the last word of the one before; a run has one process."""
    problems = []
    ordered = sorted(runs)
    for earlier, later in pairwise(ordered):
        last, first = max(e["at"] for e in runs[earlier]), min(e["at"] for e in runs[later])
        if first < last:
            problems.append(f"run {later} began at {first} while run {earlier} still wrote at {last}")
    for number, entries in runs.items():
        if len({(e["pid"], e["rank"]) for e in entries}) > 1:
            problems.append(f"run {number} was run by two processes")
    return problems


def _steps_in_order(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """Each run starts at a step that was saved before, the newest the API knew, and goes on without a gap."""
    problems = []
    saved = {0}
    for number in sorted(runs):
        start = next((e["step"] for e in runs[number] if e["event"] == "start"), None)
        if start is None:
            continue
        if start not in saved | set(record.checkpoints.values()):
            problems.append(f"run {number} resumed from step {start}, which nobody saved")
        if record.resumed.get(number, start) != start:
            problems.append(f"run {number} resumed from step {start}, the API says {record.resumed[number]}")
        newest = max(saved)
        if start < newest:
            problems.append(f"run {number} resumed from step {start} although step {newest} was saved and acknowledged")
        steps = [e["step"] for e in runs[number] if e["event"] == "step"]
        if steps != list(range(start + 1, start + 1 + len(steps))):
            problems.append(f"run {number} did steps {steps} after a start at {start}")
        saved |= {e["step"] for e in runs[number] if e["event"] == "save"}
    return problems


def _saves_known(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """A save is written down after the master acknowledged it, so the API must know it."""
    return [
        f"checkpoint {e['uuid']} of step {e['step']} was acknowledged and is unknown"
        for run in runs.values()
        for e in run
        if e["event"] == "save" and record.checkpoints.get(e["uuid"]) != e["step"]
    ]


def _reports_complete(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """Every step has one report that counts, of the last run that did the step."""
    problems = []
    if sorted(record.reported) != list(range(1, record.steps + 1)):
        missing = sorted(set(range(1, record.steps + 1)) - set(record.reported))
        extra = sorted(set(record.reported) - set(range(1, record.steps + 1)))
        problems.append(f"reports of steps {missing} are missing, of {extra} are too many")
    did: dict[int, int] = {}
    for number in sorted(runs):
        for entry in runs[number]:
            if entry["event"] == "step":
                did[entry["step"]] = number
    wrong = {step: run for step, run in record.reported.items() if did.get(step) != run}
    if wrong:
        problems.append(f"reports count of runs that did not do the step last: {wrong}")
    return problems
