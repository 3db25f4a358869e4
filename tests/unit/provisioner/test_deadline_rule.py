"""Uniform progress: where work with a deadline may run, at each distance from its line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from resolute_provisioner.model import Market
from resolute_provisioner.planning.deadline import (
    ANY,
    MARGIN_S,
    ON_DEMAND,
    RESTARTS_TO_RETURN,
    SPOT,
    WORTH_RETURNING,
    Work,
    while_running,
    while_waiting,
)
from support.provisioner import NOW, after

HOUR = 3600.0
RESTART_S = 200.0


def work(spare_s: float, *, remaining_s: float | None = HOUR, given_s: float = 10 * HOUR) -> Work:
    """With exactly `spare_s` beyond the remaining work, its margin and one restart."""
    needed = (remaining_s or 0.0) + MARGIN_S + RESTART_S
    deadline = after(needed + spare_s)
    return Work(
        submitted_at=deadline - timedelta(seconds=(remaining_s or 0.0) + given_s),
        deadline=deadline,
        remaining_s=remaining_s,
        restart_s=RESTART_S,
    )


KEPT_S = 2 * RESTART_S
"""What the line keeps for an hour of work: two restarts an hour."""


@pytest.mark.parametrize(
    ("spare_s", "markets"),
    [
        pytest.param(HOUR, SPOT, id="far ahead"),
        pytest.param(KEPT_S, SPOT, id="on its line"),
        pytest.param(KEPT_S - 1, ANY, id="just behind"),
        pytest.param(RESTART_S, ANY, id="one start may still fail"),
        pytest.param(RESTART_S - 1, ON_DEMAND, id="the safety net"),
        pytest.param(-HOUR, ON_DEMAND, id="too late already"),
    ],
)
def test_waiting_work_is_sent_where_its_spare_time_allows(spare_s: float, markets: frozenset[Market]) -> None:
    assert while_waiting(work(spare_s), NOW).markets == markets


def test_waiting_ahead_is_looked_at_again_exactly_when_it_falls_behind() -> None:
    ahead = work(KEPT_S + 500)
    choice = while_waiting(ahead, NOW)
    assert choice.revisit_at == after(500)
    assert while_waiting(ahead, after(500)).markets == SPOT
    assert while_waiting(ahead, after(501)).markets == ANY


def test_waiting_behind_is_looked_at_again_when_the_net_is_reached() -> None:
    behind = work(RESTART_S + 50)
    assert while_waiting(behind, NOW).revisit_at == after(50)
    assert while_waiting(behind, after(51)).markets == ON_DEMAND


def test_with_little_time_given_the_line_keeps_it_in_proportion_to_the_remaining_work() -> None:
    """The line of the paper, where that keeps less than the restarts would cost."""
    submitted = work(0.0, remaining_s=10 * HOUR, given_s=2000.0)
    half_done = replace(submitted, remaining_s=5 * HOUR, total_s=10 * HOUR)
    margin_s = 0.01 * 5 * HOUR
    # Half of the work is done: half of the 2,000 s are kept.
    for spare_s, markets in ((1001.0, SPOT), (999.0, ANY)):
        now = half_done.deadline - timedelta(seconds=5 * HOUR + margin_s + RESTART_S + spare_s)
        assert while_waiting(half_done, now).markets == markets


def test_work_of_unknown_length_is_started_on_demand_and_says_so() -> None:
    choice = while_waiting(work(HOUR, remaining_s=None), NOW)
    assert choice.markets == ON_DEMAND
    assert "not known" in choice.reason
    assert while_running(work(HOUR, remaining_s=None), Market.SPOT, NOW).markets == SPOT


@pytest.mark.parametrize(("spare_s", "markets"), [(0.0, SPOT), (-1.0, ON_DEMAND)])
def test_on_spot_it_stays_until_an_interruption_would_cost_the_deadline(
    spare_s: float, markets: frozenset[Market]
) -> None:
    assert while_running(work(spare_s), Market.SPOT, NOW).markets == markets


def test_unsaved_work_counts_as_remaining_on_a_machine_that_may_be_lost() -> None:
    assert while_running(replace(work(100.0), unsaved_s=101.0), Market.SPOT, NOW).markets == ON_DEMAND


@pytest.mark.parametrize(
    ("spare_s", "remaining_s", "markets"),
    [
        pytest.param(RESTARTS_TO_RETURN * RESTART_S, HOUR, SPOT, id="pays and is safe"),
        pytest.param(RESTARTS_TO_RETURN * RESTART_S - 1, HOUR, ON_DEMAND, id="hysteresis"),
        pytest.param(HOUR, WORTH_RETURNING * RESTART_S - 1, ON_DEMAND, id="nearly done"),
    ],
)
def test_on_demand_it_returns_when_that_pays_and_is_safe(
    spare_s: float, remaining_s: float, markets: frozenset[Market]
) -> None:
    assert while_running(work(spare_s, remaining_s=remaining_s), Market.ON_DEMAND, NOW).markets == markets


def test_what_was_caught_by_the_net_stays_on_demand_while_it_keeps_its_pace() -> None:
    """On a machine, spare time stays what it is: an hour later an hour less remains."""
    caught = work(RESTART_S - 1, remaining_s=6 * HOUR)
    assert while_waiting(caught, NOW).markets == ON_DEMAND
    for hours in range(1, 6):
        later = replace(caught, remaining_s=(6 - hours) * HOUR)
        assert while_running(later, Market.ON_DEMAND, after(hours * HOUR)).markets == ON_DEMAND


def test_a_person_reads_how_far_it_is_behind() -> None:
    choice = while_waiting(work(2000.0, remaining_s=24 * HOUR, given_s=100 * HOUR), NOW)
    behind_s = 24 * KEPT_S - 2000.0 + 0.01 * 24 * HOUR - MARGIN_S
    assert choice.ahead_s == pytest.approx(-behind_s)
    assert choice.reason.startswith("it is 2 h 20 min behind its line to the deadline 2026-03-02 ")


def test_whatever_happens_the_net_leaves_time_to_finish() -> None:
    """At each second of waiting, what is then allowed can still be finished after one failed start."""
    waiting = work(2 * HOUR, remaining_s=3 * HOUR)
    moment: datetime = NOW
    while (choice := while_waiting(waiting, moment)).markets != ON_DEMAND:
        left_s = (waiting.deadline - moment).total_seconds()
        if choice.markets == ANY or choice.revisit_at is None:
            assert left_s >= 3 * HOUR + 2 * RESTART_S
        moment = (choice.revisit_at or moment) + timedelta(seconds=1)
    assert (waiting.deadline - moment).total_seconds() >= 3 * HOUR + RESTART_S
