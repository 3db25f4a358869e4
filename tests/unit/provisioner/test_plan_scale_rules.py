"""Each rule of `plan_scale`, one situation at a time."""

from __future__ import annotations

from dataclasses import replace

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
)
from resolute_provisioner.planning.markets import REPLACEMENT_PREFIX
from resolute_provisioner.planning.plan import plan_scale
from resolute_provisioner.planning.standing import MASS_LOSS_GRACE_S
from support.provisioner import NOW, a_gang, a_pool, after, ago, an_offer, demand, joined, starting

SMALL, BIG = an_offer("small", slots=2, price=1.0), an_offer("big", slots=8, price=3.0)


def plan(
    pool: PoolScaling, *instances: InstanceView, work: Demand | None = None, beliefs: tuple[OfferBelief, ...] = ()
) -> ScalePlan:
    return plan_scale(pool, instances, work or Demand(), {each.offer_id: each for each in beliefs}, NOW)


def launched(result: ScalePlan) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.offer_id, each.gang_tokens) for each in result.launches]


def returned(result: ScalePlan) -> dict[str, Cause]:
    return {each.instance_id: each.cause for each in result.terminations}


def note(result: ScalePlan, subject: str) -> str:
    return next(each.text for each in result.notes if each.subject == subject)


def test_nothing_to_do_is_an_empty_plan() -> None:
    assert plan(a_pool()) == ScalePlan()


def test_scale_from_zero_packs_by_shape_not_by_slot_sum() -> None:
    # Three tasks of 5 on machines of 8 sum up to two machines and need three.
    gangs = [a_gang(name, 5) for name in "abc"]
    assert launched(plan(a_pool(an_offer("only", slots=8)), work=demand(*gangs))) == [
        ("only", ("a",)),
        ("only", ("b",)),
        ("only", ("c",)),
    ]


def test_one_machine_serves_several_gangs() -> None:
    assert launched(plan(a_pool(), work=demand(a_gang("a", 1), a_gang("b", 1)))) == [("small", ("a", "b"))]


def test_free_and_starting_machines_absorb_work_before_anything_is_bought() -> None:
    work = demand(a_gang("a"), a_gang("b"), a_gang("c"))
    result = plan(a_pool(), joined("i-1"), starting("i-2"), work=work)
    assert launched(result) == [("small", ("c",))]
    assert "waits for i-2" in note(result, "b")


def test_a_machine_goes_to_the_gang_it_was_launched_for() -> None:
    machines = (starting("i-1", reserved_for=("z",)), starting("i-2", reserved_for=("a",)))
    result = plan(a_pool(), *machines, work=demand(a_gang("a"), a_gang("z")))
    assert not result.launches
    assert "i-2" in note(result, "a") and "i-1" in note(result, "z")


def test_a_gang_over_several_machines_is_bought_whole_or_not_at_all() -> None:
    gang = a_gang("wide", 6)
    assert [each.gang_tokens for each in plan(a_pool(high=3), work=demand(gang)).launches] == [("wide",)] * 3
    refused = plan(a_pool(high=2), work=demand(gang))
    assert not refused.launches
    assert note(refused, "wide") == "needs 3 machines and the pool may have 2 (max_instances)"


def test_a_wide_gang_completes_free_whole_machines() -> None:
    result = plan(a_pool(), joined("i-1"), joined("i-2", used=1), starting("i-3"), work=demand(a_gang("wide", 6)))
    assert launched(result) == [("small", ("wide",))]


def test_slots_per_machine_is_exact() -> None:
    pool = a_pool(an_offer("only", slots=4))
    assert len(plan(pool, work=demand(a_gang("g", 6, each=2))).launches) == 3
    assert "6 slots as 4 on each" in note(plan(pool, work=demand(a_gang("g", 6, each=4))), "g")


def test_work_that_fits_nowhere_is_told_so() -> None:
    result = plan(a_pool(SMALL, BIG), work=demand(a_gang("odd", 9), a_gang("one", 10, single=True)))
    assert not result.launches
    assert "no offer of this pool can give that (slots of its machines: 2, 8)" in note(result, "odd")
    assert "10 slots on one machine" in note(result, "one")


def test_the_cheapest_purchase_wins_over_the_cheapest_machine() -> None:
    pool = a_pool(SMALL, BIG, high=9)
    assert launched(plan(pool, work=demand(a_gang("a")))) == [("small", ("a",))]
    four = demand(*(a_gang(name) for name in "abcd"))
    assert launched(plan(pool, work=four)) == [("big", ("a", "b", "c", "d"))]


