"""The port of every search method, and their shared bookkeeping.

A search is (state, event) -> (state, actions). Its state is one `Search` and a `SearchTrial` for each trial: an event changes the
first and the affected rows. The engine stores them with the event, so that a search resumes after any crash exactly where it
was; the same seed with the same order of events gives the same search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from resolute.ids import uuid_of
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import WHOLE, Search, SearchTrial, Standing
from resolute_master.searcher.events import (
    Create,
    ExitReason,
    OperationCompleted,
    PointsProposed,
    ProgressReported,
    SearchAction,
    SearchEvent,
    Shutdown,
    Stop,
    Train,
    TrialExited,
    ValidationCompleted,
)
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import Space, sample
from resolute_master.searcher.records import Records

MAX_TRIAL_SEED = 2**31 - 1

INVALID_PER_TRIAL = 10
"""Maximum of invalid points per requested trial, beyond which the search fails: it might search for ever."""

Outcome = tuple[Search, tuple[SearchAction, ...]]


class TrialState(StrEnum):
    """State of a trial in its search."""

    TRAINING = "training"
    WAITING = "waiting"
    """The trial waits until others have reported results."""
    STOPPED = "stopped"
    ENDED = "ended"


class Stage(Struct, frozen=True, kw_only=True):
    """A trial in its search, for display; counts begin at 0, places at 1."""

    state: TrialState
    reason: str = ""
    bracket: int | None = None
    rung: int | None = None
    rungs: int | None = None
    rank: int | None = None
    """Its rank among the results of the highest rung for which it has reported one."""
    ranked: int | None = None
    """Number of these results."""


class Planned(Struct, frozen=True, kw_only=True):
    """Number of trials that will train until `units`; None: as far as their code decides."""

    trials: int
    units: int | None = None


class PointRequest(Struct, frozen=True, kw_only=True):
    """A number of points of the space, from a sampler with these settings."""

    points: int
    space: Space
    settings: Any


class SearchMethod(Protocol):
    """One search method with its configuration; it has no state besides that of the search.

    It receives events of open trials of active searches, and writes the consequences into the draft.
    """

    @property
    def requires(self) -> str:
        """The Python module that it requires; "" for none."""
        ...

    @property
    def max_trials(self) -> int:
        """Most valid trials that it requests."""
        ...

    @property
    def at_once(self) -> int:
        """Number of trials at its beginning."""
        ...

    def begin(self, draft: Draft) -> None:
        """Requests the first trials."""
        ...

    def validated(self, draft: Draft, trial: SearchTrial, event: ValidationCompleted) -> None: ...

    def completed(self, draft: Draft, trial: SearchTrial, metric: float) -> None:
        """The trial has trained until its length; its row already contains this."""
        ...

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        """The trial has ended; its row and the draft's counts already contain this."""
        ...

    def proposed(self, draft: Draft, points: Sequence[Mapping[str, Any]]) -> None:
        """The search has received points for which it waits."""
        ...

    def point_request(self, search: Search) -> PointRequest | None:
        """The points for which it waits; None for a method that draws its own."""
        ...

    def progress(self, search: Search, records: Records) -> float:
        """Progress of the whole search, 0 to 1."""
        ...

    def stage(self, trial: SearchTrial, records: Records) -> Stage:
        """Stage of a trial."""
        ...

    def plan(self) -> tuple[Planned, ...]:
        """The expected trials by ascending units, as far as the configuration defines them."""
        ...


class Method:
    """Defaults for all events, as a start for a new method."""

    requires = ""

    def validated(self, draft: Draft, trial: SearchTrial, event: ValidationCompleted) -> None:
        """Ignores the event."""

    def completed(self, draft: Draft, trial: SearchTrial, metric: float) -> None:
        """Stops the trial, because there is one length for each."""
        draft.stop(trial, "it has trained until its length")

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        """Ignores the event: the trial is not replaced."""

    def proposed(self, draft: Draft, points: Sequence[Mapping[str, Any]]) -> None:
        """Ignores the event: no trial waits for points."""

    def point_request(self, search: Search) -> PointRequest | None:
        return None

    def stage(self, trial: SearchTrial, records: Records) -> Stage:
        return Stage(state=state_of(trial), reason=reason_of(trial))


def state_of(trial: SearchTrial) -> TrialState:
    if trial.stopped:
        return TrialState.STOPPED
    if not trial.open:
        return TrialState.ENDED
    return TrialState.WAITING if trial.idle else TrialState.TRAINING


def reason_of(trial: SearchTrial, aim: str = "") -> str:
    """The reason for a trial's stage; `aim` is what it trains for."""
    return trial.reason or f"it has reported no result yet{aim}"


