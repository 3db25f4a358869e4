"""`single` and `random`: points drawn independently; validations are of no interest."""

from __future__ import annotations

from resolute.errors import InvalidInput
from resolute_master.searcher.base import (
    Draft,
    ExitReason,
    Outcome,
    ProgressReported,
    SearchEvent,
    State,
    TrialExited,
    ValidationCompleted,
    fraction,
)
from resolute_master.searcher.hyperparameters import Space

INVALID_PER_TRIAL = 10
"""A search with more invalid points than so many for each trial that it wants has failed: it might look for ever."""


class RandomSearch:
    """`max_trials` points, at most `at_once` of them at a time (0: all). A point that turns out invalid is replaced."""

    replaces_invalid = True

    def __init__(self, space: Space, *, max_trials: int, at_once: int) -> None:
        if max_trials < 1:
            raise InvalidInput(f"searcher.max_trials: must be at least 1, not {max_trials}")
        if at_once < 0:
            raise InvalidInput(f"searcher.max_concurrent_trials: must be 0 (all at once) or more, not {at_once}")
        self._space = space
        self._max_trials = max_trials
        self._at_once = at_once or max_trials

    def start(self, seed: int) -> Outcome:
        draft = Draft.new(seed)
        self._fill(draft)
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
        """Of all trials that are wanted, so that it does not fall when another one starts."""
        if state["over"]:
            return 1.0
        ended = state["requested"] - state["invalid"] - len(state["open"])
        running = sum(part for _, part in sorted(state["open"].items()))
        return fraction((ended + running) / self._max_trials)

    def _report_progress(self, state: State, event: ProgressReported) -> State:
        if event.request_id not in state["open"]:
            return state
        return {**state, "open": {**state["open"], event.request_id: fraction(event.progress)}}

    def _exited(self, state: State, event: TrialExited) -> Outcome:
        draft = Draft(state)
        if not draft.close(event):
            return state, ()
        if not draft.over:
            self._go_on(draft, event)
        return draft.done()

    def _go_on(self, draft: Draft, event: TrialExited) -> None:
        if draft.invalid > INVALID_PER_TRIAL * self._max_trials:
            draft.shut_down(failure=True)
        elif event.reason is not ExitReason.INVALID_HPARAMS or self.replaces_invalid:
            self._fill(draft)
        if not draft.open:
            draft.shut_down()

    def _fill(self, draft: Draft) -> None:
        while draft.valid < self._max_trials and len(draft.open) < self._at_once:
            draft.create(self._space)


class SingleSearch(RandomSearch):
    """One trial; if its point turns out invalid the search is over."""

    replaces_invalid = False

    def __init__(self, space: Space) -> None:
        super().__init__(space, max_trials=1, at_once=1)
