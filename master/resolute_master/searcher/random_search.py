"""`single` and `random`: points that are drawn independently, without regard to validations."""

from __future__ import annotations

from resolute.errors import InvalidInput
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.searcher.events import ExitReason
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.method import Draft, Method, Planned, share_done
from resolute_master.searcher.records import Records


class RandomSearch(Method):
    """A search over `max_trials` random points, at most `at_once` of them at a time (0: all). An invalid point is replaced."""

    replaces_invalid = True

    def __init__(self, space: Space, *, max_trials: int, at_once: int, length: int | None = None) -> None:
        if max_trials < 1:
            raise InvalidInput(f"searcher.max_trials: must be at least 1, not {max_trials}")
        if at_once < 0:
            raise InvalidInput(f"searcher.max_concurrent_trials: must be 0 (all at once) or more, not {at_once}")
        self._space = space
        self.max_trials = max_trials
        self._limit = at_once or max_trials
        self._length = length

    @property
    def at_once(self) -> int:
        return min(self._limit, self.max_trials)

    def begin(self, draft: Draft) -> None:
        self._fill(draft)

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        if reason is not ExitReason.INVALID_HPARAMS or self.replaces_invalid:
            self._fill(draft)

    def progress(self, search: Search, records: Records) -> float:
        return share_done(search, self.max_trials)

    def plan(self) -> tuple[Planned, ...]:
        return (Planned(trials=self.max_trials, units=self._length),)

    def _fill(self, draft: Draft) -> None:
        while draft.search.valid < self.max_trials and draft.search.open < self._limit:
            draft.create(self._space, length=self._length)


class SingleSearch(RandomSearch):
    """One trial; if its point turns out invalid the search is over."""

    replaces_invalid = False

    def __init__(self, space: Space, *, length: int | None = None) -> None:
        super().__init__(space, max_trials=1, at_once=1, length=length)
