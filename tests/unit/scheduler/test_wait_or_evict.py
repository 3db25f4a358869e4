"""Whether the more important waits for a machine or makes others leave: the rule, and the scheduler that follows it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import InstanceId
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply
from resolute_master.scheduler.wait_or_evict import LEAVE_S, URGENCY, expected_wait_s, never_pays, waiting_is_cheaper
from support.pools import NOW, a_job, a_policy, an_agent, elastic, evicts, on, waiting

JOBS = [a_job("high", priority=10), a_job("low", priority=90)]


@pytest.mark.parametrize(
    ("slots", "wait_s", "victim_slots", "lost_s_per_slot", "waits"),
    [
        (4, None, 4, 0, True),  # nobody knows when: as long as it comes at all
        (4, 20, 4, 0, True),  # there before anybody has left
        (4, 60, 4, 0, True),  # 2 x (60 - 30) against the 60 s that the victim would wait instead
        (4, 70, 4, 0, False),
        (4, 120, 4, 59, False),
        (4, 120, 4, 60, True),  # 2 x 90 = 120 + 60
        (4, 1200, 4, 600, False),
        (4, 1200, 4, 1140, True),
        (4, 120, 8, 0, True),  # twice as much work would wait instead
        (4, 120, 2, 119, False),  # half of it, beside slots that are free
        (4, 120, 2, 120, True),
    ],
)
def test_the_rule(slots: int, wait_s: float | None, victim_slots: int, lost_s_per_slot: float, waits: bool) -> None:
    lost = lost_s_per_slot * slots
    assert waiting_is_cheaper(slots=slots, wait_s=wait_s, victim_slots=victim_slots, lost_slot_s=lost) is waits


def test_a_longer_wait_speaks_for_evicting_and_more_lost_work_against_it() -> None:
    def waits(wait_s: float, lost: float) -> bool:
        return waiting_is_cheaper(slots=2, wait_s=wait_s, victim_slots=2, lost_slot_s=lost)

    for lost in (0.0, 100.0, 1000.0):
        found = [waits(wait_s, lost) for wait_s in range(0, 2000, 10)]
        assert found == sorted(found, reverse=True)
    for wait_s in (10.0, 100.0, 1000.0):
        found = [waits(wait_s, lost) for lost in range(0, 4000, 100)]
        assert found == sorted(found)


def test_where_no_eviction_can_pay_none_is_looked_for() -> None:
    assert never_pays(None) and never_pays(LEAVE_S) and not never_pays(LEAVE_S + 1)
    assert URGENCY > 1, "or nobody would ever be worth evicting for"


def test_what_is_late_is_expected_to_stay_away_as_long_again() -> None:
    assert (expected_wait_s(40.0), expected_wait_s(0.0), expected_wait_s(-300.0)) == (40.0, 0.0, 300.0)


# ------------------------------------------------------------------------------------------------- in the scheduler


def decided(*, ran_s: float, supply: Supply) -> Plan:
    """Low work has the only machine since `ran_s`, without a checkpoint; high work of the same size waits."""
    began = NOW - timedelta(seconds=ran_s)
    running = replace(on(waiting("low", "low", 4), {"a": (0, 1, 2, 3)}), assigned_at=began, started_at=began)
    work = [running, waiting("high", "high", 4)]
    policy = a_policy(preemption=True, scaling=elastic(4))
    return schedule(PoolSnapshot.build(policy, [an_agent("a", 4)], JOBS, work, supply, now=NOW))


def coming(in_s: float) -> Supply:
    at = NOW + timedelta(seconds=in_s)
    return Supply(machines=(ComingMachine(instance=InstanceId("i-1"), slots=4, expected_at=at),))


def offered(join_s: float | None) -> Supply:
    return Supply(offers=(AvailableOffer(offer_id="m", slots=4, expected_s=join_s),), room=1)


@pytest.mark.parametrize("supply", [coming(120), offered(120), coming(-120)])
def test_what_has_just_begun_leaves_and_what_would_lose_much_is_waited_for(supply: Supply) -> None:
    assert evicts(decided(ran_s=10, supply=supply)) == {"low": "high"}
    assert not decided(ran_s=600, supply=supply).preempt


def test_a_machine_that_is_nearly_there_is_waited_for() -> None:
    assert not decided(ran_s=0, supply=coming(25)).preempt


def test_a_machine_that_takes_long_is_not() -> None:
    assert evicts(decided(ran_s=600, supply=offered(1800))) == {"low": "high"}


def test_an_offer_that_gives_single_machines_only_is_none_for_a_gang() -> None:
    running = [on(waiting(name, "low", 4), {agent: (0, 1, 2, 3)}) for name, agent in (("l1", "a"), ("l2", "b"))]
    agents, policy = [an_agent("a", 4), an_agent("b", 4)], a_policy(preemption=True, scaling=elastic(4))

    def supply(*, one_only: bool) -> Supply:
        return Supply(offers=(AvailableOffer(offer_id="m", slots=4, one_only=one_only),), room=2)

    def left(*, one_only: bool) -> set[str]:
        work = [*running, waiting("gang", "high", 8)]
        return set(evicts(schedule(PoolSnapshot.build(policy, agents, JOBS, work, supply(one_only=one_only), now=NOW))))

    assert left(one_only=False) == set()
    assert left(one_only=True) == {"l1", "l2"}


SMALL, LARGE = AvailableOffer(offer_id="s", slots=2), AvailableOffer(offer_id="l", slots=4)


def who_leaves(supply: Supply, *claims: Allocation) -> set[str]:
    """Victims among the allocations that fill three agents of 4 slots."""
    names = {"l1": "a", "l2": "b", "l3": "c"}
    running = [on(waiting(name, "low", 4), {agent: (0, 1, 2, 3)}) for name, agent in names.items()]
    agents, policy = [an_agent(agent, 4) for agent in names.values()], a_policy(preemption=True, scaling=elastic(4))
    return set(evicts(schedule(PoolSnapshot.build(policy, agents, JOBS, [*running, *claims], supply, now=NOW))))


@pytest.mark.parametrize(
    ("large", "small", "room", "left"),
    [
        (2, 0, 9, 0),
        (1, 0, 9, 2),  # only one of the two that it needs
        (1, 4, 9, 0),  # but four of the other size
        (1, 3, 9, 2),
        (1, 4, 3, 2),  # and no more than three in all
        (None, 0, 2, 0),
        (None, 0, 1, 2),
    ],
)
def test_a_gang_waits_for_machines_of_an_offer_only_when_all_of_them_may_be_asked_for(
    large: int | None, small: int, room: int, left: int
) -> None:
    supply = Supply(offers=(replace(LARGE, room=large), replace(SMALL, room=small)), room=room)
    assert len(who_leaves(supply, waiting("gang", "high", 8))) == left


def test_what_one_may_have_of_an_offer_is_no_room_for_the_next() -> None:
    claims = [waiting(f"h{number}", "high", 4) for number in range(3)]
    dear = replace(LARGE, offer_id="dear", price_per_hour=9.0, room=1)
    for offers, room, left in [((LARGE, dear), 9, 0), ((replace(LARGE, room=1), dear), 9, 1), ((LARGE, dear), 2, 1)]:
        assert len(who_leaves(Supply(offers=offers, room=room), *claims)) == left
    claims = [waiting(f"h{number}", "high", 8) for number in range(2)]
    assert who_leaves(Supply(offers=(replace(LARGE, room=4),), room=9), *claims) == set()
    assert len(who_leaves(Supply(offers=(replace(LARGE, room=3),), room=9), *claims)) == 2


def test_the_machines_that_a_gang_still_needs_are_of_one_offer() -> None:
    twice = tuple(replace(LARGE, offer_id=name, room=1) for name in ("m", "n"))
    gang = waiting("gang", "high", 8)
    assert len(who_leaves(Supply(offers=twice, room=9), gang)) == 2
    on_its_way = ComingMachine(instance=InstanceId("i-1"), slots=4, expected_at=NOW, gangs=("gang",))
    assert who_leaves(Supply(offers=twice, room=9, machines=(on_its_way,)), gang) == set()


def test_the_wait_is_that_for_the_offer_that_is_left() -> None:
    quick, slow = replace(LARGE, expected_s=20.0, room=0), replace(LARGE, offer_id="slow", expected_s=7200.0)
    for slots in (4, 8):
        claim = waiting("claim", "high", slots)
        assert len(who_leaves(Supply(offers=(quick, slow), room=9), claim)) == slots // 4
        assert who_leaves(Supply(offers=(replace(quick, room=2), slow), room=9), claim) == set()


def test_who_is_evicted_needs_the_machine_then() -> None:
    plan = decided(ran_s=10, supply=offered(120))
    assert [gang.token for gang in plan.demand.gangs] == []


# ------------------------------------------------------------------------------------- what time alone brings about


def after_seconds(seconds: float, *, victim: str = "low", expected_s: float = 60.0) -> Plan:
    """A machine that was expected, and does not come. What runs has half of the slots that `high` waits for, since long."""
    began, now = NOW - timedelta(seconds=600), NOW + timedelta(seconds=seconds)
    running = replace(on(waiting(victim, victim, 2), {"a": (0, 1)}), assigned_at=began, started_at=began)
    claim = waiting("next", "high", 4)
    snapshot = PoolSnapshot.build(
        a_policy(preemption=True, scaling=elastic(4)),
        [an_agent("a", 4)],
        JOBS,
        [running, claim],
        coming(expected_s),
        now=now,
    )
    return schedule(snapshot)


def looks(**world: float) -> tuple[list[float], Plan]:
    """When a wait is decided again, in seconds from the beginning, until it is given up."""
    found, plan = [0.0], after_seconds(0, **world)  # type: ignore[arg-type]
    while not plan.preempt:
        assert plan.revisit_at is not None, "nothing else would ever end this wait"
        found.append((plan.revisit_at - NOW).total_seconds())
        assert found[-1] > found[-2]
        plan = after_seconds(found[-1], **world)  # type: ignore[arg-type]
    return found, plan


def test_a_wait_for_a_machine_that_does_not_come_is_decided_again_until_it_is_given_up() -> None:
    found, plan = looks()
    assert evicts(plan) == {"low": "next"}
    first = next(second for second in range(10_000) if after_seconds(second).preempt)
    assert first <= found[-1] <= 60 + 2 * (first - 60), "not later than when it is twice as late as it need be"
    assert len(found) < 10, "and seldom"


def test_a_machine_that_was_expected_just_now_is_waited_for_a_little_longer() -> None:
    assert looks(expected_s=0.0)[0][1] == LEAVE_S


def test_where_nobody_can_be_made_to_leave_nothing_is_looked_at_again() -> None:
    assert after_seconds(0, victim="high").revisit_at is None
    assert after_seconds(1000, victim="high").revisit_at is None
