"""Gangs of several machines where machines are scarce: one request first, the next offer, and what is given back when."""

from __future__ import annotations

from dataclasses import replace

from resolute_provisioner import risk
from resolute_provisioner.model import (
    Cause,
    Demand,
    InstanceView,
    Intent,
    Observed,
    OfferBelief,
    PoolScaling,
    RefusalKind,
    ScalePlan,
    Unpaid,
)
from resolute_provisioner.planning import probing
from resolute_provisioner.planning.plan import plan_scale
from support.provisioner import NOW, a_gang, a_pool, after, an_offer, demand, joined, starting

CHEAP, DEAR = an_offer("cheap", price=1.0), an_offer("dear", price=2.0)
POOL = a_pool(CHEAP, DEAR, high=9)
WIDE = a_gang("wide", 6)
"""Three machines of two slots."""


def plan(
    *instances: InstanceView,
    beliefs: tuple[OfferBelief, ...] = (),
    work: Demand | None = None,
    pool: PoolScaling = POOL,
) -> ScalePlan:
    return plan_scale(pool, instances, work or demand(WIDE), {each.offer_id: each for each in beliefs}, NOW)


def launched(result: ScalePlan) -> list[str]:
    return [each.offer_id for each in result.launches]


def returned(result: ScalePlan) -> dict[str, Cause]:
    return {each.instance_id: each.cause for each in result.terminations}


def note(result: ScalePlan, subject: str) -> str:
    return next(each.text for each in result.notes if each.subject == subject)


def refused(offer_id: str, *, seconds_ago: float = 0.0) -> OfferBelief:
    at = after(-seconds_ago)
    fresh = OfferBelief(offer_id=offer_id)
    return risk.refused(fresh, RefusalKind.NO_CAPACITY, "none left", asked_at=after(-seconds_ago - 1), now=at)


def member(name: str, **changes: object) -> InstanceView:
    """A machine that was got for the gang three seconds ago."""
    view = replace(starting(name, asked_s=3.0, reserved_for=("wide",)), offer_id="cheap")
    return replace(view, **changes)  # type: ignore[arg-type]


def test_the_missing_member_comes_from_the_next_offer_at_once() -> None:
    result = plan(member("i-1"), member("i-2"), beliefs=(refused("cheap"),))
    assert launched(result) == ["dear"] and not result.terminations


def test_an_offer_that_was_refused_is_asked_for_one_machine_first() -> None:
    over = refused("cheap", seconds_ago=60)
    only = a_pool(CHEAP, high=9)
    first = plan(beliefs=(over,), pool=only)
    assert launched(first) == ["cheap"]
    assert "gets a request for one machine first" in note(first, "wide")
    # The answer is out: nothing else is asked for.
    unanswered = member("i-1", observed=Observed.UNKNOWN)
    assert not plan(unanswered, beliefs=(over,), pool=only).launches
    # It was granted, and nothing is known against the offer any more: now the others.
    granted = member("i-1", launched_at=after(-1))
    assert launched(plan(granted, beliefs=(risk.launched(over, now=NOW),), pool=only)) == ["cheap", "cheap"]


def test_single_machines_wait_for_the_probe_too() -> None:
    over = refused("cheap", seconds_ago=60)
    work = demand(*(a_gang(name) for name in "abcd"))
    result = plan(beliefs=(over,), work=work)
    assert launched(result) == ["cheap"] and result.launches[0].gang_tokens == ("a",)
    assert "offer cheap" in note(result, "b")


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    over = refused("cheap", seconds_ago=60)
    asked = starting("i-1", asked_s=probing.ANSWER_TIMEOUT_S - 1, reserved_for=("a",))
    unanswered = replace(asked, offer_id="cheap", observed=Observed.UNKNOWN)
    work = demand(a_gang("a"), a_gang("b"))
    waiting = plan(unanswered, beliefs=(over,), work=work)
    assert not waiting.launches and waiting.revisit_at == after(1)
    late = replace(unanswered, requested_at=after(-probing.ANSWER_TIMEOUT_S))
    assert launched(plan(late, beliefs=(over,), work=work)) == ["dear"]


def test_members_are_held_for_a_moment_when_the_others_may_be_had_within_it() -> None:
    only = a_pool(CHEAP, high=9)
    retry_soon = refused("cheap")
    assert retry_soon.backoff_until is not None and retry_soon.backoff_until < after(POOL.gang_hold_s - 3)
    held = plan(member("i-1"), member("i-2"), beliefs=(retry_soon,), pool=only)
    assert not held.terminations and held.revisit_at == retry_soon.backoff_until
    retry_late = replace(retry_soon, backoff_until=after(POOL.gang_hold_s))
    result = plan(member("i-1"), member("i-2"), beliefs=(retry_late,), pool=only)
    assert returned(result) == {"i-1": Cause.STRANDED, "i-2": Cause.STRANDED}


