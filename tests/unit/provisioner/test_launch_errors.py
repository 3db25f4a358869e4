"""When a pool has given up launching: launch_error_timeout and launch_error_retries."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from resolute_provisioner import launch_errors, risk
from resolute_provisioner.model import OfferBelief, PoolScaling, RefusalKind
from support.provisioner import NOW, a_pool, after, an_offer

TIMEOUT_S = 60.0
Beliefs = dict[str, OfferBelief]


def counting(retries: int, *names: str) -> PoolScaling:
    offers = [an_offer(name) for name in names or ("small",)]
    return replace(a_pool(*offers), launch_error_timeout_s=TIMEOUT_S, launch_error_retries=retries)


def refuse(
    pool: PoolScaling,
    beliefs: Beliefs,
    name: str,
    at: datetime,
    *,
    asked_at: datetime | None = None,
    kind: RefusalKind = RefusalKind.NO_CAPACITY,
) -> Beliefs:
    asked = asked_at or at
    belief = beliefs.get(name, OfferBelief(offer_id=name))
    told = risk.refused(belief, kind, "none left", asked_at=asked, now=at)
    outcome = launch_errors.after_failure(pool, {**beliefs, name: told}, name, asked_at=asked, now=at)
    return {**beliefs, name: told if outcome is None else replace(told, pool_launch=outcome)}


def grant(pool: PoolScaling, beliefs: Beliefs, name: str, at: datetime) -> Beliefs:
    belief = risk.launched(beliefs.get(name, OfferBelief(offer_id=name)), now=at)
    return {**beliefs, name: replace(belief, pool_launch=launch_errors.after_success(pool, at))}


def given_up(pool: PoolScaling, beliefs: Beliefs, at: datetime) -> bool:
    return launch_errors.launch_error(pool, beliefs, at) is not None


def failing(pool: PoolScaling, *seconds: float) -> Beliefs:
    beliefs: Beliefs = {}
    for moment in seconds:
        beliefs = refuse(pool, beliefs, "small", after(moment))
    return beliefs


def test_it_gives_up_on_the_last_retry_and_opens_after_the_timeout() -> None:
    pool = counting(2)
    assert not given_up(pool, failing(pool, 0, 50), after(50))
    beliefs = failing(pool, 0, 50, 100)
    assert given_up(pool, beliefs, after(100))
    assert given_up(pool, beliefs, after(159))
    assert not given_up(pool, beliefs, after(160))


def test_without_retries_the_first_failure_is_enough() -> None:
    pool = counting(0)
    assert given_up(pool, failing(pool, 0), NOW)


def test_asking_later_than_the_timeout_after_the_pause_begins_a_new_row() -> None:
    pool = counting(1)
    (first_pause,) = [each.backoff_until for each in failing(pool, 0).values()]
    assert first_pause is not None
    pause_s = (first_pause - NOW).total_seconds()
    assert given_up(pool, failing(pool, 0, pause_s + TIMEOUT_S), after(pause_s + TIMEOUT_S))
    late_s = pause_s + TIMEOUT_S + 1
    assert not given_up(pool, failing(pool, 0, late_s), after(late_s))
    assert given_up(pool, failing(pool, 0, late_s, late_s + 40), after(late_s + 40))


@pytest.mark.parametrize("timeout_s", [1.0, 60.0, 600.0])
@pytest.mark.parametrize("kind", list(RefusalKind))
def test_a_pause_longer_than_the_timeout_does_not_begin_a_new_row(kind: RefusalKind, timeout_s: float) -> None:
    """The documentation's own example is a quota (asked again after ten minutes) with 10m and 3."""
    pool = replace(counting(3), launch_error_timeout_s=timeout_s)
    beliefs: Beliefs = {}
    moment = refused_at = NOW
    for _ in range(4):
        assert not given_up(pool, beliefs, moment)
        beliefs = refuse(pool, beliefs, "small", moment, kind=kind)
        refused_at, block = moment, launch_errors.blocks(pool, beliefs, moment)["small"]
        assert block.until is not None and not block.misconfigured
        moment = block.until + timedelta(seconds=0.5)
    assert given_up(pool, beliefs, refused_at)
    # And then from the beginning of the count.
    again = refuse(pool, beliefs, "small", refused_at + timedelta(seconds=700), kind=kind)
    assert not given_up(pool, again, refused_at + timedelta(seconds=700))


def test_a_wrong_request_waits_for_a_person_where_nothing_is_counted() -> None:
    pool = replace(counting(0), launch_error_timeout_s=0.0)
    beliefs = refuse(pool, {}, "small", NOW, kind=RefusalKind.BAD_REQUEST)
    block = launch_errors.blocks(pool, beliefs, after(1e6))["small"]
    assert block.misconfigured and block.until is None


def test_a_machine_that_is_granted_ends_the_row() -> None:
    pool = counting(1)
    beliefs = grant(pool, failing(pool, 0, 10), "small", after(20))
    assert not given_up(pool, beliefs, after(20))
    assert not given_up(pool, refuse(pool, beliefs, "small", after(30)), after(30))


def test_launches_that_were_decided_together_fail_once() -> None:
    pool = counting(1)
    beliefs = refuse(pool, {}, "small", after(1), asked_at=NOW)
    beliefs = refuse(pool, beliefs, "small", after(2), asked_at=NOW)
    assert not given_up(pool, beliefs, after(2))


def test_a_refusal_counts_only_when_no_other_offer_can_be_asked() -> None:
    pool = counting(0, "small", "other")
    beliefs = refuse(pool, {}, "small", NOW)
    assert not given_up(pool, beliefs, NOW)
    assert given_up(pool, refuse(pool, beliefs, "other", after(1)), after(1))


def test_an_offer_with_fewer_slots_takes_no_ones_place() -> None:
    pool = replace(counting(0), offers=(an_offer("small"), an_offer("tiny", slots=1)))
    assert given_up(pool, refuse(pool, {}, "small", NOW), NOW)
    assert not given_up(pool, refuse(pool, {}, "tiny", NOW), NOW)


def test_a_success_of_another_offer_at_the_same_moment_counts() -> None:
    pool = counting(0, "small", "other")
    beliefs = refuse(pool, refuse(pool, {}, "other", NOW), "small", NOW)
    assert given_up(pool, beliefs, NOW)
    assert not given_up(pool, grant(pool, beliefs, "other", NOW), NOW)


def test_without_a_timeout_nothing_is_counted() -> None:
    pool = replace(counting(0), launch_error_timeout_s=0.0)
    beliefs = failing(pool, 0, 1, 2)
    assert beliefs["small"].pool_launch is None
    assert launch_errors.after_success(pool, NOW) is None
    assert not given_up(pool, beliefs, after(2))


def test_what_keeps_an_offer_back_for_longer_is_told_first() -> None:
    pool = counting(0)
    beliefs = failing(pool, 0)
    block = launch_errors.blocks(pool, beliefs, NOW)["small"]
    assert block.until == after(TIMEOUT_S)
    assert "launch_error_timeout" in block.reason and "none left" in block.reason
    spent = replace(beliefs["small"], quota_until=after(600), last_message="no quota")
    assert launch_errors.blocks(pool, {"small": spent}, NOW)["small"].until == after(600)
    assert not launch_errors.blocks(pool, beliefs, after(TIMEOUT_S))
