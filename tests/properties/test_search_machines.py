"""Each search method through whatever happens to its trials: what it promises holds after every event, also restored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resolute_master.searcher.events import Create, ExitReason, PointsProposed, SearchAction, Stop, Train
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import sample
from support.searches import SPACE, SearchRun

METRICS = st.sampled_from([0.1, 0.2, 0.2, 0.3, 0.5, float("nan"), float("inf")])
HALVING = {
    "metric": "loss",
    "smaller_is_better": True,
    "divisor": 2,
    "max_trials": 9,
    "max_concurrent_trials": 3,
}
TOP = 4
PBT = {"name": "pbt", "metric": "loss", "population_size": 4, "num_rounds": 3, "length_per_round": {"batches": 2}}


class SearchMachine(RuleBasedStateMachine):
    """A search that is kept in memory, and the same one written down and read back before every event."""

    config: ClassVar[Mapping[str, Any]]
    space: ClassVar[Mapping[str, Any]] = SPACE

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()
        self.going_on: list[tuple[str, int, int]] = []
        """Who was let go on, and its place among how many results."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.run = SearchRun(self.config, seed=seed, space=self.space, reload=False)
        self.restored = SearchRun(self.config, seed=seed, space=self.space, reload=True)
        self.draws = Generator(seed)
        assert self.run.actions == self.restored.actions
        self.propose()

    def tell(self, name: str, *arguments: Any) -> tuple[SearchAction, ...]:
        """To both; they answer alike."""
        actions: tuple[SearchAction, ...] = getattr(self.run, name)(*arguments)
        assert getattr(self.restored, name)(*arguments) == actions
        self.propose()
        return actions

    def propose(self) -> None:
        point_request = self.run.method.point_request(self.run.search)
        if point_request is not None:
            points = tuple(sample(point_request.space, self.draws) for _ in range(point_request.points))
            event = PointsProposed(points=points)
            assert self.run.tell(event) == self.restored.tell(event)

    @property
    def busy(self) -> list[str]:
        """Trials that train."""
        run = self.run
        return [each for each in run.open if each not in run.stopped and not run.row(each).idle]

    def a_busy_one(self, turn: int) -> str:
        return self.busy[turn % len(self.busy)]

    # -- what trials do ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.busy and not self.run.shutdown)
    @rule(turn=st.integers(0, 99), metric=METRICS, steps=st.integers(1, 2))
    def train(self, turn: int, metric: float, steps: int) -> None:
        trial = self.a_busy_one(turn)
        if self.run.row(trial).length is not None:
            self.judged(trial, self.tell("complete", trial, metric))
            return
        self.times[trial] = min(self.times[trial] + steps, TOP)
        self.judged(trial, self.tell("validate", trial, metric, self.times[trial]))

    @precondition(lambda self: self.run.open)
    @rule(turn=st.integers(0, 99), reason=st.sampled_from([None, None, *ExitReason]))
    def leave(self, turn: int, reason: ExitReason | None) -> None:
        trial = self.run.open[turn % len(self.run.open)]
        self.judged(trial, self.tell("end", trial, reason))

    @precondition(lambda self: any(each in self.run.stopped for each in self.run.open))
    @rule()
    def the_stopped_leave(self) -> None:
        for trial in [each for each in self.run.open if each in self.run.stopped]:
            self.tell("end", trial, None)

    @precondition(lambda self: self.busy)
    @rule(turn=st.integers(0, 99), share=st.floats(0, 1))
    def progress(self, turn: int, share: float) -> None:
        assert self.tell("report", self.a_busy_one(turn), share) == ()

    @precondition(lambda self: not self.run.open)
    @rule()
    def nothing_is_left(self) -> None:
        assert self.run.shutdown is not None

    # -- what holds --------------------------------------------------------------------------------------------

    def judged(self, trial: str, actions: tuple[SearchAction, ...]) -> None:
        """For subclasses: what the search has made of it."""

    @invariant()
    def never_more_trials_than_were_asked_for(self) -> None:
        run = self.run
        assert len(run.created) - run.search.invalid <= run.method.max_trials
        assert len(set(run.created)) == len(run.created)

    @invariant()
    def it_is_over_when_nothing_is_left_and_not_before(self) -> None:
        run = self.run
        assert 0.0 <= run.progress <= 1.0
        assert run.shutdown is not None or self.busy or any(each in run.stopped for each in run.open)

    def teardown(self) -> None:
        """Whatever has happened, it comes to an end."""
        if not hasattr(self, "run"):
            return
        for turn in range(2_000):
            if not self.run.open:
                break
            if self.run.shutdown is None and self.busy:
                trial = self.a_busy_one(turn)
                if self.run.row(trial).length is not None:
                    self.judged(trial, self.tell("complete", trial, 0.25))
                else:
                    self.times[trial] = TOP
                    self.judged(trial, self.tell("validate", trial, 0.25, TOP))
                    if trial not in self.run.stopped:
                        self.tell("end", trial, None)
            else:
                self.tell("end", self.run.open[0], None)
        assert self.run.shutdown is not None and not self.run.open
        assert self.run.state() == self.restored.state()


