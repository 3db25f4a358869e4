"""Compares the event logs of tasks with the state of the cluster: nothing is lost, nothing runs twice.

Reads the event logs, which tasks fsync line by line, and plain values from the API. It uses no code of the cluster.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Entry = Mapping[str, Any]

SAID = re.compile(r"\bevent (\d+) (\w+) (\d+)$")
"""A log line with an entry of the event log (run, event, step), printed before the entry is written."""

KILLED = 137
"""The exit code of a process after SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """The state of one ended trial in the API."""

    trial_id: int
    state: str
    steps: int
    """Number of steps of its script."""
    reported: Mapping[int, int]
    """step -> run of the valid training report."""
    values: Mapping[int, object]
    """step -> the step in that report's metrics."""
    checkpoints: Mapping[str, int]
    """uuid -> steps of every checkpoint."""
    resumed: Mapping[int, int]
    """run -> the step from which it resumed, according to the API."""
    exits: Mapping[int, int | None]
    """run -> the exit code of every attempt that has ended."""
    said: tuple[str, ...] | None = None
    """The lines of its log, if its program prints each entry of its event log (`SAID`)."""
    repeated: frozenset[int] = frozenset()
    """Steps with more than one valid training report."""
    cut: frozenset[int] = frozenset()
    """Runs whose machine was lost with the end of their output and their exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Violations, as sentences: missing or wrong data, and duplicates."""

    lost: list[str]
    doubled: list[str]


def check(event_log: Iterable[Entry], records: Sequence[TrialRecord]) -> list[str]:
    """All violations; empty if there are none."""
    found = judge(event_log, records)
    return [*found.lost, *found.doubled]


def judge(event_log: Iterable[Entry], records: Sequence[TrialRecord]) -> Problems:
    of_trial: dict[int, list[Entry]] = defaultdict(list)
    for entry in event_log:
        of_trial[entry["trial_id"]].append(entry)
    found = Problems(lost=[], doubled=[])
    for record in records:
        runs: dict[int, list[Entry]] = defaultdict(list)
        for entry in of_trial.pop(record.trial_id, []):
            runs[entry["trial_run_id"]].append(entry)
        for problems, rules in ((found.lost, _LOSSES), (found.doubled, _DOUBLES)):
            problems += [f"trial {record.trial_id}: {text}" for rule in rules for text in rule(record, runs)]
    found.lost.extend(f"trial {id_} wrote an event log and is unknown to the API" for id_ in sorted(of_trial))
    return found


def _finished(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    ends = [e for run in runs.values() for e in run if e["event"] == "end" and e.get("why") == "completed"]
    problems = [] if record.state == "COMPLETED" else [f"ended {record.state}"]
    if len(ends) < 1:
        problems.append("no run wrote that it completed")
    if any(e["step"] != record.steps for e in ends):
        problems.append(f"completed at step {[e['step'] for e in ends]} of {record.steps}")
    return problems


def _one_at_a_time(_: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """A run begins after the last entry of the previous one; a run has one process."""
    problems = []
    ordered = sorted(runs)
    for earlier, later in pairwise(ordered):
        last, first = max(e["at"] for e in runs[earlier]), min(e["at"] for e in runs[later])
        if first < last:
            problems.append(f"run {later} began at {first} while run {earlier} still wrote at {last}")
    for number, entries in runs.items():
        if len({(e["pid"], e["rank"]) for e in entries}) > 1:
            problems.append(f"run {number} was run by two processes")
        starts = Counter(e["rank"] for e in entries if e["event"] == "start")
        if any(count > 1 for count in starts.values()):
            problems.append(f"run {number} was started twice")
    return problems


def _steps_in_order(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """Each run starts at the newest saved step in the API, and continues without a gap."""
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
    """A save is written to the event log after the master acknowledged it, so the API must contain it."""
    return [
        f"checkpoint {e['uuid']} of step {e['step']} was acknowledged and is unknown"
        for run in runs.values()
        for e in run
        if e["event"] == "save" and record.checkpoints.get(e["uuid"]) != e["step"]
    ]


def _reports_complete(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """Every step has one valid report, of the last run that did the step."""
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
    false = {step: value for step, value in record.values.items() if value != step}
    if false or set(record.values) != set(record.reported):
        problems.append(f"reports hold values of other steps: {false}")
    return problems


def _exits_known(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """A run that ended by itself has the matching exit code, unless it was killed at its end or its machine was lost."""
    problems = []
    for number in sorted(runs):
        if number not in record.exits:
            problems.append(f"run {number} has no recorded end")
            continue
        code = record.exits[number]
        if code is None and number not in record.cut:
            problems.append(f"run {number} has no exit code although its machine lived on")
        ends = {e["code"] for e in runs[number] if e["event"] == "end"}
        if code is not None and ends and code not in (*ends, KILLED):
            problems.append(f"run {number} ended with {sorted(ends)}, the API says {code}")
        if code == 0 and not ends:
            problems.append(f"run {number} never wrote that it ended, the API says that it did well")
    return problems


def _counted_once(record: TrialRecord, _: Mapping[int, Sequence[Entry]]) -> list[str]:
    return [f"reports of steps {sorted(record.repeated)} count more than once"] if record.repeated else []


def _heard(record: TrialRecord) -> dict[int, list[tuple[str, int]]]:
    """run -> (event, step) of the printed entries, in order."""
    heard: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for line in record.said or ():
        if match := SAID.search(line.rstrip("\n")):
            heard[int(match[1])].append((match[2], int(match[3])))
    return heard


def _said_once(record: TrialRecord, _: Mapping[int, Sequence[Entry]]) -> list[str]:
    return [
        f"the log of run {number} holds {line} {count} times"
        for number, lines in sorted(_heard(record).items())
        for line, count in Counter(lines).items()
        if count > 1
    ]


def _log_complete(record: TrialRecord, runs: Mapping[int, Sequence[Entry]]) -> list[str]:
    """The printed entries of a run are in its log: in order, and up to the end if its machine survived."""
    if record.said is None:
        return []
    heard = _heard(record)
    problems = []
    for number in sorted(runs.keys() | heard.keys()):
        written = [(str(e["event"]), int(e["step"])) for e in runs.get(number, ())]
        said = list(dict.fromkeys(heard.get(number, ())))
        # The last printed entry may be missing in the event log; no other one may.
        if said[: len(written)] != written[: len(said)] or len(said) > len(written) + 1:
            problems.append(f"the log of run {number} is not what it wrote down: {said} for {written}")
        elif len(said) < len(written) and number not in record.cut:
            problems.append(f"the log of run {number} lacks its last lines: {written[len(said) :]}")
    return problems


_LOSSES = (_finished, _steps_in_order, _saves_known, _reports_complete, _exits_known, _log_complete)
_DOUBLES = (_one_at_a_time, _counted_once, _said_once)
