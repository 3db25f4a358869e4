"""Records of a trial's failures, and the sentences that describe them."""

from __future__ import annotations

import re

from resolute.wire.agent_link import MAX_ERROR_CHARACTERS
from resolute_master.domain.allocation import AllocationExit
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import TrialId
from resolute_master.domain.trial import Failure, Trial

_CHANGING = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
"""Memory addresses and ids of runs, which differ in all failures."""
_NUMBER = re.compile(r"\d+")

_HINTS = (
    (
        r"ModuleNotFoundError: No module named '([\w.]+)'",
        r"'\1' is not there where tasks run: install it in the environment or image of the tasks, or, if it is a file of yours, "
        "send the directory that holds it (det experiment create CONFIG DIRECTORY, or --include)",
    ),
    (
        r"(?:can't open file|No such file or directory:?) '?([^']+)'?",
        "the file is not among what was sent: name the directory that holds it (det experiment create CONFIG DIRECTORY), and look "
        "into .detignore",
    ),
    (
        r"cannot run '([^']+)'",
        r"the entrypoint names a program that is not there where tasks run: install '\1' there, or correct the entrypoint",
    ),
    (
        r"(?i)out of memory|MemoryError",
        "the task needs more memory than its machine has: make the batch or the model smaller, or request other slots",
    ),
    (r"(?i)No space left on device", "the disk of the machine is full: see which checkpoints and data may go"),
    (
        r"(?i)address already in use",
        "another program of the machine uses the port: read the port from the environment, as docs/distributed.md shows",
    ),
)
"""Probable causes of errors; the first that matches counts."""

_KILLED_CODES = (-9, 137)


def next_failure(before: Failure | None, exit_: AllocationExit) -> Failure:
    """The failure, with the number of times in a row that it was the same."""
    failure = Failure(reason=exit_.reason, error=exit_.error[-MAX_ERROR_CHARACTERS:], code=exit_.code)
    if before is not None and _alike(before) == _alike(failure):
        failure = replace(failure, times=before.times + 1)
    return failure


def _alike(failure: Failure) -> tuple[int | None, str, str]:
    """A key that is equal for failures that count as the same: without memory addresses, ids, and numbers in the message."""
    *frames, message = _CHANGING.sub("#", failure.error).split("\n")
    reason = "" if failure.code is not None else failure.reason
    return failure.code, reason, "\n".join((*frames, _NUMBER.sub("#", message)))


def summary(failure: Failure) -> str:
    """One line: the reason, and the error's own line."""
    error = failure.error.rsplit("\n", 1)[-1].strip()
    return f"{failure.reason}: {error}" if error else failure.reason


def hint(failure: Failure) -> str:
    """The probable cause of a failure and the remedy; "" if unknown."""
    message = failure.error.rsplit("\n", 1)[-1]
    for pattern, text in _HINTS:
        if found := re.search(pattern, message):
            return found.expand(text)
    if failure.code in _KILLED_CODES:
        return (
            "the program was killed: most often its machine had too little memory; make the batch or the model smaller, or ask for "
            "other slots"
        )
    if failure.times > 1:
        return "a restart meets the same error again: it is more likely in the code or its configuration than in the machine"
    return ""


def end_of_experiment(experiment: Experiment, trials: tuple[Trial, ...], failed: Trial | None) -> str:
    """The end of the log of an experiment in state ERROR. The lines after the first are the error of `failed`."""
    count = sum(1 for trial in trials if trial.failure is not None)
    whose = f"trial {failed.id} failed" if failed is not None else "no trial could continue"
    if len(trials) > 1:
        whose = f"{count} of {len(trials)} trials failed" + (f", trial {failed.id} last" if failed is not None else "")
    lines = [f"Experiment {experiment.id} ended as ERROR: {whose}"]
    if failed is not None and failed.failure is not None:
        lines[0] += f": {failed.failure.reason}{times_text(failed.failure)}"
        lines += [f"  {line}" for line in failed.failure.error.split("\n") if line]
        if text := hint(failed.failure):
            lines.append(f"  Hint: {text}")
    elif experiment.shutdown_reason:
        lines[0] += f": {experiment.shutdown_reason}"
    return "\n".join(lines)


def times_text(failure: Failure) -> str:
    return f", {failure.times} times in a row with the same error" if failure.times > 1 else ""


def last_failed(trials: tuple[Trial, ...]) -> Trial | None:
    """The failed trial that ended last; None without a failed trial."""
    failed = [trial for trial in trials if trial.failure is not None and trial.ended_at is not None]
    return max(failed, key=lambda trial: (trial.ended_at, trial.id), default=None)


def shown_to(trials: tuple[Trial, ...], failed: Trial | None) -> tuple[Trial, ...]:
    """The trials whose logs report the end of the experiment: the first trial, which users follow, and the failed one."""
    first = min(trials, key=lambda trial: trial.id, default=None)
    chosen: dict[TrialId, Trial] = {trial.id: trial for trial in (first, failed) if trial is not None}
    return tuple(chosen.values())