class AtOnceMachine(SearchMachine):
    """Methods that keep so many trials at a time, whatever they report."""

    at_once: ClassVar[int]

    @invariant()
    def never_more_at_a_time(self) -> None:
        assert len(self.run.open) <= self.at_once


class RandomMachine(AtOnceMachine):
    config: ClassVar[Mapping[str, Any]] = {"name": "random", "max_trials": 8, "max_concurrent_trials": 3}
    at_once: ClassVar[int] = 3


class SingleMachine(AtOnceMachine):
    config: ClassVar[Mapping[str, Any]] = {"name": "single"}
    at_once: ClassVar[int] = 1


class OptunaMachine(AtOnceMachine):
    config: ClassVar[Mapping[str, Any]] = {
        "name": "optuna",
        "metric": "loss",
        "max_trials": 8,
        "max_concurrent_trials": 3,
        "random_trials": 2,
        "max_length": TOP,
    }
    at_once: ClassVar[int] = 3


class GridMachine(AtOnceMachine):
    config: ClassVar[Mapping[str, Any]] = {"name": "grid", "max_concurrent_trials": 3}
    space: ClassVar[Mapping[str, Any]] = {
        "a": {"type": "int", "minval": 1, "maxval": 4, "count": 4},
        "b": {"type": "categorical", "vals": ["x", "y"]},
    }
    at_once: ClassVar[int] = 3

    @invariant()
    def no_point_is_tried_twice(self) -> None:
        points = [tuple(sorted(point.items())) for point in self.run.points.values()]
        assert len(set(points)) == len(points) <= 8


