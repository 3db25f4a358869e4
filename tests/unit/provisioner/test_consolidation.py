"""When half-empty machines are emptied, and how long idle ones are kept, decision by decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from resolute_provisioner.model import (
    Cause,
    Consolidation,
    Demand,
    Gang,
    InstanceView,
    Intent,
    Market,
    Observed,
    Offer,
    PoolScaling,
    Resident,
    ScalePlan,
)
from resolute_provisioner.planning import keep_warm
from resolute_provisioner.planning.plan import plan_scale

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def _offer(slots: int, market: Market = Market.ON_DEMAND) -> Offer:
    name = f"{market}-{slots}"
    return Offer(offer_id=name, instance_type=name, zone="z", market=market, slots=slots, price_per_hour=3.6 * slots)


POOL = PoolScaling(
    pool="p",
    offers=(_offer(1), _offer(4), _offer(8)),
    max_instances=10,
    consolidation=Consolidation(margin=2.0, restart_s=100.0),
)


def _machine(
    name: str, slots: int, *used: int, hours: float = 2.0, offer: str = "", movable: bool = True
) -> InstanceView:
    since = NOW - timedelta(hours=hours)
    residents = tuple(
        Resident(token=f"{name}-{number}", slots=count, since=since, movable=movable)
        for number, count in enumerate(used)
    )
    return InstanceView(
        instance_id=name,
        token=name,
        offer_id=offer or f"on_demand-{slots}",
        slots=slots,
        intent=Intent.RUN,
        observed=Observed.RUNNING,
        requested_at=since,
        launched_at=since,
        joined_at=since,
        agent_connected=True,
        slots_in_use=sum(used),
        occupants=tuple(resident.token for resident in residents),
        residents=residents,
        idle_since=None if used else NOW,
    )


def _plan(*machines: InstanceView, pool: PoolScaling = POOL, demand: Demand | None = None) -> ScalePlan:
    return plan_scale(pool, machines, demand or Demand(), {}, NOW)


def _drained(plan: ScalePlan) -> list[str]:
    assert all(each.drain and each.cause is Cause.CONSOLIDATION for each in plan.terminations)
    return [each.instance_id for each in plan.terminations]


def test_the_dearest_machine_whose_work_fits_elsewhere_is_drained() -> None:
    assert _drained(_plan(_machine("a", 8, 1, 2), _machine("b", 8, 1, 4), _machine("c", 4, 3))) == ["a"]


def test_one_machine_at_a_time() -> None:
    draining = replace(_machine("a", 8, 1), draining_since=NOW)
    assert _plan(draining, _machine("b", 8, 1), _machine("c", 8, 1)).terminations == ()


def test_nothing_is_moved_while_anything_waits() -> None:
    waits = Demand(gangs=(Gang(token="g", slots=8, submitted_at=NOW),))
    assert not [
        each for each in _plan(_machine("a", 8, 1), _machine("b", 8, 1), demand=waits).terminations if each.drain
    ]


@pytest.mark.parametrize(
    "never",
    [
        Gang(token="g", slots=12, submitted_at=NOW, single_machine=True),
        Gang(token="g", slots=11 * 8, submitted_at=NOW),
        Gang(token="g", slots=0, submitted_at=NOW),
        Gang(token="g", slots=6, submitted_at=NOW, markets=frozenset({Market.SPOT})),
    ],
    ids=["larger than any machine", "more machines than the pool may have", "without slots", "for another market"],
)
def test_what_can_never_start_here_keeps_no_machine_from_being_emptied(never: Gang) -> None:
    """Two of four slots each; only work of other sizes, markets and kinds than the pool can ever have is waiting."""
    pool = replace(POOL, offers=(_offer(1), _offer(4)), max_aux_per_instance=0)
    assert _drained(_plan(_machine("a", 4, 1), _machine("b", 4, 2), pool=pool, demand=Demand(gangs=(never,)))) == ["a"]


def test_without_the_policy_nothing_is_moved() -> None:
    assert _plan(_machine("a", 8, 1), _machine("b", 8, 1), pool=replace(POOL, consolidation=None)).terminations == ()


@pytest.mark.parametrize(
    "other",
    [
        _machine("b", 8, 8),
        _machine("b", 8, 4, 2),
        replace(_machine("b", 8, 1), disabled=True),
        replace(_machine("b", 8, 1), agent_connected=False, disconnected_since=NOW),
        _machine("b", 8, 1, offer="spot-8"),
    ],
    ids=["full", "too full", "disabled", "away", "of another market"],
)
def test_a_place_that_is_none_is_not_counted(other: InstanceView) -> None:
    pool = replace(POOL, offers=(_offer(8), _offer(8, Market.SPOT)))
    assert _plan(_machine("a", 8, 3, movable=True), replace(other, residents=()), pool=pool).terminations == ()


def test_what_must_not_move_keeps_its_machine() -> None:
    assert _drained(_plan(_machine("a", 8, 1, movable=False), _machine("b", 8, 2, movable=False))) == []


def test_the_minimum_stays() -> None:
    pool = replace(POOL, min_instances=2)
    assert _plan(_machine("a", 8, 1), _machine("b", 8, 1), pool=pool).terminations == ()


def test_young_work_is_left_alone_until_the_move_is_expected_to_pay() -> None:
    """At 28.8 an hour, a restart of one slot costs 0.1, and 25 s save twice that; but an allocation that was just placed stays
    for 200 s."""
    young = _machine("a", 8, 1, hours=0.01)
    plan = _plan(young, _machine("b", 8, 4, hours=0.01, movable=False))
    assert plan.terminations == () and plan.revisit_at == NOW - timedelta(hours=0.01) + timedelta(seconds=200)


def test_a_smaller_machine_is_launched_first_awaited_and_then_moved_to() -> None:
    only = _machine("a", 8, 2, 1)
    plan = _plan(only)
    assert [launch.offer_id for launch in plan.launches] == ["on_demand-4"] and plan.terminations == ()
    coming = replace(_machine("b", 4), joined_at=None, agent_connected=False, idle_since=None, requested_at=NOW)
    coming = replace(coming, launched_at=NOW)
    waiting = _plan(only, coming)
    assert waiting.launches == () and waiting.terminations == ()
    assert _drained(_plan(only, _machine("b", 4))) == ["a"]


def test_while_one_machine_comes_for_a_move_none_is_launched_for_another_in_any_market() -> None:
    pool = replace(POOL, offers=(*POOL.offers, _offer(4, Market.SPOT)))
    only, coming = _machine("a", 8, 2, 1), _machine("b", 4, offer="spot-4")
    assert [launch.offer_id for launch in _plan(only, pool=pool).launches] == ["on_demand-4"]
    coming = replace(coming, joined_at=None, agent_connected=False, idle_since=None, requested_at=NOW, launched_at=NOW)
    assert _plan(only, coming, pool=pool).launches == ()


def test_no_machine_is_launched_where_there_is_no_room() -> None:
    assert _plan(_machine("a", 8, 2, 1), pool=replace(POOL, max_instances=1)).launches == ()


@pytest.mark.parametrize(
    ("price", "limit", "seconds"),
    [(3.6, None, 1200.0), (3.6, 1.8, 1800.0), (28.8, 1.8, 1200.0), (None, 1.8, 1200.0), (0.0, 1.8, 1200.0)],
)
def test_a_machine_is_kept_for_the_period_or_as_long_as_its_idle_time_is_cheap(
    price: float | None, limit: float | None, seconds: float
) -> None:
    pool = replace(POOL, max_idle_cost=limit)
    assert keep_warm.IdlePeriods(pool, {}).of(POOL.offers[0].offer_id, price) == pytest.approx(seconds)


def test_the_planner_keeps_a_cheap_machine_and_looks_again_when_it_is_due() -> None:
    pool = replace(POOL, max_idle_cost=1.8)
    since = NOW - timedelta(seconds=1500)
    small, large = (replace(_machine(f"m{slots}", slots), idle_since=since) for slots in (1, 8))
    plan = _plan(small, large, pool=pool)
    assert [(each.instance_id, each.cause) for each in plan.terminations] == [("m8", Cause.IDLE)]
    assert plan.revisit_at == since + timedelta(seconds=1800)


@pytest.mark.parametrize("limit", [1.3, 1.53, 1.8, 1.83765432101234567, 2.2909999])
def test_when_the_planner_looks_again_the_machine_is_due(limit: float) -> None:
    """A moment of which rounding has taken a part of a microsecond would find it not due yet, and be the last."""
    pool, idle = replace(POOL, max_idle_cost=limit), replace(_machine("a", 1), idle_since=NOW)
    due = _plan(idle, pool=pool).revisit_at
    assert due is not None
    later = plan_scale(pool, (idle,), Demand(), {}, due)
    assert [each.cause for each in later.terminations] == [Cause.IDLE]
