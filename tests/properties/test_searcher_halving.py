"""Successive halving against a plain model of it that keeps everything in lists and looks at all of it each time."""

from __future__ import annotations

import math
import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.searcher.events import Create, ExitReason, SearchAction, Stop, Train
from support.effort import examples
from support.searches import SearchRun

WORST = sys.float_info.max
ROUNDS = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from([0.1, 0.2, 0.3, 0.3, 0.4, math.inf]), st.integers(0, 9)), max_size=120
)
"""Whose turn it is, what its metric is, and whether it fails (0) or turns out invalid (1) instead of telling."""


class Plain:
    """One bracket; trials are numbers in the order of their creation."""

    def __init__(self, units: list[int], divisor: float, trials: int, begun: int) -> None:
        self.units, self.divisor, self.trials = units, divisor, trials
        self.rungs: list[list[tuple[float, int]]] = [[] for _ in units]
        self.rung: dict[int, int] = {}
        self.invalid = 0
        self.said: list[tuple[str, int]] = []
        for _ in range(begun):
            self.create()

    def create(self) -> bool:
        if len(self.rung) - self.invalid >= self.trials:
            return False
        self.said.append(("create", len(self.rung)))
        self.rung[len(self.rung)] = 0
        return True

    def forget(self, trial: int) -> None:
        self.invalid += 1
        self.rungs = [[entry for entry in rung if entry[1] != trial] for rung in self.rungs]


class PlainStopping(Plain):
    def tell(self, trial: int, metric: float, time: int) -> None:
        while time >= self.units[self.rung[trial]]:
            rung = self.rungs[self.rung[trial]]
            place = sum(other < metric for other, _ in rung)
            rung.insert(place, (metric, trial))
            if self.rung[trial] == len(self.units) - 1 or place >= max(int(len(rung) / self.divisor), 1):
                self.said.append(("stop", trial))
                self.create()
                return
            self.rung[trial] += 1

    def fail(self, trial: int) -> None:
        rung = self.rungs[self.rung[trial]]
        rung.insert(sum(other < WORST for other, _ in rung), (WORST, trial))
        self.create()

    def turn_out_invalid(self, trial: int) -> None:
        self.forget(trial)
        self.create()


class PlainPromoting(Plain):
    def __init__(self, *arguments: Any) -> None:
        self.gone: set[int] = set()
        self.stopped: set[int] = set()
        self.busy: set[int] = set()
        super().__init__(*arguments)
        self.busy |= set(self.rung)

    def create(self) -> bool:
        made = super().create()
        if made:
            self.busy.add(len(self.rung) - 1)
        return made

    def result(self, trial: int, metric: float) -> bool:
        number = self.rung[trial]
        rung = self.rungs[number]
        old, new = int(len(rung) / self.divisor), int((len(rung) + 1) / self.divisor)
        place = sum(other <= metric for other, _ in rung)
        rung.insert(place, (metric, trial))
        if number == len(self.units) - 1:
            if trial not in self.gone:
                self.stop(trial)
            return False
        if place < new:
            return self.promote(trial)
        if new != old and self.rung[rung[old][1]] == number and rung[old][1] not in self.stopped:
            return self.promote(rung[old][1])
        return False

    def promote(self, trial: int) -> bool:
        self.rung[trial] += 1
        if trial in self.gone:
            return self.result(trial, WORST)
        self.said.append(("train", trial))
        self.busy.add(trial)
        return True

    def stop(self, trial: int) -> None:
        self.stopped.add(trial)
        if trial not in self.gone:
            self.said.append(("stop", trial))

    def go_on(self, given: bool) -> None:
        if not given:
            self.create()
        if len(self.rungs[0]) < self.trials:
            return
        for number, rung in enumerate(self.rungs):
            if any(self.rung[trial] == number for trial in self.busy):
                return
            for _, trial in rung:
                if self.rung[trial] == number and trial not in self.stopped:
                    self.stop(trial)

    def tell(self, trial: int, metric: float) -> None:
        self.busy.discard(trial)
        self.go_on(self.result(trial, metric))

    def fail(self, trial: int) -> None:
        self.gone.add(trial)
        if trial in self.busy:
            self.busy.discard(trial)
            self.go_on(self.result(trial, WORST))

    def turn_out_invalid(self, trial: int) -> None:
        self.gone.add(trial)
        self.busy.discard(trial)
        self.forget(trial)
        self.go_on(False)


