"""The port of every search method, and the bookkeeping that all of them share.

A search is (state, event) -> (state, actions). The state is JSON and is saved with the event that produced it, so a search
goes on after any crash exactly where it was, and the same seed with the same order of events gives the same search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from resolute.ids import uuid_of
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import Space, sample

State = Mapping[str, Any]
"""JSON. `open` holds the trials that have not ended, with their progress; of the others only their numbers are kept, so that
a state does not grow with the search."""

MAX_TRIAL_SEED = 2**31 - 1


class ExitReason(StrEnum):
    """Why a trial ended otherwise than well."""

    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"
    INVALID_HPARAMS = "INVALID_HP"


class ValidationCompleted(Struct, frozen=True, kw_only=True, gc=False):
    """One validation of a trial; never told twice for one step count."""

    request_id: str
    metric: float
    steps_completed: int


class ProgressReported(Struct, frozen=True, kw_only=True, gc=False):
    """`progress` is the trial's own fraction, 0 to 1."""

    request_id: str
    progress: float


class TrialExited(Struct, frozen=True, kw_only=True, gc=False):
    """`reason` None: it completed."""

    request_id: str
    reason: ExitReason | None


SearchEvent = ValidationCompleted | ProgressReported | TrialExited


class Create(Struct, frozen=True, kw_only=True, gc=False):
    request_id: str
    hparams: Mapping[str, Any]
    seed: int


class Stop(Struct, frozen=True, kw_only=True, gc=False):
    """The search needs no more of this trial."""

    request_id: str


class Shutdown(Struct, frozen=True, kw_only=True, gc=False):
    """The search is over. `failure`: all that trained failed; `cancel`: all were canceled. With neither it is complete.

    A trial with invalid hyperparameters never trained and counts for neither.
    """

    cancel: bool
    failure: bool

    @property
    def complete(self) -> bool:
        return not (self.cancel or self.failure)


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
        self.failed: int = state["failed"]
        self.canceled: int = state["canceled"]
        self.invalid: int = state["invalid"]
        self.open: dict[str, float] = dict(state["open"])
        self.over: bool = state["over"]
        self._generator = Generator.of(state["generator"])
        self.actions: list[SearchAction] = []

    @staticmethod
    def new(seed: int) -> Draft:
        empty: State = {
            "requested": 0,
            "failed": 0,
            "canceled": 0,
            "invalid": 0,
            "open": {},
            "over": False,
            "generator": Generator(seed).state,
        }
        return Draft(empty)

    @property
    def valid(self) -> int:
        """Trials that were asked for and have not called their hyperparameters invalid."""
        return self.requested - self.invalid

    def create(self, space: Space) -> None:
        """Ask for one more trial: its point first, then its id, then its seed."""
        hparams = sample(space, self._generator)
        request_id = uuid_of(self._generator.octets(16))
        seed = self._generator.bounded(MAX_TRIAL_SEED)
        self.requested += 1
        self.open[request_id] = 0.0
        self.actions.append(Create(request_id=request_id, hparams=hparams, seed=seed))

    def close(self, event: TrialExited) -> bool:
        """Book the end of a trial; False when it is not news."""
        if self.open.pop(event.request_id, None) is None:
            return False
        match event.reason:
            case ExitReason.ERRORED:
                self.failed += 1
            case ExitReason.USER_CANCELED:
                self.canceled += 1
            case ExitReason.INVALID_HPARAMS:
                self.invalid += 1
            case None:
                pass
        return True

    def shut_down(self, *, failure: bool = False) -> None:
        """Once: nothing follows."""
        if not self.over:
            self.over = True
            failure = failure or 0 < self.valid <= self.failed
            self.actions.append(Shutdown(cancel=not failure and 0 < self.valid <= self.canceled, failure=failure))

    def done(self) -> Outcome:
        state: State = {
            "requested": self.requested,
            "failed": self.failed,
            "canceled": self.canceled,
            "invalid": self.invalid,
            "open": self.open,
            "over": self.over,
            "generator": self._generator.state,
        }
        return state, tuple(self.actions)


def fraction(value: float) -> float:
    """The nearest of 0 to 1; what is no number counts as nothing done."""
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0
