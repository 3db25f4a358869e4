"""The language of scripted trials, parsed into frozen values.

A script is a list of sentences. *Commands* run one after the other:

    report 10 every 0.05s      ten steps, each reporting training metrics
    step 10 every 50ms         ten steps without reports
    sleep 1s                   do nothing, but watch for preemption
    log 10000 lines            numbered lines on stdout
    checkpoint                 save now
    validate                   report validation metrics now
    wait for preemption        until the run is preempted
    wait for /shared/go        until there is such a file; watches for preemption meanwhile
    exit 3                     end at once with that code

*Rules* apply to the whole run, at any place in the script:

    checkpoint every 5         save after each fifth step
    validate every 10
    exit 3 at step 7           after step 7 is done; also: on run 1, on rank 0
    die at step 7 on run 1     killed by signal 9 ("die with signal 15 at step 7")
    hang at step 7             never answer again
    exit 5 on preemption       acknowledge the preemption, then fail instead of saving
    ignore preemption
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from resolute.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    count: int
    every_s: float
    report: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Validate:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForPreemption:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForFile:
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    code: int


Command = Steps | Sleep | Log | Save | Validate | WaitForPreemption | WaitForFile | Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong after a step. `run` and `rank` None mean any; exactly one of `code`, `signal`, `hang` is set."""

    step: int
    run: int | None
    rank: int | None
    code: int | None = None
    signal: int | None = None
    hang: bool = False

    def applies(self, *, step: int, run: int, rank: int) -> bool:
        return self.step == step and self.run in (None, run) and self.rank in (None, rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A whole script. Periods are in steps, 0 for never."""

    commands: tuple[Command, ...]
    faults: tuple[Fault, ...] = ()
    checkpoint_every: int = 0
    validate_every: int = 0
    ignore_preemption: bool = False
    fail_on_preemption: tuple[int, int | None] | None = None
    """(exit code, run or None for any)"""

    @property
    def total_steps(self) -> int:
        return sum(command.count for command in self.commands if isinstance(command, Steps))


_DURATION = r"(\d+(?:\.\d+)?)\s*(ms|s|m)?"
_WHERE = r"(?:\s+on run (\d+))?(?:\s+on rank (\d+))?"
_STEPS = re.compile(rf"(report|step) (\d+)(?: every {_DURATION})?")
_SLEEP = re.compile(rf"sleep {_DURATION}")
_LOG = re.compile(r"log (\d+) lines?")
_WAIT_FOR_FILE = re.compile(r"wait for (/.+)", re.IGNORECASE)
_EXIT = re.compile(r"exit (\d+)")
_PERIOD = re.compile(r"(checkpoint|validate) every (\d+)")
_EXIT_AT = re.compile(rf"exit (\d+) at step (\d+){_WHERE}")
_DIE_AT = re.compile(rf"die(?: with signal (\d+))? at step (\d+){_WHERE}")
_HANG_AT = re.compile(rf"hang at step (\d+){_WHERE}")
_EXIT_ON_PREEMPTION = re.compile(r"exit (\d+) on preemption(?: on run (\d+))?")


def parse_script(sentences: Any) -> Script:
    """A list of sentences, or one text with sentences separated by `;`. Raises `InvalidInput` quoting what is wrong."""
    if isinstance(sentences, str):
        sentences = sentences.split(";")
    if not isinstance(sentences, Sequence) or not all(isinstance(sentence, str) for sentence in sentences):
        raise InvalidInput(f"a script is a list of sentences, or one text with ';' between them, not {sentences!r}")
    commands: list[Command] = []
    faults: list[Fault] = []
    rules: dict[str, Any] = {}
    for raw in sentences:
        sentence = " ".join(raw.lower().split())
        if not sentence:
            continue
        command = _wait_for_file(raw) or _command(sentence)
        fault = _fault(sentence) if command is None else None
        if command is not None:
            commands.append(command)
        elif fault is not None:
            faults.append(fault)
        else:
            rules.update(_rule(sentence))
    return Script(commands=tuple(commands), faults=tuple(faults), **rules)


def _wait_for_file(raw: str) -> WaitForFile | None:
    """Its path is taken as it is written, capital letters and all."""
    match = _WAIT_FOR_FILE.fullmatch(raw.strip())
    return WaitForFile(path=match[1]) if match else None


def _command(sentence: str) -> Command | None:
    if sentence == "checkpoint":
        return Save()
    if sentence == "validate":
        return Validate()
    if sentence == "wait for preemption":
        return WaitForPreemption()
    if match := _STEPS.fullmatch(sentence):
        every_s = _seconds(match[3], match[4]) if match[3] else 0.0
        return Steps(count=int(match[2]), every_s=every_s, report=match[1] == "report")
    if match := _SLEEP.fullmatch(sentence):
        return Sleep(seconds=_seconds(match[1], match[2]))
    if match := _LOG.fullmatch(sentence):
        return Log(lines=int(match[1]))
    if match := _EXIT.fullmatch(sentence):
        return Exit(code=int(match[1]))
    return None


def _fault(sentence: str) -> Fault | None:
    if match := _EXIT_AT.fullmatch(sentence):
        return Fault(code=int(match[1]), step=int(match[2]), run=_optional(match[3]), rank=_optional(match[4]))
    if match := _DIE_AT.fullmatch(sentence):
        number = int(match[1] or 9)
        return Fault(signal=number, step=int(match[2]), run=_optional(match[3]), rank=_optional(match[4]))
    if match := _HANG_AT.fullmatch(sentence):
        return Fault(hang=True, step=int(match[1]), run=_optional(match[2]), rank=_optional(match[3]))
    return None


def _rule(sentence: str) -> dict[str, Any]:
    if match := _PERIOD.fullmatch(sentence):
        if int(match[2]) < 1:
            raise InvalidInput(f"the period in the sentence {sentence!r} must be at least 1 step")
        return {f"{match[1]}_every": int(match[2])}
    if match := _EXIT_ON_PREEMPTION.fullmatch(sentence):
        return {"fail_on_preemption": (int(match[1]), _optional(match[2]))}
    if sentence == "ignore preemption":
        return {"ignore_preemption": True}
    raise InvalidInput(
        f"the script sentence {sentence!r} is not understood; sentences are for example 'report 10 every 0.05s', "
        "'checkpoint every 5', 'sleep 1s', 'log 100 lines', 'wait for preemption', 'exit 3 at step 7 on run 1'"
    )


def _seconds(amount: str, unit: str | None) -> float:
    return float(amount) * {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}[unit]


def _optional(text: str | None) -> int | None:
    return None if text is None else int(text)