def said_by(run: SearchRun, actions: tuple[SearchAction, ...]) -> list[tuple[str, int]]:
    names = {Create: "create", Stop: "stop", Train: "train"}
    kept = [action for action in actions if isinstance(action, Create | Stop | Train)]
    return [(names[type(action)], run.created.index(action.request_id)) for action in kept]


FAILURES = {0: ExitReason.ERRORED, 1: ExitReason.INVALID_HPARAMS}
"""What a turn comes to instead of a result."""


def fail(plain: PlainStopping | PlainPromoting, run: SearchRun, trial: int, how: int) -> tuple[SearchAction, ...]:
    """The trial ends in the model and in the search."""
    if FAILURES[how] is ExitReason.INVALID_HPARAMS:
        plain.turn_out_invalid(trial)
    else:
        plain.fail(trial)
    return run.end(run.created[trial], FAILURES[how])


def a_config(divisor: float, trials: int, at_once: int, **more: Any) -> dict[str, Any]:
    base = {"name": "async_halving", "num_rungs": 3, "metric": "loss", "smaller_is_better": True}
    return {**base, "divisor": divisor, "max_trials": trials, "max_concurrent_trials": at_once, **more}


DIVISORS = st.sampled_from([2.0, 2.5, 3.0])


def units_of(divisor: float) -> list[int]:
    return [max(math.floor(9 / divisor ** (2 - rung)), 1) for rung in range(3)]


@settings(max_examples=examples(200))
@given(DIVISORS, st.integers(1, 15), st.integers(1, 5), ROUNDS)
def test_the_stopping_form_decides_as_the_plain_model(
    divisor: float, trials: int, at_once: int, rounds: list[tuple[int, float, int]]
) -> None:
    run = SearchRun(a_config(divisor, trials, at_once, max_time=9, time_metric="batches"), reload=False)
    plain = PlainStopping(units_of(divisor), divisor, trials, min(at_once, trials))
    assert said_by(run, run.actions) == plain.said
    times: dict[int, int] = {}
    for turn, metric, how in rounds:
        live = [number for number, each in enumerate(run.created) if each in run.open and each not in run.stopped]
        if not live:
            break
        trial = live[turn % len(live)]
        plain.said.clear()
        if how in FAILURES:
            actions = fail(plain, run, trial, how)
        else:
            times[trial] = times.get(trial, 0) + how
            plain.tell(trial, metric, times[trial])
            actions = run.validate(run.created[trial], metric, times[trial])
        if run.shutdown is not None:
            break
        assert said_by(run, actions) == plain.said


@settings(max_examples=examples(300))
@given(DIVISORS, st.integers(1, 15), st.integers(1, 5), ROUNDS)
def test_the_promoting_form_decides_as_the_plain_model(
    divisor: float, trials: int, at_once: int, rounds: list[tuple[int, float, int]]
) -> None:
    run = SearchRun(a_config(divisor, trials, at_once, max_length=9), reload=False)
    plain = PlainPromoting(units_of(divisor), divisor, trials, min(at_once, trials))
    assert said_by(run, run.actions) == plain.said
    for turn, metric, how in rounds:
        live = [number for number, each in enumerate(run.created) if each in run.open and each not in run.stopped]
        told = [number for number in live if not run.row(run.created[number]).completed]
        assert told or run.shutdown or not live, "somebody trains, or all is over"
        chosen = live if how in FAILURES else told
        if not chosen:
            break
        trial = chosen[turn % len(chosen)]
        plain.said.clear()
        if how in FAILURES:
            actions = fail(plain, run, trial, how)
        else:
            plain.tell(trial, metric)
            actions = run.complete(run.created[trial], metric)
        if run.shutdown is not None:
            break
        assert said_by(run, actions) == plain.said
