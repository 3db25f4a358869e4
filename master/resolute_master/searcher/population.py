"""`pbt`: a population that trains in rounds; after each the worst are replaced by changed copies of the best.

A round ends when every trial has trained its length or has ended. The best continue. Each of the worst is stopped, and a new trial
starts from the checkpoint of one of the best, with hyperparameters that are drawn again or perturbed.

Source: Jaderberg et al., "Population Based Training of Neural Networks", 2017, with truncation selection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from resolute.errors import InvalidInput
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.searcher.conditions import pruned
from resolute_master.searcher.events import ExitReason
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import Space, draw, sample
from resolute_master.searcher.method import Draft, Method, Planned, Stage, fraction, reason_of, score_of, state_of
from resolute_master.searcher.records import Records

ABSENT: Any = object()
LOST = math.inf
"""The score of a trial that has ended before the end of its round."""


class Exploration(Struct, frozen=True, kw_only=True):
    """How a copy's hyperparameters differ: each is drawn again with this probability, else made larger or smaller by the factor."""

    resample_probability: float
    perturb_factor: float


class PopulationSearch(Method):
    """Population based training. `length` is that of a round; `truncated` the part of the population that is replaced after
    each."""

    def __init__(
        self,
        space: Space,
        *,
        size: int,
        rounds: int,
        length: int,
        truncated: float,
        exploration: Exploration,
        smaller_is_better: bool,
    ) -> None:
        if size < 1 or rounds < 1 or length < 1:
            raise InvalidInput(
                f"searcher: a population of {size}, {rounds} round(s) and a length of {length} must each be at least 1"
            )
        if not 0 <= truncated <= 0.5:
            raise InvalidInput(
                f"searcher.replace_function.truncate_fraction: must be from 0 to 0.5, not {truncated}: each that is replaced "
                "follows on one that stays"
            )
        self._space = space
        self._size = size
        self._rounds = rounds
        self._length = length
        self._truncated = truncated
        self._exploration = exploration
        self._smaller = smaller_is_better

    @property
    def max_trials(self) -> int:
        """Most trials, if every trial is lost in every round but the last."""
        return self._size * self._rounds

    @property
    def at_once(self) -> int:
        return self._size

    # -- events ------------------------------------------------------------------------------------------------

    def begin(self, draft: Draft) -> None:
        draft.own |= {"round": 0, "outstanding": self._size}
        for _ in range(self._size):
            self._create(draft, sample(self._space, draft.generator), source=None)

    def completed(self, draft: Draft, trial: SearchTrial, metric: float) -> None:
        self._report(draft, trial, score_of(metric, smaller_is_better=self._smaller))

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        if trial.stopped or trial.completed:
            return
        if reason is ExitReason.INVALID_HPARAMS:
            source = trial.own["source"]
            known = None if source is None else draft.records.get(source)
            self._create(draft, self._point(draft, known), source=source)
            return
        self._report(draft, trial, LOST)

    def _report(self, draft: Draft, trial: SearchTrial, score: float) -> None:
        board = self._board(draft.own["round"])
        trial, place = draft.stand(trial, board, score, newest_first=False)
        draft.own["outstanding"] -= 1
        if trial.open:
            told = f"rank {place + 1} of {draft.records.size(board)}"
            draft.update(trial, reason=f"it waits for the end of round {draft.own['round']}: {told} so far")
        if not draft.own["outstanding"]:
            self._end_round(draft, board)

    def _end_round(self, draft: Draft, board: str) -> None:
        ranked = [draft.records.at(board, place) for place in range(draft.records.size(board))]
        there = [trial for trial in ranked if trial.open]
        last = draft.own["round"] == self._rounds - 1
        if last or not there:
            for place, trial in enumerate(there):
                draft.stop(trial, f"the last round is over: rank {place + 1} of {len(ranked)}")
            return
        lost = len(ranked) - len(there)
        replaced = max(math.floor(self._truncated * len(ranked)) - lost, 0)
        kept = there[: len(there) - replaced]
        number = draft.own["round"]
        draft.own |= {"round": number + 1, "outstanding": len(ranked)}
        for place, trial in enumerate(kept):
            grown = (trial.length or 0) + self._length
            draft.train(trial, grown, f"it continues from round {number}: rank {place + 1} of {len(ranked)}")
        for place, trial in enumerate(there[len(kept) :], start=len(kept)):
            draft.stop(trial, f"it was replaced after round {number}: rank {place + 1} of {len(ranked)}")
        for index in range(replaced + lost):
            source = kept[index % len(kept)]
            self._create(draft, self._point(draft, source), source=source.request_id)

    def _create(self, draft: Draft, point: Mapping[str, Any], *, source: str | None) -> None:
        own = {"round": draft.own["round"], "point": point, "source": source}
        draft.create(self._space, hparams=point, length=self._length, own=own, source=source)

    def _point(self, draft: Draft, source: SearchTrial | None) -> dict[str, Any]:
        """A changed copy of the source's point; without a source, a new point."""
        if source is None:
            return sample(self._space, draft.generator)
        return explored(self._space, source.own["point"], self._exploration, draft.generator)

    @staticmethod
    def _board(number: int) -> str:
        return f"round {number}"

    # -- people ------------------------------------------------------------------------------------------------

    def progress(self, search: Search, records: Records) -> float:
        if search.over:
            return 1.0
        told = records.size(self._board(search.own["round"]))
        return fraction((search.own["round"] * self._size + told) / (self._rounds * self._size))

    def stage(self, trial: SearchTrial, records: Records) -> Stage:
        last = trial.standings[-1] if trial.standings else None
        return Stage(
            state=state_of(trial),
            reason=reason_of(trial),
            rung=trial.own["round"] + max(len(trial.standings) - 1, 0),
            rungs=self._rounds,
            rank=None if last is None else records.below(last.board, (last.score, last.order, trial.request_id)) + 1,
            ranked=None if last is None else records.size(last.board),
        )

    def plan(self) -> tuple[Planned, ...]:
        """The plan if no trial is lost. Trials that are replaced after a round may be old or new, and are counted as new."""
        replaced = math.floor(self._truncated * self._size)
        ends = {self._length: replaced * (self._rounds - 1)} if replaced else {}
        whole = self._rounds * self._length
        ends[whole] = ends.get(whole, 0) + self._size
        return tuple(Planned(trials=count, units=units) for units, count in sorted(ends.items()) if count)