class HalvingMachine(SearchMachine):
    """Rungs, and which trials go on from them."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: dict[str, int] = {}
        """Rungs that each trial has reported at."""

    def places(self, trial: str) -> list[tuple[str, int, int]]:
        """Boards on which it stands, its place there, and how many do."""
        row, records = self.run.row(trial), self.run.records
        return [
            (each.board, records.below(each.board, (each.score, each.order, trial)), records.size(each.board))
            for each in row.standings
        ]

    def judged(self, trial: str, actions: tuple[SearchAction, ...]) -> None:
        for action in actions:
            if isinstance(action, Train):
                row = self.run.row(action.request_id)
                self.is_among_the_best(action.request_id, row.own["rung"] - 1)
        row = self.run.row(trial)
        reached = self.reached.get(trial, 0)
        self.reached[trial] = len(row.standings)
        # Between two rungs it goes on as it was allowed to, whatever others have reported since.
        at_rung = len(row.standings) > reached
        if row.open and not row.stopped and not row.idle and row.length is None and at_rung:
            self.is_among_the_best(trial, row.own["rung"] - 1)

    def is_among_the_best(self, trial: str, rung: int) -> None:
        bracket = self.run.row(trial).own["bracket"]
        place, results = next((p, n) for board, p, n in self.places(trial) if board == f"{bracket}/{rung}")
        assert place < max(math.floor(results / 2), 1), "only the best go on"

    @invariant()
    def rungs_have_the_sizes_of_the_search(self) -> None:
        """Nobody comes to a rung but from the one below, and to the first no more than there are valid trials."""
        run = self.run
        for row in run.records.rows.values():
            boards = [standing.board for standing in row.standings]
            bracket = row.own["bracket"]
            assert boards == [f"{bracket}/{rung}" for rung in range(len(boards))]
            # One that has called its hyperparameters invalid stands nowhere any more.
            assert not (row.open or boards) or row.own["rung"] <= len(boards) <= row.own["rung"] + 1
        for bracket, at_most in enumerate(self.trials_of_brackets()):
            assert run.records.size(f"{bracket}/0") <= at_most

    def trials_of_brackets(self) -> list[int]:
        found: Counter[int] = Counter()
        for row in self.run.records.rows.values():
            found[row.own["bracket"]] += 1
        return [found[bracket] for bracket in sorted(found)]


class TimeMachine(HalvingMachine):
    config: ClassVar[Mapping[str, Any]] = {
        **HALVING,
        "name": "async_halving",
        "num_rungs": 3,
        "max_time": TOP,
        "time_metric": "batches",
    }


class StoppingMachine(HalvingMachine):
    config: ClassVar[Mapping[str, Any]] = {
        **HALVING,
        "name": "async_halving",
        "num_rungs": 3,
        "max_length": TOP,
        "stop_once": True,
    }


class PromotingMachine(HalvingMachine):
    config: ClassVar[Mapping[str, Any]] = {**HALVING, "name": "async_halving", "num_rungs": 3, "max_length": TOP}


class AdaptiveMachine(HalvingMachine):
    config: ClassVar[Mapping[str, Any]] = {
        **HALVING,
        "name": "adaptive_asha",
        "mode": "conservative",
        "max_rungs": 3,
        "max_length": TOP,
    }


class PopulationMachine(SearchMachine):
    config: ClassVar[Mapping[str, Any]] = {**PBT, "replace_function": {"truncate_fraction": 0.25}}

    @invariant()
    def the_population_keeps_its_size(self) -> None:
        alive = [each for each in self.run.open if each not in self.run.stopped]
        assert len(alive) <= 4

    def judged(self, trial: str, actions: tuple[SearchAction, ...]) -> None:
        """At the end of a round the worst are replaced by copies of the best, and of nobody else."""
        stopped = [each.request_id for each in actions if isinstance(each, Stop)]
        kept = [each.request_id for each in actions if isinstance(each, Train)]
        if not kept:
            return
        number = self.run.search.own["round"] - 1

        def score(request_id: str) -> tuple[float, int]:
            standing = next(s for s in self.run.row(request_id).standings if s.board == f"round {number}")
            return (standing.score, standing.order)

        assert not stopped or max(map(score, kept)) < min(map(score, stopped))
        assert {each.source for each in actions if isinstance(each, Create)} <= set(kept)


MACHINE = settings(max_examples=10, stateful_step_count=30)
for _machine in (
    SingleMachine,
    RandomMachine,
    GridMachine,
    OptunaMachine,
    TimeMachine,
    StoppingMachine,
    PromotingMachine,
    AdaptiveMachine,
    PopulationMachine,
):
    _machine.TestCase.settings = MACHINE
TestSingle = SingleMachine.TestCase
TestRandom = RandomMachine.TestCase
TestGrid = GridMachine.TestCase
TestOptuna = OptunaMachine.TestCase
TestHalvingByTime = TimeMachine.TestCase
TestHalvingStopping = StoppingMachine.TestCase
TestHalvingPromoting = PromotingMachine.TestCase
TestAdaptive = AdaptiveMachine.TestCase
TestPopulation = PopulationMachine.TestCase
