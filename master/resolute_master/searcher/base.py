"""The port of every search method, and the bookkeeping that all of them share.

A search is (state, event) -> (state, actions). The state is JSON and is saved with the event that produced it, so a search
goes on after any crash exactly where it was, and the same seed with the same order of events gives the same search.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import Space, sample

State = Mapping[str, Any]
"""JSON. `closed`, `failed`, `canceled` are sorted lists of request ids; `progress` is by request id."""

MAX_TRIAL_SEED = 2**31 - 1


class ExitReason(StrEnum):
    """Why a trial ended otherwise than well."""

    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"
    INVALID_HPARAMS = "INVALID_HP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationCompleted:
    """One validation of a trial; never told twice for one step count."""

    request_id: str
    metric: float
    steps_completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReported:
    """`progress` is the trial's own fraction, 0 to 1."""

    request_id: str
    progress: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialExited:
    """`reason` None: it completed."""

    request_id: str
    reason: ExitReason | None


SearchEvent = ValidationCompleted | ProgressReported | TrialExited


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    request_id: str
    hparams: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The search needs no more of this trial."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """The search is over. `failure`: no trial ended well; `cancel`: all were canceled. Failure wins."""

    cancel: bool
    failure: bool


SearchAction = Create | Stop | Shutdown
Outcome = tuple[State, tuple[SearchAction, ...]]


class SearchMethod(Protocol):
    """One search method with its configuration; holds nothing that is not in the state."""

    def start(self, seed: int) -> Outcome:
        """The state of a new search, and its first trials."""
        ...

    def on(self, state: State, event: SearchEvent) -> Outcome:
        """Take in one event. Events of unknown or closed trials change nothing."""
        ...

    def progress(self, state: State) -> float:
        """Of the whole search, 0 to 1."""
        ...


class Draft:
    """A state being changed by one event: copied at the start, JSON again at the end."""

    def __init__(self, state: State) -> None:
        self.requested: int = state["requested"]
        self.closed = list(state["closed"])
        self.failed = list(state["failed"])
        self.canceled = list(state["canceled"])
        self.progress = dict(state["progress"])
        self.method = dict(state["method"])
        self._generator = Generator.of(state["generator"])
        self.actions: list[SearchAction] = []

    @staticmethod
    def new(seed: int, method: Mapping[str, Any]) -> Draft:
        empty: State = {
            "requested": 0,
            "closed": [],
            "failed": [],
            "canceled": [],
            "progress": {},
            "method": dict(method),
            "generator": Generator(seed).state,
        }
        return Draft(empty)

    def create(self, space: Space) -> None:
        """Ask for one more trial: its point first, then its id, then its seed."""
        hparams = sample(space, self._generator)
        request_id = str(uuid.UUID(bytes=self._generator.octets(16), version=4))
        seed = self._generator.bounded(MAX_TRIAL_SEED)
        self.requested += 1
        self.progress[request_id] = 0.0
        self.actions.append(Create(request_id=request_id, hparams=hparams, seed=seed))

    def close(self, event: TrialExited) -> bool:
        """Book the end of a trial; False when it is not news."""
        if event.request_id in self.closed:
            return False
        self.closed = sorted([*self.closed, event.request_id])
        match event.reason:
            case ExitReason.ERRORED:
                self.failed = sorted([*self.failed, event.request_id])
            case ExitReason.USER_CANCELED:
                self.canceled = sorted([*self.canceled, event.request_id])
            case ExitReason.INVALID_HPARAMS:
                self.progress.pop(event.request_id, None)
            case None:
                self.progress[event.request_id] = 1.0
        return True

    def shut_down_if_done(self) -> None:
        """When every trial that was asked for has ended."""
        if len(self.closed) >= self.requested:
            self.actions.append(
                Shutdown(
                    cancel=len(self.canceled) >= self.requested,
                    failure=len(self.failed) >= self.requested,
                )
            )

    def done(self) -> Outcome:
        state: State = {
            "requested": self.requested,
            "closed": self.closed,
            "failed": self.failed,
            "canceled": self.canceled,
            "progress": self.progress,
            "method": self.method,
            "generator": self._generator.state,
        }
        return state, tuple(self.actions)


def mean_progress(state: State) -> float:
    """Of the trials that have a progress: closed ones count 1, running ones their own fraction."""
    values = [1.0 if id_ in state["closed"] else float(part) for id_, part in sorted(state["progress"].items())]
    mean = sum(values) / len(values) if values else 0.0
    return mean if math.isfinite(mean) else 0.0
