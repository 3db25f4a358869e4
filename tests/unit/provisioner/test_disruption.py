"""Within which hours and how often work is disturbed for the sake of money."""

from __future__ import annotations

from datetime import timedelta

import pytest

from resolute_provisioner import risk
from resolute_provisioner.model import Disruption, OfferBelief, Window
from resolute_provisioner.planning.disruption import HOUR, leave
from support.provisioner import NOW, after, ago

SUNDAY = 6
"""`NOW` is a Sunday, at noon."""
DAILY = frozenset(range(7))


def window(start_h: float, end_h: float, weekdays: frozenset[int] = DAILY) -> Disruption:
    return Disruption(windows=(Window(weekdays=weekdays, start_s=start_h * 3600, end_s=end_h * 3600),))


def test_without_a_rule_work_may_always_be_moved() -> None:
    assert NOW.weekday() == SUNDAY and NOW.hour == 12
    assert leave(Disruption(), {}, NOW).given


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (window(11, 13), True),
        (window(12, 13), True),
        (window(11, 12), False),
        (window(22, 6), False),
        (window(22, 13), True),  # yesterday's, past midnight
        (window(22, 13, frozenset({5})), True),
        (window(22, 13, frozenset({SUNDAY})), False),
        (window(11, 13, frozenset({0})), False),
        (window(12, 12), True),  # a whole day from its start
    ],
)
def test_only_within_a_window(policy: Disruption, given: bool) -> None:
    found = leave(policy, {}, NOW)
    assert found.given is given
    if not given:
        assert found.revisit_at is not None and found.revisit_at > NOW
        assert leave(policy, {}, found.revisit_at).given
        assert not leave(policy, {}, found.revisit_at - timedelta(seconds=1)).given


def test_the_next_of_several_windows_counts() -> None:
    policy = Disruption(windows=(*window(22, 23).windows, *window(20, 21).windows))
    assert leave(policy, {}, NOW).revisit_at == after(8 * 3600)


def disturbed(offer_id: str, *seconds_ago: float) -> OfferBelief:
    belief = OfferBelief(offer_id=offer_id)
    for each in seconds_ago:
        belief = risk.disturbed(belief, now=ago(each))
    return belief


def test_the_rate_counts_over_all_offers_of_the_pool() -> None:
    policy = Disruption(max_per_hour=2)
    known = {"a": disturbed("a", 3000), "b": disturbed("b", 600)}
    found = leave(policy, known, NOW)
    assert not found.given and found.revisit_at == ago(3000) + HOUR
    assert leave(policy, known, ago(3000) + HOUR).given
    assert leave(policy, {"a": disturbed("a", 4000, 600)}, NOW).given


def test_a_rate_of_none_forbids_it() -> None:
    found = leave(Disruption(max_per_hour=0), {}, NOW)
    assert not found.given and found.revisit_at is None


def test_what_is_an_hour_old_is_forgotten() -> None:
    assert disturbed("a", 4000, 3000, 0).disturbed_at == (ago(3000), NOW)