class Draft:
    """A search during one event. Rows of trials are written through at once."""

    def __init__(self, search: Search, records: Records) -> None:
        self.search = search
        self.records = records
        self.own: dict[str, Any] = dict(search.own)
        """Data of the method. Lists and maps in it must be replaced, not changed."""
        self._generator = Generator.of(search.generator)
        self.actions: list[SearchAction] = []

    @property
    def generator(self) -> Generator:
        """The search's random numbers."""
        return self._generator

    def create(
        self,
        space: Space,
        *,
        hparams: Mapping[str, Any] | None = None,
        length: int | None = None,
        own: Mapping[str, Any] | None = None,
        source: str | None = None,
    ) -> SearchTrial:
        """Request one more trial: its point first (drawn, if it is not given), then its id, then its seed."""
        point = sample(space, self._generator) if hparams is None else dict(hparams)
        request_id = uuid_of(self._generator.octets(16))
        seed = self._generator.bounded(MAX_TRIAL_SEED)
        search = self.search
        trial = SearchTrial(
            id=search.key(request_id),
            search=search.id,
            request_id=request_id,
            number=search.requested,
            length=length,
            own={} if own is None else own,
        )
        self.search = replace(search, requested=search.requested + 1, open=search.open + 1)
        self.records.put(trial)
        self.actions.append(Create(request_id=request_id, hparams=point, seed=seed, source=source))
        return trial

    def update(self, trial: SearchTrial, **changes: Any) -> SearchTrial:
        changed = replace(trial, **changes)
        self.records.put(changed)
        return changed

    def stand(self, trial: SearchTrial, board: str, score: float, *, newest_first: bool) -> tuple[SearchTrial, int]:
        """Enter a result of the trial; returns the number of results before it. Of equal scores the newest is first, or last."""
        number = self.search.results + 1
        self.search = replace(self.search, results=number)
        standing = Standing(board=board, score=score, order=-number if newest_first else number)
        trial = self.update(trial, standings=(*trial.standings, standing))
        return trial, self.records.below(board, (standing.score, standing.order, trial.request_id))

    def train(self, trial: SearchTrial, length: int, reason: str) -> SearchTrial:
        self.actions.append(Train(request_id=trial.request_id, length=length))
        return self.update(trial, length=length, completed=False, reason=reason)

    def stop(self, trial: SearchTrial, reason: str) -> SearchTrial:
        """Stop a trial. It receives the event if it has not ended."""
        if trial.open:
            self.actions.append(Stop(request_id=trial.request_id))
        return self.update(trial, stopped=True, reason=reason)

    def shut_down(self, *, failure: bool = False, reason: str = "") -> None:
        """End the search, once; no request follows."""
        search = self.search
        if not search.over:
            self.search = replace(search, over=True)
            failure = failure or 0 < search.valid <= search.failed
            cancel = not failure and 0 < search.valid <= search.canceled
            self.actions.append(Shutdown(cancel=cancel, failure=failure, reason=reason))

    def done(self) -> Outcome:
        return replace(self.search, generator=self._generator.leave(), own=self.own), tuple(self.actions)


# ------------------------------------------------------------------------------------------------------ the machine


def start(method: SearchMethod, id_: ExperimentId, seed: int, records: Records) -> Outcome:
    """Begin a search; returns it with its first requests."""
    draft = Draft(Search(id=id_, generator=Generator(seed).leave()), records)
    method.begin(draft)
    return draft.done()


def tell(method: SearchMethod, search: Search, records: Records, event: SearchEvent) -> Outcome:
    """Apply one event. An event of an unknown or ended trial, or after the end, changes nothing.

    The end of a trial is booked also after the end of the search.
    """
    if isinstance(event, PointsProposed):
        draft = Draft(search, records)
        if not search.over:
            method.proposed(draft, event.points)
        return draft.done()
    trial = records.get(event.request_id)
    if trial is None or not trial.open or (search.over and not isinstance(event, TrialExited)):
        return search, ()
    draft = Draft(search, records)
    match event:
        case ProgressReported(progress=value):
            _progressed(draft, trial, value)
        case ValidationCompleted():
            if not trial.stopped:
                method.validated(draft, trial, event)
        case OperationCompleted(length=length, metric=metric):
            if not trial.stopped and not trial.completed and trial.length == length:
                trial = draft.update(trial, completed=True, completed_length=length, completed_metric=metric)
                method.completed(draft, trial, metric)
        case TrialExited(reason=reason):
            _exited(method, draft, trial, reason)
    return draft.done()


def _progressed(draft: Draft, trial: SearchTrial, value: float) -> None:
    progress = round(fraction(value) * WHOLE)
    draft.search = replace(draft.search, progress=draft.search.progress + progress - trial.progress)
    draft.update(trial, progress=progress)


def _exited(method: SearchMethod, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
    search = draft.search
    draft.search = replace(
        search,
        open=search.open - 1,
        progress=search.progress - trial.progress,
        failed=search.failed + (reason is ExitReason.ERRORED),
        canceled=search.canceled + (reason is ExitReason.USER_CANCELED),
        invalid=search.invalid + (reason is ExitReason.INVALID_HPARAMS),
    )
    trial = draft.update(trial, open=False, **_end_reason(trial, reason))
    if search.over:
        return
    if draft.search.invalid > INVALID_PER_TRIAL * method.max_trials:
        draft.shut_down(failure=True, reason=f"{draft.search.invalid} points were invalid")
        return
    method.exited(draft, trial, reason)
    if not draft.search.open and method.point_request(draft.search) is None:
        draft.shut_down()


_ENDS = {
    ExitReason.ERRORED: "it failed",
    ExitReason.USER_CANCELED: "it was canceled",
    ExitReason.INVALID_HPARAMS: "its hyperparameters are invalid",
    None: "its code ended without a request",
}


def _end_reason(trial: SearchTrial, reason: ExitReason | None) -> dict[str, str]:
    """Why the trial ended. A trial that its search stopped keeps the reason of the stop."""
    return {} if trial.stopped else {"reason": _ENDS[reason]}


# ---------------------------------------------------------------------------------------------- what methods share


def fraction(value: float) -> float:
    """The value limited to 0 to 1; a value that is not finite counts as 0."""
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else 0.0


def score_of(metric: float, *, smaller_is_better: bool) -> float:
    """Score of a metric: the smaller the better, whatever the metric is; NaN is worse than everything."""
    if math.isnan(metric):
        return math.inf
    return metric if smaller_is_better else -metric


def share_done(search: Search, trials: int) -> float:
    """Completed share of the requested trials. Ended ones count 1, so that the share does not fall when another one starts."""
    if search.over:
        return 1.0
    return fraction((search.valid - search.open + search.progress / WHOLE) / trials)
