"""`optuna`: points that a sampler proposes from the results so far. The sampler runs outside of the rules and may take its time.

A proposal enters as an event like any other, so that a search can be replayed from its journal. The search itself draws the first
trials; then it requests a proposal whenever another trial may start, and only that trial waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from resolute.errors import InvalidInput
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.searcher.events import ExitReason, ValidationCompleted
from resolute_master.searcher.hyperparameters import Space, sample
from resolute_master.searcher.method import Draft, Method, Planned, PointRequest, score_of, share_done
from resolute_master.searcher.records import Records


class SamplerSettings(Struct, frozen=True, kw_only=True):
    """A sampler and its settings."""

    sampler: str
    """`tpe` or `cma_es`."""
    multivariate: bool
    smaller_is_better: bool


class ProposedSearch(Method):
    """A search over proposed points: `max_trials` points, `drawn` of them drawn at random; at most `limit` trials at a time (0:
    all)."""

    requires = "optuna"

    def __init__(
        self,
        space: Space,
        *,
        max_trials: int,
        limit: int,
        drawn: int,
        sampler: SamplerSettings,
        length: int | None = None,
    ) -> None:
        if max_trials < 1 or drawn < 1:
            raise InvalidInput(f"searcher: {max_trials} trial(s) and {drawn} drawn trial(s) must each be at least 1")
        if limit < 0:
            raise InvalidInput(f"searcher.max_concurrent_trials: must be 0 (all at once) or more, not {limit}")
        self._space = space
        self.max_trials = max_trials
        self._limit = limit or max_trials
        self._startup = drawn
        self._sampler = sampler
        self._length = length

    @property
    def at_once(self) -> int:
        return min(self._limit, self.max_trials)

    # -- events ------------------------------------------------------------------------------------------------

    def begin(self, draft: Draft) -> None:
        self._fill(draft)

    def validated(self, draft: Draft, trial: SearchTrial, event: ValidationCompleted) -> None:
        """Records the best of a trial's validations as the value of its point."""
        if event.metric is None:
            return
        known = trial.own["metric"]
        smaller = self._sampler.smaller_is_better
        new = score_of(event.metric, smaller_is_better=smaller)
        if known is None or new < score_of(float(known), smaller_is_better=smaller):
            draft.update(trial, own={**trial.own, "metric": event.metric})

    def completed(self, draft: Draft, trial: SearchTrial, metric: float) -> None:
        trial = draft.update(trial, own={**trial.own, "metric": metric})
        super().completed(draft, trial, metric)

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        self._fill(draft)

    def proposed(self, draft: Draft, points: Sequence[Mapping[str, Any]]) -> None:
        for point in points[: self._room(draft.search)]:
            self._create(draft, point)

    def point_request(self, search: Search) -> PointRequest | None:
        room = 0 if search.over else self._room(search)
        return PointRequest(points=room, space=self._space, settings=self._sampler) if room > 0 else None

    def _room(self, search: Search) -> int:
        return min(self.max_trials - search.valid, self._limit - search.open)

    def _fill(self, draft: Draft) -> None:
        """Creates trials with points of its own until there are enough results for the sampler."""
        while draft.search.requested < self._startup and self._room(draft.search) > 0:
            self._create(draft, sample(self._space, draft.generator))

    def _create(self, draft: Draft, point: Mapping[str, Any]) -> None:
        draft.create(self._space, hparams=point, length=self._length, own={"point": point, "metric": None})

    # -- people ------------------------------------------------------------------------------------------------

    def progress(self, search: Search, records: Records) -> float:
        return share_done(search, self.max_trials)

    def plan(self) -> tuple[Planned, ...]:
        return (Planned(trials=self.max_trials, units=self._length),)
