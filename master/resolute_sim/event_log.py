"""What the tasks logged themselves: the facts with which the checkers compare the records of the master."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Event(StrEnum):
    START = "start"
    """The program runs, with the step of the checkpoint from which it must resume."""
    STEP = "step"
    SAVE = "save"
    """The checkpoint's files are complete."""
    SAVED = "saved"
    """The master has acknowledged the checkpoint."""
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    at: datetime
    event: Event
    trial: int
    run: int
    allocation: str
    container: str
    step: int
    chief: bool
    uuid: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTask:
    """A program that runs now, on these slots of this machine."""

    trial: int
    run: int
    allocation: str
    container: str
    machine: str
    slots: tuple[int, ...]
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A program has used a number of slots of its machine for this time."""

    machine: str
    trial: int
    slots: int
    start: datetime
    end: datetime


class EventLog:
    """Append only. `live` are the programs that run at this moment, by container."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.of_trial: dict[int, list[Entry]] = defaultdict(list)
        self.live: dict[str, LiveTask] = {}
        self.busy: list[Busy] = []

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.of_trial[entry.trial].append(entry)

    def began(self, task: LiveTask) -> None:
        self.live[task.container] = task

    def ended(self, container: str, at: datetime) -> None:
        task = self.live.pop(container)
        used = Busy(machine=task.machine, trial=task.trial, slots=len(task.slots), start=task.since, end=at)
        self.busy.append(used)