def test_an_unknown_price_is_the_last_choice() -> None:
    pool = a_pool(an_offer("unknown", price=None), an_offer("dear", price=99.0))
    assert launched(plan(pool, work=demand(a_gang("a")))) == [("dear", ("a",))]


def test_auxiliary_work_takes_places_and_no_slots() -> None:
    gangs = [a_gang(f"aux-{index}", 0) for index in range(5)]
    result = plan(a_pool(max_aux=4), work=demand(*gangs))
    assert [len(each.gang_tokens) for each in result.launches] == [4, 1]
    assert "accepts no such work" in note(plan(a_pool(max_aux=0), work=demand(gangs[0])), "aux-0")


def test_importance_decides_who_gets_the_last_room() -> None:
    work = demand(a_gang("a"), a_gang("b", priority=1))
    result = plan(a_pool(high=1), work=work)
    assert launched(result) == [("small", ("b",))]
    assert note(result, "a") == "needs 1 more machine; 1 of at most 1 (max_instances) are in use, starting or ending"


def test_machines_on_their_way_out_still_count_against_the_maximum() -> None:
    ending = replace(joined("i-1"), intent=Intent.STOP, observed=Observed.STOPPING)
    assert not plan(a_pool(high=1), ending, work=demand(a_gang("a"))).launches
    gone = replace(ending, observed=Observed.GONE)
    assert plan(a_pool(high=1), gone, work=demand(a_gang("a"))).launches


def test_a_machine_that_a_person_has_disabled_is_no_capacity_and_goes_when_it_idles() -> None:
    closed = replace(joined("i-1", idle_s=10), disabled=True)
    assert launched(plan(a_pool(), closed, work=demand(a_gang("a")))) == [("small", ("a",))]
    assert returned(plan(a_pool(high=1), closed, work=demand(a_gang("a")))) == {"i-1": Cause.MAKE_ROOM}
    assert returned(plan(a_pool(), replace(joined("i-1", idle_s=400), disabled=True))) == {"i-1": Cause.IDLE}


def test_excluded_machines_are_no_capacity_for_that_gang() -> None:
    assert plan(a_pool(), joined("i-1"), work=demand(a_gang("a", excluded=frozenset({"i-1"})))).launches


def test_idle_machines_go_after_the_timeout_and_not_below_the_minimum() -> None:
    machines = (joined("i-1", idle_s=400), joined("i-2", idle_s=500), joined("i-3", idle_s=100))
    assert returned(plan(a_pool(), *machines)) == {"i-1": Cause.IDLE, "i-2": Cause.IDLE}
    assert returned(plan(a_pool(low=2), *machines)) == {"i-2": Cause.IDLE}
    assert plan(a_pool(), machines[2]).revisit_at == after(200)


def test_what_runs_on_closed_slots_takes_no_room_of_its_machine_and_keeps_it() -> None:
    wide = a_gang("wide", 4)
    machines = (joined("i-1", used=1, closed=1), joined("i-2", idle_s=9999))
    result = plan(a_pool(), *machines, work=demand(wide))
    assert (launched(result), returned(result)) == ([], {})
    assert launched(plan(a_pool(high=2), machines[0], work=demand(wide))) == [("small", ("wide",))]
    assert launched(plan(a_pool(), machines[0], work=demand(a_gang("a", 2)))) == []
    assert returned(plan(a_pool(), *machines)) == {"i-2": Cause.IDLE}
    assert returned(plan(a_pool(), joined("i-1", used=1, closed=1, draining_s=1))) == {}


def test_an_idle_machine_that_waiting_work_will_use_is_kept() -> None:
    assert not plan(a_pool(), joined("i-1", idle_s=9999), work=demand(a_gang("a"))).terminations


def test_an_idle_machine_of_the_wrong_size_makes_room() -> None:
    result = plan(a_pool(SMALL, BIG, high=1), joined("i-1"), work=demand(a_gang("a", 8, single=True)))
    assert returned(result) == {"i-1": Cause.MAKE_ROOM}


def test_a_machine_that_is_kept_as_the_minimum_makes_room_for_work_that_it_cannot_serve() -> None:
    work = demand(a_gang("wide", 8))
    result = plan(a_pool(SMALL, BIG, low=1, high=1), joined("i-1"), work=work)
    assert returned(result) == {"i-1": Cause.MAKE_ROOM}
    assert not result.launches
    gone = plan(a_pool(SMALL, BIG, low=1, high=1), work=work)
    assert launched(gone) == [("big", ("wide",))]


