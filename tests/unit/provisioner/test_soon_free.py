"""Waiting work counts on slots that are about to become free, for half a boot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from resolute_provisioner.model import (
    Cause,
    Demand,
    Evidence,
    Gang,
    InstanceView,
    Intent,
    Market,
    Observed,
    Offer,
    OfferBelief,
    PoolScaling,
    Resident,
)
from resolute_provisioner.planning.plan import plan_scale

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOOT_S = 180.0
OFFER = Offer(offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
POOL = PoolScaling(pool="p", offers=(OFFER,), max_instances=99, idle_learnt=True)
KNOWN = {"o": OfferBelief(offer_id="o", join_time_s=BOOT_S)}


def busy(number: int, *, ran_s: float = 60.0) -> InstanceView:
    since = NOW - timedelta(seconds=ran_s)
    return InstanceView(
        instance_id=f"m{number:02d}",
        token=f"m{number:02d}",
        offer_id="o",
        slots=1,
        intent=Intent.RUN,
        observed=Observed.RUNNING,
        requested_at=since,
        launched_at=since,
        joined_at=since,
        agent_connected=True,
        slots_in_use=1,
        occupants=(f"t{number}",),
        residents=(Resident(token=f"t{number}", slots=1, since=since, movable=False),),
    )


def waiting(count: int, *, slots: int = 1, waited_s: float = 0.0) -> Demand:
    at = NOW - timedelta(seconds=waited_s)
    return Demand(gangs=tuple(Gang(token=f"w{n}", slots=slots, submitted_at=at) for n in range(count)))


FLEET = tuple(busy(number) for number in range(12))
"""Machines on which 12 x 180 / (60 + 180 + 300) = 4 slots are expected to become free."""


def test_so_many_fewer_machines_are_bought_and_the_pool_looks_again_after_half_a_boot() -> None:
    plan = plan_scale(POOL, FLEET, waiting(7), KNOWN, NOW)
    assert len(plan.launches) == 3
    assert plan.revisit_at == NOW + timedelta(seconds=BOOT_S / 2)
    assert sum("expected to free" in note.text for note in plan.notes) == 4


def test_what_has_waited_for_half_a_boot_counts_on_nothing() -> None:
    assert len(plan_scale(POOL, FLEET, waiting(7, waited_s=BOOT_S / 2), KNOWN, NOW).launches) == 7


def test_only_single_slots_and_only_in_a_pool_that_learns_and_whose_machines_live_shortly() -> None:
    large = replace(OFFER, offer_id="large", slots=4, price_per_hour=4.0)
    assert len(plan_scale(replace(POOL, offers=(OFFER, large)), FLEET, waiting(2, slots=4), KNOWN, NOW).launches) == 2
    assert len(plan_scale(replace(POOL, idle_learnt=False), FLEET, waiting(7), KNOWN, NOW).launches) == 7
    lives = {"o": replace(KNOWN["o"], seen=Evidence(joins=9.0, exposure_h=90.0))}
    assert len(plan_scale(POOL, FLEET, waiting(7), lives, NOW).launches) == 7


def test_what_has_run_for_hours_is_not_expected_to_end() -> None:
    old = tuple(busy(number, ran_s=36_000.0) for number in range(12))
    assert len(plan_scale(POOL, old, waiting(7), KNOWN, NOW).launches) == 7


def test_a_machine_that_starts_and_is_needed_no_longer_is_given_back_while_it_is_far_from_there() -> None:
    def starting(asked_s: float) -> InstanceView:
        at = NOW - timedelta(seconds=asked_s)
        return replace(
            busy(0),
            requested_at=at,
            launched_at=at,
            joined_at=None,
            agent_connected=False,
            slots_in_use=0,
            occupants=(),
            residents=(),
            reserved_for=("w",),
        )

    (end,) = plan_scale(POOL, (starting(5.0),), Demand(), KNOWN, NOW).terminations
    assert end.cause is Cause.UNWANTED
    assert plan_scale(POOL, (starting(175.0),), Demand(), KNOWN, NOW).terminations == ()
    assert plan_scale(replace(POOL, idle_learnt=False), (starting(5.0),), Demand(), KNOWN, NOW).terminations == ()
