"""When a pool has given up launching: launch_error_timeout and launch_error_retries."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from resolute_provisioner import launch_errors, risk
from resolute_provisioner.model import OfferBelief, PoolScaling, RefusalKind
from support.provisioner import NOW, a_pool, after, an_offer

TIMEOUT_S = 60.0
Beliefs = dict[str, OfferBelief]


def counting(retries: int, *names: str) -> PoolScaling:
    offers = [an_offer(name) for name in names or ("small",)]
    return replace(a_pool(*offers), launch_error_timeout_s=TIMEOUT_S, launch_error_retries=retries)


def refuse(
    pool: PoolScaling, beliefs: Beliefs, name: str, at: datetime, *, asked_at: datetime | None = None
) -> Beliefs:
    asked = asked_at or at
    belief = beliefs.get(name, OfferBelief(offer_id=name))
    told = risk.refused(belief, RefusalKind.NO_CAPACITY, "none left", asked_at=asked, now=at)
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


def test_failures_further_apart_than_the_timeout_begin_a_new_row() -> None:
    pool = counting(1)
    assert not given_up(pool, failing(pool, 0, 61), after(61))
    assert given_up(pool, failing(pool, 0, 61, 100), after(100))


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