def test_the_minimum_is_not_filled_again_with_what_has_just_made_room() -> None:
    pool, work = a_pool(SMALL, BIG, low=1, high=2), demand(a_gang("wide", 16))
    making = plan(pool, joined("i-1"), work=work)
    assert returned(making) == {"i-1": Cause.MAKE_ROOM} and not making.launches
    ending = replace(joined("i-1"), intent=Intent.STOP, observed=Observed.STOPPING)
    assert not plan(pool, ending, work=work).launches
    assert launched(plan(pool, work=work)) == [("big", ("wide",)), ("big", ("wide",))]


def test_no_room_is_made_by_a_machine_that_the_gang_would_use_itself() -> None:
    result = plan(a_pool(high=2), joined("i-1"), joined("i-2", used=2), work=demand(a_gang("wide", 4)))
    assert not result.terminations and not result.launches


def test_room_is_made_only_by_machines_of_no_use_and_only_when_it_is_enough() -> None:
    machines = (joined("i-1", idle_s=9), joined("i-2", slots=1, idle_s=1), joined("i-3", used=2))
    assert returned(plan(a_pool(high=3), *machines, work=demand(a_gang("wide", 4)))) == {"i-2": Cause.MAKE_ROOM}
    assert not plan(a_pool(high=3), *machines, work=demand(a_gang("wider", 6))).terminations


def test_a_machine_that_the_gang_would_use_itself_is_kept_however_long_it_idled_while_room_is_made() -> None:
    machines = (joined("i-1", idle_s=9999), joined("i-2", slots=1, idle_s=1), joined("i-3", used=2))
    assert returned(plan(a_pool(high=3), *machines, work=demand(a_gang("wide", 4)))) == {"i-2": Cause.MAKE_ROOM}


def test_room_is_made_beside_a_launch_for_other_work() -> None:
    """One slot is bought at once; the pair is bought when the machine that can serve neither has gone."""
    pool = a_pool(an_offer("none", slots=0), an_offer("one", slots=1), low=1, high=3)
    useless, going = joined("i-1", slots=0, offer="none"), joined("i-2", slots=1, offer="one", notice_s=60)
    result = plan(pool, useless, going, work=demand(a_gang("a", 1), a_gang("pair", 2)))
    assert launched(result) == [("one", ("a",))]
    assert returned(result) == {"i-1": Cause.MAKE_ROOM, "i-2": Cause.NOTICE}


def test_the_minimum_is_filled_without_demand() -> None:
    result = plan(a_pool(BIG, SMALL, low=2))
    assert launched(result) == [("small", ()), ("small", ())]


def test_a_machine_that_never_joined_is_replaced() -> None:
    stuck = starting("i-1", asked_s=121)
    result = plan(a_pool(), stuck, work=demand(a_gang("a")))
    assert returned(result) == {"i-1": Cause.NEVER_JOINED}
    assert launched(result) == [("small", ("a",))]
    waiting = plan(a_pool(), starting("i-1", asked_s=100), work=demand(a_gang("a")))
    assert not waiting.launches and waiting.revisit_at == after(20)


def test_a_notice_starts_the_replacement_at_once_even_at_the_maximum() -> None:
    result = plan(a_pool(high=1), joined("i-1", used=2, notice_s=100, occupants=("t",)))
    assert launched(result) == [("small", (REPLACEMENT_PREFIX + "i-1",))]
    assert not result.terminations


def test_an_offer_whose_one_request_was_withdrawn_before_its_answer_is_not_asked_again_meanwhile() -> None:
    refused = {"small": OfferBelief(offer_id="small", consecutive_refusals=1)}
    withdrawn = replace(starting("i-1", asked_s=1), intent=Intent.STOP, observed=Observed.UNKNOWN)
    waiting = plan_scale(a_pool(), (withdrawn,), demand(a_gang("a")), refused, NOW)
    assert not waiting.launches and "waits for the answer of offer small" in note(waiting, "a")
    assert launched(plan_scale(a_pool(), (), demand(a_gang("a")), refused, NOW)) == [("small", ("a",))]


def test_what_comes_is_kept_for_the_work_of_a_machine_that_outlives_its_notice_until_that_work_waits() -> None:
    overdue = joined("i-1", used=2, notice_s=-90, occupants=("t",))
    coming = starting("i-2", reserved_for=("withdrawn",))
    assert returned(plan(a_pool(), overdue, coming)) == {"i-1": Cause.NOTICE}
    ending = replace(overdue, intent=Intent.STOP)
    assert not plan(a_pool(), ending, coming).terminations
    assert not plan(a_pool(), ending, coming, work=demand(a_gang("t"))).terminations
    assert returned(plan(a_pool(), coming)) == {"i-2": Cause.UNWANTED}


