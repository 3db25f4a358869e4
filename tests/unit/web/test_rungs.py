"""The picture of a search's rungs."""

from __future__ import annotations

from typing import Any

from resolute.wire.rest.searching import GetSearchResponse, SearchedTrial
from resolute_web.rungs import LEFT, MOST_DRAWN, MOST_LABELLED, brackets_of


def a_search(*trials: SearchedTrial, smaller: bool = True) -> GetSearchResponse:
    return GetSearchResponse(
        name="async_halving", metric="loss", smaller_is_better=smaller, progress=0.5, trials=trials
    )


def a_trial(id_: int, rung: int, metric: float | None, **changes: Any) -> SearchedTrial:
    return SearchedTrial(
        trial_id=id_, number=id_, state=changes.pop("state", "stopped"), rung=rung, rungs=3, metric=metric, **changes
    )


def test_who_came_far_stands_above_and_each_rung_counts_who_reached_and_left_it() -> None:
    trials = [a_trial(1, 0, 0.9), a_trial(2, 2, 0.1, state="training"), a_trial(3, 1, 0.4), a_trial(4, 0, 0.5)]
    (bracket,) = brackets_of(a_search(*trials))
    assert [climb.trial for climb in bracket.climbs] == [2, 3, 4, 1]
    assert [(rung.reached, rung.promoted) for rung in bracket.rungs] == [(4, 2), (2, 1), (1, 0)]
    first, *_, last = bracket.climbs
    assert first.x == bracket.rungs[2].x and len(first.steps) == 3 and first.shade == 0
    assert last.x == LEFT and last.steps == [LEFT]
    assert first.y < last.y < bracket.height


def test_larger_metrics_are_the_better_ones_where_the_search_says_so() -> None:
    (bracket,) = brackets_of(a_search(a_trial(1, 0, 0.2), a_trial(2, 0, 0.9), smaller=False))
    assert [climb.trial for climb in bracket.climbs] == [2, 1]


def test_what_has_no_result_comes_last_and_is_told_in_words() -> None:
    waiting = a_trial(1, 0, None, state="waiting", reason="two of three have not come to this rung")
    (bracket,) = brackets_of(a_search(waiting, a_trial(2, 0, 0.5, rank=1, ranked=3)))
    assert [climb.trial for climb in bracket.climbs] == [2, 1]
    assert bracket.climbs[0].text == "trial 2 is stopped at rung 0, rank 1 of 3, loss 0.5"
    assert bracket.climbs[1].text.endswith(": two of three have not come to this rung")


def test_each_bracket_has_a_picture_and_a_search_without_rungs_none() -> None:
    found = brackets_of(a_search(a_trial(1, 0, 0.5, bracket=0), a_trial(2, 0, 0.4, bracket=1)))
    assert [bracket.number for bracket in found] == [0, 1]
    assert brackets_of(a_search(SearchedTrial(trial_id=1, number=0, state="training"))) == []


def test_many_trials_are_drawn_without_labels_and_too_many_are_counted() -> None:
    (bracket,) = brackets_of(a_search(*(a_trial(n, 0, n / 1000) for n in range(MOST_DRAWN + 5))))
    assert not bracket.labelled and len(bracket.climbs) == MOST_DRAWN and bracket.more == 5
    (bracket,) = brackets_of(a_search(*(a_trial(n, 0, n / 1000) for n in range(MOST_LABELLED))))
    assert bracket.labelled and bracket.more == 0
