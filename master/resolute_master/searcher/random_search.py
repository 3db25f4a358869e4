"""`single` and `random`: points drawn independently; validations are of no interest."""

from __future__ import annotations

from resolute_master.searcher.base import (
    Draft,
    ExitReason,
    Outcome,
    ProgressReported,
    SearchEvent,
    State,
    TrialExited,
    ValidationCompleted,
    mean_progress,
)
from resolute_master.searcher.hyperparameters import Space


class RandomSearch:
    """`max_trials` points, at most `at_once` of them at a time (0: all). A point that turns out invalid is replaced."""

    replaces_invalid = True

    def __init__(self, space: Space, *, max_trials: int, at_once: int) -> None:
        self._space = space
        self._max_trials = max_trials
        self._at_once = at_once

    def start(self, seed: int) -> Outcome:
        draft = Draft.new(seed, {"created": 0})
        first = self._max_trials if self._at_once == 0 else min(self._max_trials, self._at_once)
        for _ in range(first):
            self._create(draft)
        return draft.done()

    def on(self, state: State, event: SearchEvent) -> Outcome:
        match event:
            case ValidationCompleted():
                return state, ()
            case ProgressReported():
                return self._report_progress(state, event), ()
            case TrialExited():
                return self._exited(state, event)

    def progress(self, state: State) -> float:
        return mean_progress(state)

    def _report_progress(self, state: State, event: ProgressReported) -> State:
        if event.request_id in state["closed"] or event.request_id not in state["progress"]:
            return state
        return {**state, "progress": {**state["progress"], event.request_id: event.progress}}

    def _exited(self, state: State, event: TrialExited) -> Outcome:
        draft = Draft(state)
        if not draft.close(event):
            return state, ()
        if event.reason is ExitReason.INVALID_HPARAMS and self.replaces_invalid:
            draft.method["created"] -= 1
        if draft.method["created"] < self._max_trials:
            self._create(draft)
        draft.shut_down_if_done()
        return draft.done()

    def _create(self, draft: Draft) -> None:
        draft.method["created"] += 1
        draft.create(self._space)


class SingleSearch(RandomSearch):
    """One trial; if its point turns out invalid the search is over."""

    replaces_invalid = False

    def __init__(self, space: Space) -> None:
        super().__init__(space, max_trials=1, at_once=1)
