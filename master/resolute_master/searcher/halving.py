"""`async_halving` and `adaptive_asha`: brackets of asynchronous successive halving.

In a bracket every trial starts at rung 0. Rung i requires `units[i]`; a trial that has trained this far is on the rung's board
with its metric. One in `divisor` continues to the next rung. There are two forms:

- stopping: at its report a trial that is among the best so far continues, any other is stopped;
- promoting: a trial waits without slots, and continues as soon as it is among the best, which later reports of others may cause.

The time metric of its validations, or the lengths that it completes, measure how far a trial has trained.

Source: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from resolute.errors import InvalidInput
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.worth import Worth, likely, ranked
from resolute_master.searcher.events import ExitReason, ValidationCompleted
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.method import Draft, Method, Planned, Stage, fraction, reason_of, score_of, state_of
from resolute_master.searcher.records import Records

LOST = sys.float_info.max
"""Score of a trial that ended before its rung: behind every metric that is a number."""

STRAGGLERS = 1.2
"""Remaining fraction of a search in which all trials have reported at the first rung."""


class Bracket(Struct, frozen=True, kw_only=True):
    """One bracket: the lengths of its rungs, and the number of trials, at most `at_once` of them at the beginning."""

    units: tuple[int, ...]
    divisor: float
    max_trials: int
    at_once: int

    @property
    def top(self) -> int:
        return len(self.units) - 1

    def kept(self, results: int) -> int:
        """Number of `results` trials that continue."""
        return max(math.floor(results / self.divisor), 1)


class _State:
    """The counts of a bracket. Trials at rungs before `closed` that were not promoted have been stopped."""

    def __init__(self, own: Mapping[str, Any], index: int, rungs: int) -> None:
        row: list[Any] = own["brackets"][index] if own else [0, 0, 0, 0, [0] * rungs]
        self.created: int = row[0]
        self.invalid: int = row[1]
        self.ended: int = row[2]
        self.closed: int = row[3]
        self.outstanding: list[int] = list(row[4])
        """Number of trials that train for each rung."""

    @property
    def row(self) -> list[Any]:
        return [self.created, self.invalid, self.ended, self.closed, self.outstanding]


class HalvingSearch(Method):
    """Asynchronous successive halving. `by_length`: trials train for the lengths of the rungs; otherwise `units` count the time
    metric, and trials are stopped."""

    def __init__(
        self,
        space: Space,
        brackets: Sequence[Bracket],
        *,
        smaller_is_better: bool,
        by_length: bool = False,
        promotes: bool = False,
        length: int | None = None,
    ) -> None:
        """`length`: the length of every trial where the rungs count the time metric."""
        self._space = space
        self._brackets = tuple(brackets)
        self._smaller = smaller_is_better
        self._by_length = by_length
        self._promotes = promotes and by_length
        self._length = length

    @property
    def max_trials(self) -> int:
        return sum(bracket.max_trials for bracket in self._brackets)

    @property
    def at_once(self) -> int:
        return sum(min(bracket.at_once, bracket.max_trials) for bracket in self._brackets)

    # -- events ------------------------------------------------------------------------------------------------

    def begin(self, draft: Draft) -> None:
        draft.own["brackets"] = [_State({}, 0, len(each.units)).row for each in self._brackets]
        for index, bracket in enumerate(self._brackets):
            for _ in range(min(bracket.at_once, bracket.max_trials)):
                self._create(draft, index)

    def validated(self, draft: Draft, trial: SearchTrial, event: ValidationCompleted) -> None:
        """Enters the metric at every rung that the trial has reached since its previous report."""
        if self._by_length:
            return
        if event.metric is None or event.time is None or not math.isfinite(event.time):
            missing = "the searcher's metric" if event.metric is None else "the time metric, as a finite number"
            draft.shut_down(
                failure=True, reason=f"a validation after {event.steps_completed} steps does not hold {missing}"
            )
            return
        index, rung = _place_of(trial)
        bracket = self._brackets[index]
        while int(event.time) >= bracket.units[rung]:
            trial, goes_on, reason = self._judge(draft, trial, event.metric)
            if not goes_on:
                draft.stop(trial, reason)
                self._replace(draft, index)
                return
            rung += 1
            trial = self._rise(draft, trial, reason)

    def completed(self, draft: Draft, trial: SearchTrial, metric: float) -> None:
        if not self._by_length:
            super().completed(draft, trial, metric)
            return
        index, rung = _place_of(trial)
        if self._promotes:
            issued = self._report(draft, trial, score_of(metric, smaller_is_better=self._smaller))
            self._go_on(draft, index, issued=issued)
            return
        trial, goes_on, reason = self._judge(draft, trial, metric)
        if goes_on:
            draft.train(self._rise(draft, trial), self._brackets[index].units[rung + 1], reason)
        else:
            draft.stop(trial, reason)
            self._replace(draft, index)

    def exited(self, draft: Draft, trial: SearchTrial, reason: ExitReason | None) -> None:
        index, rung = _place_of(trial)
        state = self._state(draft.own, index)
        state.ended += 1
        invalid = reason is ExitReason.INVALID_HPARAMS
        state.invalid += invalid
        trains = not trial.stopped and not (trial.length is not None and trial.completed)
        if trains and invalid and self._promotes:
            state.outstanding[rung] -= 1
        self._keep(draft, index, state)
        if invalid:
            draft.update(trial, standings=())
            for told in range(rung + 1):
                self._compare_again(draft, index, told)
            self._go_on(draft, index, issued=False)
        elif self._promotes and trains:
            # No trial waits for ever for one that has ended.
            self._go_on(draft, index, issued=self._report(draft, trial, LOST))
        elif not self._promotes and reason is not None and not trial.stopped:
            draft.stand(trial, _board(index, rung), LOST, newest_first=True)
            self._compare_again(draft, index, rung)
            self._replace(draft, index)

    # -- both forms --------------------------------------------------------------------------------------------

    def _create(self, draft: Draft, index: int) -> None:
        state, bracket = self._state(draft.own, index), self._brackets[index]
        state.created += 1
        state.outstanding[0] += 1
        state.closed = 0
        length = bracket.units[0] if self._by_length else self._length
        trial = draft.create(self._space, length=length, own={"bracket": index, "rung": 0})
        draft.update(trial, worth=self._worth(draft.records, trial))
        self._keep(draft, index, state)

    def _replace(self, draft: Draft, index: int) -> bool:
        """Creates one more trial, unless all requested ones exist."""
        state = self._state(draft.own, index)
        if draft.search.over or state.created - state.invalid >= self._brackets[index].max_trials:
            return False
        self._create(draft, index)
        return True

    def _state(self, own: Mapping[str, Any], index: int) -> _State:
        return _State(own, index, len(self._brackets[index].units))

    def _keep(self, draft: Draft, index: int, state: _State) -> None:
        rows = list(draft.own["brackets"])
        rows[index] = state.row
        draft.own["brackets"] = rows

    # -- stopping ----------------------------------------------------------------------------------------------

    def _judge(self, draft: Draft, trial: SearchTrial, metric: float) -> tuple[SearchTrial, bool, str]:
        """The trial's result at its rung, whether it continues from there, and why."""
        index, rung = _place_of(trial)
        bracket, board = self._brackets[index], _board(index, rung)
        score = score_of(metric, smaller_is_better=self._smaller)
        trial, place = draft.stand(trial, board, score, newest_first=True)
        results = draft.records.size(board)
        kept = bracket.kept(results)
        where = self._where(index, rung)
        self._compare_again(draft, index, rung)
        if rung == bracket.top:
            return trial, False, f"it has trained to the last {where}: rank {place + 1} of {results}"
        of = f"rank {place + 1} of {results}; the best {kept} continue"
        return trial, place < kept, f"{'it continues' if place < kept else 'it was stopped'} at {where}: {of}"

    # -- promoting ---------------------------------------------------------------------------------------------

    def _report(self, draft: Draft, trial: SearchTrial, score: float) -> bool:
        """Enters a result at the trial's rung; returns whether any trial got a length because of it."""
        index, rung = _place_of(trial)
        bracket, board, state = self._brackets[index], _board(index, rung), self._state(draft.own, index)
        state.outstanding[rung] -= 1
        self._keep(draft, index, state)
        before = draft.records.size(board)
        trial, place = draft.stand(trial, board, score, newest_first=False)
        where = self._where(index, rung)
        self._compare_again(draft, index, rung)
        if rung == bracket.top:
            if trial.open:
                draft.stop(trial, f"it has trained to the last {where}: rank {place + 1} of {before + 1}")
            return False
        old, new = math.floor(before / bracket.divisor), math.floor((before + 1) / bracket.divisor)
        if trial.open:
            draft.update(
                trial, reason=f"it waits at {where}: rank {place + 1} of {before + 1}; the best {new} continue"
            )
        if place < new:
            return self._promote(draft, trial)
        if new != old:
            best = draft.records.at(board, old)
            if _place_of(best)[1] == rung and not best.stopped:
                return self._promote(draft, best)
        return False

    def _promote(self, draft: Draft, trial: SearchTrial) -> bool:
        """Promotes a trial. If it has ended, it gets the worst result at the next rung at once."""
        index, rung = _place_of(trial)
        state = self._state(draft.own, index)
        state.outstanding[rung + 1] += 1
        self._keep(draft, index, state)
        trial = self._rise(draft, trial)
        if not trial.open:
            return self._report(draft, trial, LOST)
        draft.train(trial, self._brackets[index].units[rung + 1], f"it was promoted from {self._where(index, rung)}")
        return True

    def _go_on(self, draft: Draft, index: int, *, issued: bool) -> None:
        if not issued:
            self._replace(draft, index)
        if self._promotes:
            self._close_out(draft, index)

    def _close_out(self, draft: Draft, index: int) -> None:
        """Once all trials have reported at rung 0, stops trials at rungs that no further trial will reach, because they cannot be
        promoted."""
        bracket = self._brackets[index]
        if draft.records.size(_board(index, 0)) < bracket.max_trials:
            return
        state = self._state(draft.own, index)
        while state.closed <= bracket.top and not state.outstanding[state.closed]:
            rung, board = state.closed, _board(index, state.closed)
            for place in range(draft.records.size(board)):
                trial = draft.records.at(board, place)
                if _place_of(trial)[1] == rung and trial.open and not trial.stopped:
                    draft.stop(trial, f"it was stopped at {self._where(index, rung)}: rank {place + 1}, not promoted")
            state.closed += 1
        self._keep(draft, index, state)

    # -- what trials are worth ---------------------------------------------------------------------------------

    def _rise(self, draft: Draft, trial: SearchTrial, reason: str = "") -> SearchTrial:
        """Moves the trial to the next rung."""
        own = {**trial.own, "rung": trial.own["rung"] + 1}
        trial = draft.update(trial, own=own, reason=reason or trial.reason)
        return draft.update(trial, worth=self._worth(draft.records, trial))

    def _compare_again(self, draft: Draft, index: int, rung: int) -> None:
        """Updates the worth of trials after a result of the rung was added or removed. Of the trials that continued from the
        rung, at most one moves across each of the two thresholds: to continue from this rung, and to continue from the next
        one."""
        bracket, board = self._brackets[index], _board(index, rung)
        results = draft.records.size(board)
        kept = bracket.kept(results)
        again = bracket.kept(kept)
        for place in sorted({again - 1, again, kept - 1, kept}):
            if place < results:
                trial = draft.records.at(board, place)
                if trial.open and not trial.stopped and trial.own["rung"] == rung + 1:
                    worth = self._worth(draft.records, trial)
                    if worth != trial.worth:
                        draft.update(trial, worth=worth)

    def _worth(self, records: Records, trial: SearchTrial) -> Worth:
        """Worth of a trial that trains: by its place among all present results at the rung before."""
        index, rung = _place_of(trial)
        bracket = self._brackets[index]
        undecided = likely(1.0 if bracket.top == 0 else 1 / bracket.divisor)
        if rung == 0:
            return ranked(undecided, rung)
        board = _board(index, rung - 1)
        last = next(each for each in trial.standings if each.board == board)
        place = records.below(board, (last.score, last.order, trial.request_id))
        kept = bracket.kept(records.size(board))
        if place >= kept:
            return ranked(0.0, rung, last.score)
        sure = rung == bracket.top or place < bracket.kept(kept)
        return ranked(1.0 if sure else undecided, rung, last.score)

    # -- people ------------------------------------------------------------------------------------------------

    def progress(self, search: Search, records: Records) -> float:
        if search.over:
            return 1.0
        parts = [self._part(search, records, index) for index in range(len(self._brackets))]
        return fraction(sum(parts) / len(parts))

    def _part(self, search: Search, records: Records, index: int) -> float:
        bracket, state = self._brackets[index], self._state(search.own, index)
        told = records.size(_board(index, 0))
        part = told / (STRAGGLERS * bracket.max_trials)
        if told == bracket.max_trials:
            part = max(part, (state.ended - state.invalid) / bracket.max_trials)
        return part

    def stage(self, trial: SearchTrial, records: Records) -> Stage:
        index, rung = _place_of(trial)
        last = trial.standings[-1] if trial.standings else None
        return Stage(
            state=state_of(trial),
            reason=reason_of(trial, f", and trains for {self._where(index, rung)}"),
            bracket=index,
            rung=rung,
            rungs=len(self._brackets[index].units),
            rank=None if last is None else records.below(last.board, (last.score, last.order, trial.request_id)) + 1,
            ranked=None if last is None else records.size(last.board),
        )

    def plan(self) -> tuple[Planned, ...]:
        """Trials by length, by the sizes of the rungs; results decide which ones."""
        ends: Counter[int] = Counter()
        for bracket in self._brackets:
            left = bracket.max_trials
            for rung, units in enumerate(bracket.units):
                on = 0 if rung == bracket.top else bracket.kept(left)
                ends[units] += left - on
                left = on
        return tuple(Planned(trials=count, units=units) for units, count in sorted(ends.items()) if count)

    def _where(self, index: int, rung: int) -> str:
        bracket = f" of bracket {index}" if len(self._brackets) > 1 else ""
        return f"rung {rung}{bracket} ({self._brackets[index].units[rung]})"


