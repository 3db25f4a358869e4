"""The events of a search, and the requests that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct


class ExitReason(StrEnum):
    """Reason of a trial's end that was not a success."""

    ERRORED = "ERRORED"
    USER_CANCELED = "USER_CANCELED"
    INVALID_HPARAMS = "INVALID_HP"


class ValidationCompleted(Struct, frozen=True, kw_only=True, gc=False):
    """One validation of a trial; never passed twice for one step count. None: the report did not hold such a number."""

    request_id: str
    metric: float | None
    steps_completed: int
    time: float | None = None
    """Time of training, in units of `searcher.time_metric`."""


class OperationCompleted(Struct, frozen=True, kw_only=True, gc=False):
    """The trial has trained until its length."""

    request_id: str
    length: int
    metric: float


class ProgressReported(Struct, frozen=True, kw_only=True, gc=False):
    """A report of progress. `progress` is the trial's own fraction, 0 to 1."""

    request_id: str
    progress: float


class TrialExited(Struct, frozen=True, kw_only=True, gc=False):
    """The end of a trial. `reason` None: it succeeded."""

    request_id: str
    reason: ExitReason | None


class PointsProposed(Struct, frozen=True, kw_only=True, gc=False):
    """Points that a sampler outside of the master's rules has proposed for the next trials."""

    points: tuple[Mapping[str, Any], ...]


SearchEvent = ValidationCompleted | OperationCompleted | ProgressReported | TrialExited | PointsProposed


class Create(Struct, frozen=True, kw_only=True, gc=False):
    """A request for a new trial."""

    request_id: str
    hparams: Mapping[str, Any]
    seed: int
    source: str | None = None
    """The trial (its request id) from whose newest checkpoint it begins."""


class Train(Struct, frozen=True, kw_only=True, gc=False):
    """The trial has a new length to train to. An idle trial requests slots again."""

    request_id: str
    length: int


class Stop(Struct, frozen=True, kw_only=True, gc=False):
    """The search needs no more of this trial."""

    request_id: str


class Shutdown(Struct, frozen=True, kw_only=True, gc=False):
    """The search has ended. `failure`: all trials that trained failed, or it cannot continue; `cancel`: all were canceled.

    With neither it is complete. A trial with invalid hyperparameters never trained and counts for neither.
    """

    cancel: bool
    failure: bool
    reason: str = ""

    @property
    def complete(self) -> bool:
        return not (self.cancel or self.failure)


SearchAction = Create | Train | Stop | Shutdown
