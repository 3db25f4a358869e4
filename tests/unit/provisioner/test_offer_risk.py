"""What refusals, failed boots and successes do to the belief about an offer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from resolute_provisioner import risk
from resolute_provisioner.model import OfferBelief, RefusalKind
from support.provisioner import NOW, after, ago, an_offer

FRESH = OfferBelief(offer_id="small")


def test_a_fresh_offer_may_be_asked_for() -> None:
    assert risk.block(FRESH, NOW) is None


def delay_s(belief: OfferBelief, now: datetime) -> float:
    assert belief.backoff_until is not None
    return (belief.backoff_until - now).total_seconds()


def test_back_off_doubles_to_its_cap_and_ends_with_a_launch() -> None:
    belief, delays = FRESH, []
    now = NOW
    for _ in range(9):
        belief = risk.refused(belief, RefusalKind.NO_CAPACITY, "none left", asked_at=now, now=now)
        delays.append(delay_s(belief, now))
        now += timedelta(seconds=delays[-1])
        assert risk.block(belief, now) is None
    # One token draws one jitter, so that its delays double exactly.
    most = risk.REFUSAL_BACKOFF_CAP_S / risk.REFUSAL_BACKOFF_S
    ratios = [delay / delays[0] for delay in delays]
    assert [round(ratio, 3) for ratio in ratios] == [min(2**n, most) for n in range(9)]
    assert risk.block(risk.launched(belief, now=NOW), NOW) is None
    assert risk.launched(belief, now=NOW).consecutive_refusals == 0


def test_those_who_were_refused_together_do_not_come_back_together() -> None:
    def delay_of(token: str) -> float:
        told = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "", asked_at=NOW, now=NOW, token=token)
        return delay_s(told, NOW)

    delays = {delay_of(f"token-{number}") for number in range(100)}
    assert len(delays) == 100
    assert 5 * (1 - risk.JITTER) <= min(delays) < 4.5 < 5.5 < max(delays) <= 5 * (1 + risk.JITTER)
    assert delay_of("one") == delay_of("one")


def test_an_account_that_asks_too_often_asks_less() -> None:
    throttled = risk.refused(FRESH, RefusalKind.THROTTLED, "slow down", asked_at=NOW, now=NOW)
    assert delay_s(throttled, NOW) >= risk.THROTTLED_BACKOFF_S * (1 - risk.JITTER) > 2 * risk.REFUSAL_BACKOFF_S
    blocked = risk.block(throttled, NOW)
    assert blocked is not None and "limits the rate of requests: slow down" in blocked.reason


def test_refusals_of_one_wave_count_once() -> None:
    first = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "none", asked_at=ago(1), now=NOW)
    second = risk.refused(first, RefusalKind.NO_CAPACITY, "none", asked_at=ago(1), now=after(2))
    assert second.consecutive_refusals == 1 and second.seen.requests == 1
    assert second.backoff_until == first.backoff_until


def test_a_used_up_quota_stops_the_family() -> None:
    small, big = (replace(an_offer(name), family="us-east-1 spot P") for name in ("small", "big"))
    other = an_offer("other")
    told = risk.refused(FRESH, RefusalKind.QUOTA_EXCEEDED, "64 of 64", asked_at=NOW, now=NOW)
    found = risk.blocks([small, big, other], {"small": told}, NOW)
    assert list(found) == ["big", "small"]
    assert found["big"].until == after(600)
    assert found["big"].reason == "the quota of us-east-1 spot P is used up (reported for offer small): 64 of 64"
    assert not risk.blocks([small, big, other], {"small": told}, after(600))


def test_nothing_is_bought_above_its_limit() -> None:
    dear = replace(an_offer(price=3.0), max_price_per_hour=2.5)
    found = risk.blocks([dear], {}, NOW)["small"]
    assert found.until is None and not found.misconfigured and "max_price of 2.5" in found.reason
    cheaper = risk.repriced(FRESH, 2.0, source="spot history", as_of=NOW)
    assert not risk.blocks([dear], {"small": cheaper}, NOW)


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
    blocked = risk.block(risk.launched(belief, now=NOW), NOW)
    assert blocked is not None and blocked.until == after(60) and "2 machines in a row" in blocked.reason
    assert risk.block(risk.joined(belief, join_time_s=40.0, now=NOW), NOW) is None


def test_join_time_is_a_moving_average() -> None:
    belief = risk.joined(risk.joined(FRESH, join_time_s=100.0, now=NOW), join_time_s=200.0, now=NOW)
    assert belief.join_time_s is not None and 100.0 < belief.join_time_s < 200.0


def test_the_longest_obstacle_is_named() -> None:
    belief = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "", asked_at=NOW, now=NOW)
    belief = risk.never_joined(belief, now=NOW)
    blocked = risk.block(belief, NOW)
    assert blocked is not None and blocked.until == after(30)