def _place_of(trial: SearchTrial) -> tuple[int, int]:
    """The bracket of a trial, and the rung that it trains for or was judged at."""
    return trial.own["bracket"], trial.own["rung"]


def _board(index: int, rung: int) -> str:
    return f"{index}/{rung}"


# --------------------------------------------------------------------------------------------------------- brackets


def one_bracket(*, num_rungs: int, divisor: float, max_trials: int, units: int, at_once: int) -> Bracket:
    """`units` are those of the top rung; with `at_once` 0 as many begin as the top rung needs below it."""
    if divisor <= 1:
        raise InvalidInput(f"searcher.divisor: must be more than 1, not {divisor}")
    if num_rungs < 1 or max_trials < 1 or units < 1:
        raise InvalidInput(
            f"searcher: {num_rungs} rung(s), {max_trials} trial(s) and a length of {units} must each be at least 1"
        )
    if num_rungs > MAX_RUNGS:
        raise InvalidInput(f"searcher: {num_rungs} rungs are over the limit of {MAX_RUNGS}; use fewer")
    lengths = tuple(max(math.floor(units / divisor ** (num_rungs - 1 - rung)), 1) for rung in range(num_rungs))
    begun = min(at_once, max_trials) if at_once else max(min(math.floor(divisor ** (num_rungs - 1)), max_trials), 1)
    return Bracket(units=lengths, divisor=divisor, max_trials=max_trials, at_once=begun)