def test_a_replacement_is_bought_once() -> None:
    noticed = joined("i-1", used=2, notice_s=100, occupants=("t",))
    assert not plan(a_pool(), noticed, starting("i-2")).launches
    # When the work itself already waits, it stands for itself.
    assert launched(plan(a_pool(), noticed, work=demand(a_gang("t")))) == [("small", ("t",))]
    # And once it has left the machine, the replacement takes it.
    left = joined("i-1", notice_s=90)
    assert not plan(a_pool(), left, starting("i-2"), work=demand(a_gang("t"))).launches


def test_a_machine_under_notice_is_given_back_when_empty_or_overdue() -> None:
    assert returned(plan(a_pool(), joined("i-1", notice_s=100))) == {"i-1": Cause.NOTICE}
    assert not plan(a_pool(), joined("i-1", used=1, notice_s=-10)).terminations
    assert returned(plan(a_pool(), joined("i-1", used=1, notice_s=-61))) == {"i-1": Cause.NOTICE}


def test_a_machine_out_of_contact_is_capacity_only_for_a_moment() -> None:
    work = demand(a_gang("a"))
    assert not plan(a_pool(), joined("i-1", away_s=10), work=work).launches
    assert plan(a_pool(), joined("i-1", away_s=30), work=work).launches
    assert returned(plan(a_pool(), joined("i-1", away_s=601), joined("i-2"), joined("i-3"))) == {"i-1": Cause.LOST}


def test_a_network_split_of_the_master_gives_nothing_back() -> None:
    result = plan(a_pool(), joined("i-1", used=2, away_s=700), joined("i-2", used=2, away_s=700))
    assert not result.terminations
    assert "network may be the cause" in note(result, "")


def test_the_suspicion_against_the_network_ends_when_healthy_machines_would_have_ended_themselves() -> None:
    long_s = 600 + MASS_LOSS_GRACE_S
    waiting = plan(a_pool(), joined("i-1", away_s=long_s - 1), joined("i-2", away_s=long_s - 1))
    assert not waiting.terminations and waiting.revisit_at == after(1)
    over = plan(a_pool(), joined("i-1", away_s=long_s), joined("i-2", away_s=long_s))
    assert returned(over) == {"i-1": Cause.LOST, "i-2": Cause.LOST}


def test_a_lowered_maximum_takes_empty_machines_first_and_drains_busy_ones() -> None:
    machines = (joined("i-1", used=2), joined("i-2", used=1), joined("i-3"))
    result = plan(a_pool(high=1), *machines)
    assert [(each.instance_id, each.cause, each.drain) for each in result.terminations] == [
        ("i-2", Cause.OVER_MAXIMUM, True),
        ("i-3", Cause.OVER_MAXIMUM, False),
    ]


def test_a_drained_machine_goes_when_empty_or_when_draining_takes_too_long() -> None:
    assert not plan(a_pool(high=1), joined("i-1", used=1, draining_s=10)).terminations
    assert returned(plan(a_pool(), joined("i-1", draining_s=10))) == {"i-1": Cause.DRAINED}
    assert returned(plan(a_pool(), joined("i-1", used=1, draining_s=600))) == {"i-1": Cause.DRAINED}


def test_a_refused_offer_is_left_alone_and_the_plan_says_when_to_come_back() -> None:
    belief = OfferBelief(
        offer_id="small", consecutive_refusals=1, backoff_until=after(5), last_refusal=RefusalKind.NO_CAPACITY
    )
    result = plan(a_pool(), work=demand(a_gang("a")), beliefs=(belief,))
    assert not result.launches and result.revisit_at == after(5)
    assert note(result, "a") == "offer small: no capacity; next request at 12:00:05 UTC"
    over = replace(belief, backoff_until=ago(0))
    assert plan(a_pool(), work=demand(a_gang("a")), beliefs=(over,)).launches


def test_another_offer_steps_in_for_a_refused_one() -> None:
    belief = OfferBelief(offer_id="small", consecutive_refusals=1, backoff_until=after(5))
    assert launched(plan(a_pool(SMALL, BIG), work=demand(a_gang("a")), beliefs=(belief,))) == [("big", ("a",))]


def test_a_misconfigured_pool_stops_asking_and_says_so() -> None:
    belief = OfferBelief(offer_id="small", misconfigured="no such image")
    result = plan(a_pool(low=1), work=demand(a_gang("a")), beliefs=(belief,))
    assert not result.launches and result.revisit_at is None
    assert "misconfigured" in note(result, "") and "no such image" in note(result, "a")
