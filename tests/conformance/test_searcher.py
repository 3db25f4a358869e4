"""What every search method promises, played on each of them with the same scripts of events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.searcher.events import Create, ExitReason, PointsProposed, SearchAction, Shutdown, Stop, Train
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import sample
from resolute_master.searcher.method import TrialState
from resolute_master.searcher.methods import METHODS
from resolute_master.store.encoding import encode_entity
from support.searches import SearchRun

SPACE = {
    "a": {"type": "int", "minval": 0, "maxval": 10**9, "count": 3},
    "b": {
        "c": {"type": "double", "minval": -1, "maxval": 1, "count": 2},
        "d": {"type": "categorical", "vals": [1, 2, 3]},
    },
}
HALVING = {"max_trials": 9, "divisor": 3, "max_concurrent_trials": 3, "metric": "loss", "smaller_is_better": True}
BY_TIME = {**HALVING, "max_time": 9, "time_metric": "batches"}
BY_LENGTH = {**HALVING, "max_length": {"batches": 9}}
CONFIGS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "single with a length": {"name": "single", "max_length": 9},
    "random": {"name": "random", "max_trials": 9, "max_concurrent_trials": 3},
    "random, all at once, with a length": {
        "name": "random",
        "max_trials": 6,
        "max_concurrent_trials": 0,
        "max_length": {"epochs": 2},
    },
    "grid": {"name": "grid", "max_concurrent_trials": 4},
    "async_halving": {"name": "async_halving", "num_rungs": 3, **BY_TIME},
    "async_halving by length": {"name": "async_halving", "num_rungs": 3, "stop_once": True, **BY_LENGTH},
    "async_halving, promoting": {"name": "async_halving", "num_rungs": 3, **BY_LENGTH},
    "adaptive_asha": {"name": "adaptive_asha", "mode": "conservative", **BY_TIME},
    "adaptive_asha, larger is better": {"name": "adaptive_asha", **BY_TIME, "smaller_is_better": False},
    "adaptive_asha, promoting": {"name": "adaptive_asha", "mode": "conservative", **BY_LENGTH},
    "pbt": {
        "name": "pbt",
        "population_size": 4,
        "num_rounds": 3,
        "length_per_round": {"batches": 2},
        "replace_function": {"truncate_fraction": 0.5},
    },
    "optuna": {
        "name": "optuna",
        "max_trials": 9,
        "max_concurrent_trials": 3,
        "random_trials": 4,
        "metric": "loss",
        "smaller_is_better": True,
    },
    "optuna with a length": {"name": "optuna", "max_trials": 5, "max_concurrent_trials": 0, "max_length": 3},
}
every_method = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())

KINDS = ("progress", "validation", "validation", "length", "length", "exit")
EVENTS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 30),
    st.sampled_from([0.1, 0.2, 0.2, 0.3, 5.0, float("nan"), float("inf"), float("-inf")]),
    st.sampled_from([None, None, None, *ExitReason]),
)
SCRIPTS = st.lists(EVENTS, max_size=80)
Script = list[tuple[str, int, float, ExitReason | None]]


class Player:
    """Carries out a script as trials would act: time goes forward, lengths are completed once, the stopped end."""

    def __init__(self, config: dict[str, Any], seed: int, *, reload: bool = True) -> None:
        self.run = SearchRun(config, seed=seed, space=SPACE, reload=reload)
        self.time: dict[str, int] = {}
        self.history: list[tuple[SearchAction, ...]] = [self.run.actions]
        self.lengths: dict[str, int] = {}
        self.proposer = Generator(seed)
        self.propose()

    def play(self, script: Script) -> None:
        for kind, which, value, reason in script:
            self.one(kind, which, value, reason)

    def one(self, kind: str, which: int, value: float, reason: ExitReason | None) -> None:
        run = self.run
        if not run.open:
            return
        trial = run.open[which % len(run.open)]
        over, before = run.shutdown is not None, run.progress
        match kind:
            case "progress":
                actions = run.report(trial, which / 30)
            case "validation":
                self.time[trial] = self.time.get(trial, 0) + which % 5
                actions = run.validate(trial, value, self.time[trial])
            case "length" if run.row(trial).length is not None and not run.row(trial).completed:
                actions = run.complete(trial, value)
            case _:
                actions = run.end(trial, reason)
        self.history.append(actions)
        self.propose()
        self.check(actions, over=over)
        if kind == "validation" and not actions:
            assert run.progress >= before - 1e-9, "progress falls only when a trial ends otherwise than well"

    def propose(self) -> None:
        """As a sampler would, at once."""
        point_request = self.run.method.point_request(self.run.search)
        if point_request is not None:
            points = tuple(sample(point_request.space, self.proposer) for _ in range(point_request.points + 1))
            self.history.append(self.run.tell(PointsProposed(points=points)))
            assert self.run.method.point_request(self.run.search) is None, "and what is too much is left"

    def check(self, actions: tuple[SearchAction, ...], *, over: bool) -> None:
        run = self.run
        assert not (over and actions), "nothing follows the end of a search"
        assert len(run.created) == len(set(run.created))
        valid = len(run.created) - run.search.invalid
        assert valid <= run.method.max_trials, "never more trials than were asked for"
        assert 0.0 <= run.progress <= 1.0
        assert run.shutdown is not None or run.open, "a search with nothing open is over"
        for action in actions:
            if isinstance(action, Stop | Train):
                assert action.request_id not in run.ended, "what has ended is asked for nothing"
            if isinstance(action, Train):
                assert action.request_id not in run.stopped
                assert action.length >= self.lengths.get(action.request_id, 0), "lengths are counted from the beginning"
                self.lengths[action.request_id] = action.length
        for trial in run.open:
            row = run.row(trial)
            if row.idle and run.shutdown is None:
                assert run.method.stage(row, run.records).state is TrialState.WAITING

    def finish(self) -> Shutdown:
        """Let every trial do as it is told until nothing is left."""
        run = self.run
        for turn in range(10_000):
            if not run.open:
                break
            busy = [each for each in run.open if each in run.stopped or not run.row(each).idle]
            assert busy or run.shutdown, "somebody always has something to do"
            trial = (busy or run.open)[turn % len(busy or run.open)]
            row = run.row(trial)
            if trial in run.stopped or run.shutdown:
                self.one("exit", run.open.index(trial), 0.0, None)
            elif row.length is not None:
                self.one("length", run.open.index(trial), float(row.number % 7), None)
            else:
                self.time[trial] = self.time.get(trial, 0) + 1
                self.history.append(run.validate(trial, float(row.number % 7), self.time[trial]))
                self.propose()
                if trial not in run.stopped and self.time[trial] >= 9:
                    self.one("exit", run.open.index(trial), 0.0, None)
        assert run.shutdown is not None
        return run.shutdown


def test_every_method_is_here() -> None:
    assert {config["name"] for config in CONFIGS.values()} == set(METHODS)


@every_method
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), script=SCRIPTS)
def test_a_search_that_is_restored_before_every_event_goes_on_alike(
    config: dict[str, Any], seed: int, script: Script
) -> None:
    restored, kept = Player(config, seed), Player(config, seed, reload=False)
    restored.play(script)
    kept.play(script)
    assert restored.history == kept.history
    assert restored.run.state() == kept.run.state()


@every_method
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), script=SCRIPTS)
def test_every_search_comes_to_an_end(config: dict[str, Any], seed: int, script: Script) -> None:
    player = Player(config, seed, reload=False)
    player.play(script)
    player.finish()
    assert player.run.progress == 1.0


@every_method
def test_a_search_of_good_trials_makes_all_that_were_asked_for_and_completes(config: dict[str, Any]) -> None:
    player = Player(config, 7)
    assert player.finish() == Shutdown(cancel=False, failure=False)
    assert len(player.run.created) == sum(each.trials for each in player.run.method.plan())


@every_method
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (ExitReason.ERRORED, Shutdown(cancel=False, failure=True)),
        (ExitReason.USER_CANCELED, Shutdown(cancel=True, failure=False)),
    ],
)
def test_a_search_of_which_every_trial_fails_or_is_canceled_ends_so(
    config: dict[str, Any], reason: ExitReason, expected: Shutdown
) -> None:
    player = Player(config, 7)
    while player.run.open:
        player.one("exit", 0, 0.0, reason)
    assert player.run.shutdown == expected
    assert len(player.run.created) <= player.run.method.max_trials


@every_method
def test_what_concerns_no_open_trial_changes_nothing(config: dict[str, Any]) -> None:
    player = Player(config, 7)
    run = player.run
    first = run.open[0]
    run.end(first)
    before = run.state()
    for request_id in (first, "somebody else"):
        assert run.end(request_id, ExitReason.ERRORED) == ()
        assert run.validate(request_id, 0.1, 9) == ()
        assert run.report(request_id, 0.5) == ()
    assert run.state() == before


@every_method
def test_another_seed_gives_other_trials(config: dict[str, Any]) -> None:
    assert Player(config, 1).run.created != Player(config, 2).run.created
    assert Player(config, 1).run.points == Player(config, 1).run.points


@every_method
def test_what_an_event_writes_does_not_grow_with_the_search(config: dict[str, Any]) -> None:
    """The row of the search, and few rows of trials."""
    player = Player(config, 7, reload=False)
    run, largest = player.run, 0
    while run.open:
        player.one("length" if run.row(run.open[0]).length else "exit", 0, 1.0, None)
        if run.open and run.open[0] in run.stopped:
            player.one("exit", 0, 0.0, None)
        rows = [encode_entity(row) for row in {row.id: row for row in run.records.written}.values()]
        largest = max(largest, *map(len, rows), len(encode_entity(run.search)))
    assert largest < 1500


@every_method
def test_the_plan_goes_by_ascending_units_and_has_no_more_trials_than_the_search_may_make(
    config: dict[str, Any],
) -> None:
    run = SearchRun(config, space=SPACE)
    plan = run.method.plan()
    assert 0 < sum(each.trials for each in plan) <= run.method.max_trials
    assert [each.units or 0 for each in plan] == sorted(each.units or 0 for each in plan)


def test_actions_name_the_trials_that_they_create() -> None:
    run = SearchRun(CONFIGS["random"], space=SPACE)
    assert [a.request_id for a in run.actions if isinstance(a, Create)] == run.created