MAX_RUNGS = 100
"""Most rungs of a bracket; with a divisor of 2 these are more units than can be counted."""


def rung_counts(
    *, mode: str, max_rungs: int, bracket_rungs: Sequence[int], divisor: float, max_trials: int, units: int
) -> list[int]:
    """Number of rungs of each bracket; the bracket that stops earliest comes first."""
    if bracket_rungs:
        return sorted(bracket_rungs, reverse=True)
    most = min(
        max_rungs,
        math.floor(math.log(units) / math.log(divisor)) + 1,
        math.floor(math.log(max_trials) / math.log(divisor)) + 1,
    )
    fewest = {"aggressive": most, "standard": (most - 1) // 2 + 1, "conservative": 1}[mode]
    return list(range(most, fewest - 1, -1))


def adaptive_brackets(
    rungs: Sequence[int], *, divisor: float, max_trials: int, units: int, at_once: int
) -> list[Bracket]:
    """Trials and concurrency divided among brackets by their rungs; the remainder goes to the first ones."""
    weights = [divisor ** (count - 1) / count for count in rungs]
    trials = [max(math.floor(weight / sum(weights) * max_trials), 1) for weight in weights]
    trials[0] += max(max_trials - sum(trials), 0)
    if at_once:
        share, more = divmod(max(at_once, len(rungs)), len(rungs))
        places = [share + (index < more) for index in range(len(rungs))]
    else:
        places = [max(trials[-1], math.floor(divisor))] * len(rungs)
    return [
        one_bracket(num_rungs=count, divisor=divisor, max_trials=size, units=units, at_once=place)
        for count, size, place in zip(rungs, trials, places, strict=True)
    ]
