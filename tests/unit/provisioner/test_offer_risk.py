"""What refusals, failed boots and successes do to the belief about an offer."""

from __future__ import annotations

from resolute_provisioner import risk
from resolute_provisioner.model import OfferBelief, RefusalKind
from support.provisioner import NOW, after, ago

FRESH = OfferBelief(offer_id="small")


def test_a_fresh_offer_may_be_asked_for() -> None:
    assert risk.block(FRESH, NOW) is None


def test_back_off_doubles_to_its_cap_and_ends_with_a_launch() -> None:
    belief, delays = FRESH, []
    now = NOW
    for _ in range(9):
        belief = risk.refused(belief, RefusalKind.NO_CAPACITY, "none left", asked_at=now, now=now)
        assert belief.backoff_until is not None
        delays.append((belief.backoff_until - now).total_seconds())
        now = belief.backoff_until
        assert risk.block(belief, now) is None
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert risk.block(risk.launched(belief), NOW) is None
    assert risk.launched(belief).consecutive_refusals == 0


def test_refusals_of_one_wave_count_once() -> None:
    first = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "none", asked_at=ago(1), now=NOW)
    second = risk.refused(first, RefusalKind.NO_CAPACITY, "none", asked_at=ago(1), now=after(2))
    assert second.consecutive_refusals == 1
    assert second.backoff_until == after(5)


def test_quota_stops_for_ten_minutes_and_a_wrong_request_for_good() -> None:
    quota = risk.refused(FRESH, RefusalKind.QUOTA_EXCEEDED, "8 of 8", asked_at=NOW, now=NOW)
    blocked = risk.block(quota, after(599))
    assert blocked is not None and blocked.until == after(600) and "8 of 8" in blocked.reason
    wrong = risk.refused(FRESH, RefusalKind.BAD_REQUEST, "no such image", asked_at=NOW, now=NOW)
    forever = risk.block(wrong, after(1e6))
    assert forever is not None and forever.until is None
    assert risk.block(risk.forget(wrong), NOW) is None


def test_machines_that_never_join_trip_their_own_breaker() -> None:
    belief = risk.never_joined(risk.never_joined(FRESH, now=NOW), now=NOW)
    # Another machine being given says nothing about whether it will join.
    blocked = risk.block(risk.launched(belief), NOW)
    assert blocked is not None and blocked.until == after(60) and "2 machines in a row" in blocked.reason
    assert risk.block(risk.joined(belief, join_time_s=40.0), NOW) is None


def test_join_time_is_a_moving_average() -> None:
    belief = risk.joined(risk.joined(FRESH, join_time_s=100.0), join_time_s=200.0)
    assert belief.join_time_s is not None and 100.0 < belief.join_time_s < 200.0


def test_the_longest_obstacle_is_named() -> None:
    belief = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "", asked_at=NOW, now=NOW)
    belief = risk.never_joined(belief, now=NOW)
    blocked = risk.block(belief, NOW)
    assert blocked is not None and blocked.until == after(30)
