"""Single and random search: how many trials, one after the other, and how the search ends."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from resolute.errors import InvalidInput
from resolute_master.searcher.events import Create, ExitReason, SearchAction, Shutdown
from resolute_master.searcher.method import INVALID_PER_TRIAL
from resolute_master.searcher.methods import make
from support.searches import SPACE, SearchRun

SINGLE = {"name": "single", "metric": "loss", "smaller_is_better": True}


def random_config(trials: int, at_once: int = 0) -> dict[str, Any]:
    return {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": at_once}


def created(actions: tuple[SearchAction, ...]) -> list[str]:
    return [action.request_id for action in actions if isinstance(action, Create)]


def test_single_asks_for_one_trial_and_completes_with_it() -> None:
    search = SearchRun(SINGLE)
    assert len(search.open) == 1
    assert UUID(search.open[0]).version == 4
    assert search.end(search.open[0]) == (Shutdown(cancel=False, failure=False),)


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (ExitReason.ERRORED, Shutdown(cancel=False, failure=True)),
        (ExitReason.USER_CANCELED, Shutdown(cancel=True, failure=False)),
        (ExitReason.INVALID_HPARAMS, Shutdown(cancel=False, failure=False)),
    ],
)
def test_the_end_of_the_only_trial_is_the_end_of_the_search(reason: ExitReason, end: Shutdown) -> None:
    search = SearchRun(SINGLE)
    assert search.end(search.open[0], reason) == (end,)


def test_random_keeps_the_limit_of_concurrent_trials_and_reaches_the_number_of_trials() -> None:
    search = SearchRun(random_config(5, at_once=2))
    seen = list(search.open)
    while search.open:
        assert len(search.open) <= 2
        search.end(search.open[0])
        seen = list(dict.fromkeys([*seen, *search.open]))
    assert len(seen) == 5
    assert search.actions == (Shutdown(cancel=False, failure=False),)


def test_a_limit_of_zero_starts_all_trials_at_once() -> None:
    assert len(SearchRun(random_config(6)).open) == 6


def test_an_invalid_point_is_replaced_and_counts_neither_as_trial_nor_as_failure() -> None:
    search = SearchRun(random_config(2, at_once=1))
    search.end(search.open[0], ExitReason.INVALID_HPARAMS)
    assert len(search.open) == 1
    search.end(search.open[0], ExitReason.ERRORED)
    assert search.end(search.open[0], ExitReason.ERRORED) == (Shutdown(cancel=False, failure=True),)


def test_one_clean_trial_makes_the_search_complete() -> None:
    search = SearchRun(random_config(3))
    search.end(search.open[0], ExitReason.ERRORED)
    search.end(search.open[0])
    assert search.end(search.open[0], ExitReason.ERRORED) == (Shutdown(cancel=False, failure=False),)


def test_a_failed_trial_is_not_replaced() -> None:
    search = SearchRun(random_config(2))
    assert search.end(search.open[0], ExitReason.ERRORED) == ()


def test_a_search_that_finds_only_invalid_points_gives_up() -> None:
    search = SearchRun(random_config(1))
    for _ in range(INVALID_PER_TRIAL):
        assert created(search.end(search.open[0], ExitReason.INVALID_HPARAMS))
    reason = f"{INVALID_PER_TRIAL + 1} points were invalid"
    end = Shutdown(cancel=False, failure=True, reason=reason)
    assert search.end(search.open[0], ExitReason.INVALID_HPARAMS) == (end,)


def test_a_repeated_or_unknown_exit_changes_nothing() -> None:
    search = SearchRun(random_config(2))
    first = search.open[0]
    search.end(first)
    before = search.state()
    assert search.end(first, ExitReason.ERRORED) == ()
    assert search.end("somebody else") == ()
    assert search.state() == before


def test_validations_ask_for_nothing() -> None:
    search = SearchRun(SINGLE)
    assert search.validate(search.open[0], float("nan")) == ()


def test_progress_is_that_of_all_wanted_trials_and_never_falls() -> None:
    search = SearchRun(random_config(4, at_once=2))
    assert search.progress == 0.0
    search.report(search.open[0], 0.5)
    assert search.progress == pytest.approx(0.125)
    search.report(search.open[1], float("nan"))
    assert search.progress == pytest.approx(0.125)
    search.end(search.open[0])
    assert search.progress == pytest.approx(0.25)
    while search.open:
        search.end(search.open[0])
    assert search.progress == 1.0


@pytest.mark.parametrize("name", ["custom", "sync_halving", "adaptive", None])
def test_a_method_that_is_not_there_is_refused_by_name(name: str | None) -> None:
    with pytest.raises(InvalidInput, match=rf"searcher\.name: '{name}'.*single, random"):
        make({"name": name}, SPACE)


@pytest.mark.parametrize(("trials", "at_once", "key"), [(0, 1, "max_trials"), (1, -1, "max_concurrent_trials")])
def test_impossible_counts_are_refused_by_their_key(trials: int, at_once: int, key: str) -> None:
    with pytest.raises(InvalidInput, match=key):
        make(random_config(trials, at_once), SPACE)