def test_the_moment_ends() -> None:
    only = a_pool(CHEAP, high=9)
    old = replace(member("i-1"), requested_at=after(-POOL.gang_hold_s))
    assert returned(plan(old, beliefs=(refused("cheap"),), pool=only)) == {"i-1": Cause.STRANDED}
    ready = replace(joined("i-2"), launched_at=after(-POOL.gang_hold_s), reserved_for=("wide",))
    assert returned(plan(ready, beliefs=(refused("cheap"),), pool=only)) == {"i-2": Cause.STRANDED}


def test_members_that_other_work_uses_stay() -> None:
    only = a_pool(CHEAP, high=9)
    work = demand(WIDE, a_gang("small", priority=50))
    late = replace(refused("cheap"), backoff_until=after(999))
    assert returned(plan(member("i-1"), member("i-2"), beliefs=(late,), work=work, pool=only)) == {
        "i-2": Cause.STRANDED
    }


def test_the_warm_minimum_stays() -> None:
    late = replace(refused("cheap"), backoff_until=after(999))
    assert not plan(member("i-1"), beliefs=(late,), pool=a_pool(CHEAP, low=1, high=9)).terminations


def test_an_offer_that_gave_a_part_is_not_asked_for_a_gang_soon_again_and_later_and_later() -> None:
    belief, pauses, now = OfferBelief(offer_id="cheap"), [], NOW
    for _ in range(9):
        belief = risk.stranded(belief, now=now)
        assert belief.gang_backoff_until is not None
        assert risk.stranded(belief, now=now) == belief, "the members of one gang teach once"
        pauses.append((belief.gang_backoff_until - now).total_seconds())
        now = belief.gang_backoff_until
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]

    partly = risk.stranded(OfferBelief(offer_id="cheap"), now=NOW)
    assert launched(plan(beliefs=(partly,))) == ["dear", "dear", "dear"]
    assert launched(plan(beliefs=(partly,), work=demand(a_gang("small")))) == ["cheap"]
    alone = plan(beliefs=(partly,), pool=a_pool(CHEAP, high=9))
    assert not alone.launches and alone.revisit_at == after(risk.GANG_BACKOFF_S)
    assert "gave some machines of a gang and not all" in note(alone, "wide")


def test_a_request_whose_work_waits_no_longer_is_taken_back_before_it_is_paid() -> None:
    nobody = Demand()
    pending = starting("i-1", reserved_for=("wide",))
    assert returned(plan(pending, work=nobody)) == {"i-1": Cause.UNWANTED}
    running = replace(pending, observed=Observed.RUNNING)
    assert not plan(running, work=nobody).terminations
    for_the_minimum = starting("i-1")
    assert not plan(for_the_minimum, work=nobody).terminations
    ending = replace(pending, intent=Intent.STOP)
    assert not plan(ending, work=nobody).terminations
    replacement = starting("i-1", reserved_for=("replacement-of-i-0",))
    assert not plan(replacement, work=nobody).terminations


def no_room_for(offer_id: str, machines: int) -> Unpaid:
    """More than so many, in the pool's budget."""
    return Unpaid(offer_id=offer_id, machines=machines, reason="no room", until=after(3600.0))


def test_a_gang_takes_the_offer_of_which_the_budget_pays_all_its_machines() -> None:
    short = replace(POOL, unpaid=(no_room_for("cheap", 2), no_room_for("dear", 3)))
    assert launched(plan(pool=short)) == ["dear"] * 3
    assert launched(plan(pool=short, work=demand(a_gang("less", 4)))) == ["cheap"] * 2


def test_a_gang_beyond_the_budget_is_told_so_and_leaves_the_machines_to_the_others() -> None:
    short = replace(POOL, unpaid=(no_room_for("cheap", 2), no_room_for("dear", 2)))
    result = plan(pool=short, work=demand(WIDE, a_gang("small", 2)))
    assert [each.gang_tokens for each in result.launches] == [("small",)]
    assert "no room; next request at" in note(result, "wide")
    assert result.revisit_at == after(3600.0)
    there = [member("m1"), member("m2")]
    assert launched(plan(*there, pool=short)) == ["cheap"], "only what is missing has to be paid"
