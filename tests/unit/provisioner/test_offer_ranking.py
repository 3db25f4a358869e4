"""What was learnt of an offer enters its price."""

from __future__ import annotations

from dataclasses import replace

from resolute_provisioner import risk
from resolute_provisioner.model import Market, OfferBelief, RefusalKind
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S, forecast, in_order
from support.provisioner import NOW, a_pool, after, an_offer

FRESH = OfferBelief(offer_id="small")
DAY_S = 86400.0


def factor(belief: OfferBelief) -> float:
    return forecast(an_offer(), belief, NOW).factor


def interrupted(times: int, hours: float) -> OfferBelief:
    belief = FRESH
    for _ in range(times):
        belief = risk.ended(belief, exposure_s=hours * 3600 / times, interrupted=True, now=NOW)
    return belief


def test_an_offer_that_was_never_tried_is_trusted() -> None:
    fresh = forecast(an_offer(), None, NOW)
    assert fresh.launch_success == fresh.boot_success == 1.0
    assert fresh.join_time_s == DEFAULT_JOIN_TIME_S
    assert fresh.expected_price is not None and 1.0 < fresh.expected_price < 1.05


def test_each_kind_of_trouble_makes_it_dearer() -> None:
    refused = risk.refused(FRESH, RefusalKind.NO_CAPACITY, "", asked_at=NOW, now=NOW)
    dead = risk.never_joined(FRESH, now=NOW)
    slow = risk.joined(FRESH, join_time_s=900.0, now=NOW)
    for worse in (refused, dead, slow, interrupted(5, hours=10)):
        assert factor(worse) > factor(FRESH)
    assert factor(interrupted(5, hours=10)) > factor(interrupted(5, hours=100)) > factor(interrupted(1, hours=100))


def test_the_past_is_forgotten() -> None:
    belief = interrupted(5, hours=10)
    later = [forecast(an_offer(), belief, after(days * DAY_S)).interruptions_per_hour for days in (0, 1, 10, 100)]
    assert later == sorted(later, reverse=True)
    assert abs(later[-1] - forecast(an_offer(), None, NOW).interruptions_per_hour) < 1e-6


def test_lessons_a_half_life_apart_weigh_one_to_two() -> None:
    twice = risk.launched(risk.launched(FRESH, now=NOW), now=after(risk.HALF_LIFE_S))
    assert abs(twice.seen.granted - 1.5) < 1e-9 and twice.launches == 2


def test_the_order_of_trying() -> None:
    spot = an_offer("spot", price=1.0)
    sure = replace(an_offer("sure", price=1.0), market=Market.ON_DEMAND)
    dear = an_offer("dear", price=1.1)
    unknown = an_offer("unknown", price=None)
    pool = a_pool(unknown, dear, spot, sure)

    def order(*beliefs: OfferBelief) -> list[str]:
        known = {each.offer_id: each for each in beliefs}
        blocked = risk.blocks(pool.offers, known, NOW)
        return [each.offer.offer_id for each in in_order(pool, known, blocked, NOW)]

    # At one price the machine that is not taken back; what has no known price last.
    assert order() == ["sure", "spot", "dear", "unknown"]
    wild = replace(interrupted(40, hours=4), offer_id="spot")
    assert order(wild) == ["sure", "dear", "spot", "unknown"]
    cheap_now = risk.repriced(OfferBelief(offer_id="dear"), 0.4, source="spot history", as_of=NOW)
    assert order(cheap_now)[0] == "dear"
    refused = risk.refused(OfferBelief(offer_id="sure"), RefusalKind.NO_CAPACITY, "", asked_at=NOW, now=NOW)
    assert order(refused) == ["spot", "dear", "unknown", "sure"]