def explored(space: Space, point: Mapping[str, Any], how: Exploration, generator: Generator) -> dict[str, Any]:
    """The point with every hyperparameter drawn again or perturbed within its bounds; choices that are not drawn again stay. One
    whose condition was not met before is drawn."""
    return pruned(
        space, {name: _explored(space[name], point.get(name, ABSENT), how, generator) for name in sorted(space)}
    )


def _explored(spec: Any, value: Any, how: Exploration, generator: Generator) -> Any:
    """One changed hyperparameter. `value` is `ABSENT` where its condition was not met."""
    if not isinstance(spec, Mapping):
        return spec
    if spec.get("type") is None:
        return {name: _explored(spec[name], value.get(name, ABSENT), how, generator) for name in sorted(spec)}
    if spec.get("type") == "const":
        return spec["val"]
    if value is ABSENT or generator.unit() < how.resample_probability:
        return draw("x", spec, generator)
    factor = 1 + how.perturb_factor if generator.unit() < 0.5 else 1 - how.perturb_factor
    match spec["type"]:
        case "int":
            return min(max(round(value * factor), int(spec["minval"])), int(spec["maxval"]))
        case "double":
            return min(max(value * factor, float(spec["minval"])), float(spec["maxval"]))
        case "log":
            base = float(spec["base"])
            ends = sorted((base ** float(spec["minval"]), base ** float(spec["maxval"])))
            return min(max(value * factor, ends[0]), ends[1])
        case _:
            return value
