"""Idle periods that are learnt from the gaps of machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from resolute_provisioner import gaps, risk
from resolute_provisioner.gaps import LENGTHS_S, NONE_SEEN, Gaps
from resolute_provisioner.model import Cause, Evidence, Market, Offer, OfferBelief, PoolScaling, Termination
from resolute_provisioner.planning.keep_warm import IdlePeriods

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOOT_S = 180.0
OFFER = Offer(offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
POOL = PoolScaling(pool="p", offers=(OFFER,), idle_learnt=True)


def seen(*lengths_s: float) -> Gaps:
    found = NONE_SEEN
    for length_s in lengths_s:
        found = gaps.used_again(found, length_s, now=NOW)
    return found


def learnt_s(found: Gaps) -> float:
    return gaps.idle_period_s(gaps.together([found]), BOOT_S)


def test_gaps_that_end_soon_are_waited_for_and_long_ones_are_not() -> None:
    assert learnt_s(seen(*[100.0] * 60)) == 120.0
    assert learnt_s(seen(*[5000.0] * 60)) <= 30.0
    # Half end within a minute, the others take hours: the minute is waited for, and no longer.
    assert learnt_s(seen(*[50.0, 7000.0] * 40)) == 60.0


def test_without_experience_a_machine_is_kept_for_about_a_minute() -> None:
    assert 30.0 <= learnt_s(NONE_SEEN) <= 120.0


def test_the_least_cost_is_taken() -> None:
    """By trying every period on the gaps themselves."""
    lengths = [20.0, 45.0, 45.0, 120.0, 240.0, 240.0, 960.0, 5760.0] * 12
    again_s = BOOT_S * (1.0 + gaps.WAIT_WORTH)

    def cost(period_s: float) -> float:
        return sum(length if length <= period_s else period_s + again_s for length in lengths)

    best = min((0.0, *LENGTHS_S), key=cost)
    assert cost(learnt_s(seen(*lengths))) <= 1.05 * cost(best)


def test_what_was_given_back_too_early_is_found_out_with_the_next_launch() -> None:
    belief = OfferBelief(offer_id="o")
    end = Termination(instance_id="m", cause=Cause.IDLE, reason="")
    for number in range(60):
        idle_since = NOW + timedelta(hours=number)
        belief = risk.ordered(belief, end, now=idle_since + timedelta(seconds=60), idle_since=idle_since)
        belief = risk.launched(belief, now=idle_since + timedelta(seconds=85))
    assert belief.gaps.given_back == ()
    assert learnt_s(belief.gaps) == 90.0


def test_what_nothing_is_launched_for_counts_as_a_gap_without_end() -> None:
    found = gaps.given_back(NONE_SEEN, NOW, now=NOW)
    assert found.given_back == (NOW,) and found.counts == ()
    later = gaps.launched(found, now=NOW + timedelta(days=1))
    assert later.given_back == () and later.counts[-1] == 1.0
    many = found
    for number in range(200):
        many = gaps.given_back(many, NOW + timedelta(seconds=number), now=NOW + timedelta(seconds=number))
    assert len(many.given_back) == gaps.MOST_ENDED


def test_a_machine_that_is_used_at_once_had_no_gap() -> None:
    assert seen(0.0) == NONE_SEEN


def test_the_past_fades() -> None:
    assert learnt_s(seen(*[5000.0] * 100, *[100.0] * 150)) == 120.0


@pytest.mark.parametrize(
    ("change", "period_s"),
    [
        ({}, 120.0),
        ({"idle_learnt": False}, 1200.0),
        ({"idle_timeout_s": 45.0}, 45.0),
        ({"max_idle_cost": 0.5}, 1800.0),
    ],
)
def test_a_pool_learns_up_to_its_period_and_not_where_it_shall_not(change: dict[str, object], period_s: float) -> None:
    belief = OfferBelief(offer_id="o", gaps=seen(*[100.0] * 60), join_time_s=BOOT_S)
    assert IdlePeriods(replace(POOL, **change), {"o": belief}).of("o", 1.0) == period_s  # type: ignore[arg-type]


def test_machines_that_cost_nothing_more_or_have_left_the_configuration_are_kept_for_the_period() -> None:
    belief = OfferBelief(offer_id="o", gaps=seen(*[100.0] * 60))
    idle_periods = IdlePeriods(POOL, {"o": belief})
    assert idle_periods.of("o", 0.0) == idle_periods.of("gone", 1.0) == POOL.idle_timeout_s


def test_where_machines_work_for_hours_a_part_of_that_is_kept_warm_and_a_boot_is_nothing() -> None:
    lives = Evidence(joins=10.0, exposure_h=80.0)
    belief = OfferBelief(offer_id="o", gaps=seen(*[5000.0] * 60), join_time_s=BOOT_S, seen=lives)
    idle_periods = IdlePeriods(POOL, {"o": belief})
    assert idle_periods.of("o", 1.0) == 0.02 * 8 * 3600.0
    assert idle_periods.boots_are_cheap(1)
    assert not IdlePeriods(POOL, {"o": replace(belief, seen=Evidence(joins=10.0, exposure_h=5.0))}).boots_are_cheap(1)
    assert not IdlePeriods(POOL, {}).boots_are_cheap(1)
