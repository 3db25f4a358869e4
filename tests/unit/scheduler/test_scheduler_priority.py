"""The rules of the priority scheduler, one example each."""

from __future__ import annotations

from typing import Any

import pytest

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.job import Job
from resolute_master.scheduler.plan import HoldKind
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.sorted_map import Meter
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply
from resolute_provisioner.planning.plan import plan_scale
from support.pool_promises import returned
from support.pools import (
    NOW,
    a_job,
    a_policy,
    an_agent,
    applied,
    at,
    elastic,
    evicts,
    gone,
    leaving,
    on,
    starts,
    waiting,
)
from support.provisioner import joined

FIRST = a_job("first", priority=1)
HIGH = a_job("high", priority=10)
EARLY = a_job("early", second=0)
LATE = a_job("late", second=100)
LOW = a_job("low", priority=90)
JOBS = [FIRST, HIGH, EARLY, LATE, LOW]
TWO = [an_agent("a", 4, instance="ia"), an_agent("b", 4, instance="ib")]


def pool(
    agents: list[Agent],
    *allocations: Allocation,
    jobs: list[Job] | None = None,
    supply: Supply | None = None,
    **policy: Any,
) -> PoolSnapshot:
    policy = {"preemption": True, **policy}
    return PoolSnapshot.build(a_policy(**policy), agents, jobs or JOBS, allocations, supply, now=NOW)


def holds(snapshot: PoolSnapshot) -> dict[str, tuple[HoldKind, dict[str, int]]]:
    return {h.allocation.removesuffix(".1"): (h.kind, dict(h.agents)) for h in schedule(snapshot).holds}


# ----------------------------------------------------------------------------------------------------------- order


def test_priority_then_position_then_request_then_id() -> None:
    work = [
        waiting("z", "low"),
        waiting("y", "late"),
        waiting("x", "early", second=9),
        waiting("w", "early", second=5),
        waiting("v", "early", second=5),
        waiting("u", "high"),
    ]
    order = [p.allocation.removesuffix(".1") for p in schedule(pool([an_agent("a", 8)], *work)).place]
    assert order == ["u", "v", "w", "x", "y", "z"]


def test_a_changed_priority_changes_the_order_and_who_may_be_preempted() -> None:
    snapshot = pool([an_agent("a", 1)], waiting("one", "early"), waiting("two", "late"))
    assert set(starts(schedule(snapshot))) == {"one"}
    raised = snapshot.after(replace(LATE, priority=5))
    assert set(starts(schedule(raised))) == {"two"}
    running = applied(snapshot, schedule(snapshot))
    assert schedule(running).preempt == ()
    assert evicts(schedule(running.after(replace(LATE, priority=5)))) == {"one": "two"}


def test_nothing_leaves_for_auxiliary_work_not_even_lesser_auxiliary_work() -> None:
    lesser = on(waiting("lesser", "low", 0), {"a": ()})
    full = on(waiting("full", "low", 4), {"a": (0, 1, 2, 3)})
    snapshot = pool([an_agent("a", 4)], lesser, full, waiting("aux", "high", 0), max_aux_containers_per_agent=1)
    decided = schedule(snapshot)
    assert (decided.place, decided.preempt) == ((), ())
    two = pool([an_agent("a", 4)], lesser, full, waiting("aux", "high", 0), max_aux_containers_per_agent=2)
    assert set(starts(schedule(two))) == {"aux"}


def test_the_head_keeps_the_agent_that_will_be_free_soonest_and_others_start_beside_it() -> None:
    running = [on(waiting("r1", "early"), {"a": (0,)}), on(waiting("r2", "early", 3), {"b": (0, 1, 2)})]
    snapshot = pool(TWO, *running, waiting("head", "high", 4), waiting("small", "low"), preemption=False)
    assert holds(snapshot) == {"head": (HoldKind.RUNNING, {"a": 4})}
    plan = schedule(snapshot)
    assert starts(plan) == {"small": {"b": (3,)}}
    assert plan.place[0].ahead_of == "head.1"
    assert "kept for head.1" in plan.notes[0].text


def test_without_preemption_nothing_less_important_takes_reserved_room() -> None:
    running = on(waiting("r", "early"), {"a": (0,)})
    snapshot = pool(TWO[:1], running, waiting("head", "high", 4), waiting("small", "low"), preemption=False)
    assert schedule(snapshot).place == ()


def test_with_preemption_what_can_be_preempted_again_may_use_reserved_room() -> None:
    running = on(waiting("r", "high", preemptible=False), {"a": (0,)})
    work = [waiting("head", "early", 4), waiting("soft", "low"), waiting("hard", "low", preemptible=False)]
    assert starts(schedule(pool(TWO[:1], running, *work))) == {"soft": {"a": (1,)}}


def test_room_that_others_are_leaving_is_kept_for_the_first_that_it_holds() -> None:
    old = leaving(on(waiting("old", "early", 2), {"a": (0, 1)}))
    snapshot = pool(TWO[:1], old, waiting("head", "high", 4), waiting("small", "low"))
    assert holds(snapshot) == {"head": (HoldKind.VACATING, {"a": 4})}
    assert schedule(snapshot).place == ()
    assert starts(schedule(snapshot.after(gone(old)))) == {"head": {"a": (0, 1, 2, 3)}}


def test_what_is_left_over_beside_a_hold_may_be_used() -> None:
    old = leaving(on(waiting("old", "early", 2), {"a": (0, 1)}))
    snapshot = pool(TWO[:1], old, waiting("head", "high", 3), waiting("small", "low"), waiting("next", "low"))
    assert starts(schedule(snapshot)) == {"next": {"a": (2,)}}


# ------------------------------------------------------------------------------------------------------------ caps


def test_a_job_never_holds_more_than_its_cap_counting_what_is_leaving() -> None:
    capped = a_job("capped", max_slots=2)
    old = leaving(on(waiting("old", "capped"), {"a": (0,)}))
    work = [waiting("one", "capped"), waiting("two", "capped"), waiting("other", "low")]
    snapshot = pool(TWO[:1], old, *work, jobs=[capped, LOW])
    assert set(starts(schedule(snapshot))) == {"one", "other"}
    assert set(starts(schedule(applied(snapshot, schedule(snapshot)).after(gone(old))))) == {"two"}


def test_what_its_cap_holds_back_holds_back_nobody_and_asks_for_no_machine() -> None:
    capped = a_job("capped", priority=1, max_slots=3)
    snapshot = pool(TWO[:1], waiting("over", "capped", 4), waiting("low", "low"), jobs=[capped, LOW], scaling=elastic())
    assert set(starts(schedule(snapshot))) == {"low"}
    assert schedule(snapshot).demand.gangs == ()


# ------------------------------------------------------------------------------------------------------ preemption


def test_the_least_important_leave_first_and_only_as_many_as_needed() -> None:
    running = [
        on(waiting("l1", "low"), {"a": (0,)}, second=10),
        on(waiting("l2", "low"), {"a": (1,)}, second=20),
        on(waiting("e1", "early"), {"a": (2,)}),
        on(waiting("e2", "late"), {"a": (3,)}),
    ]
    plan = schedule(pool(TWO[:1], *running, waiting("new", "high", 2)))
    assert evicts(plan) == {"l1": "new", "l2": "new"}
    # Of equals, the one that loses the least work: the most recently started.
    assert evicts(schedule(pool(TWO[:1], *running, waiting("new", "high")))) == {"l2": "new"}
    assert plan.preempt[0].reason == "its slots go to new.1, which has priority 10 before 90"


def test_a_victim_that_became_unneeded_is_spared() -> None:
    running = [on(waiting("small", "low"), {"a": (0,)}, second=50), on(waiting("large", "low", 3), {"a": (1, 2, 3)})]
    assert evicts(schedule(pool(TWO[:1], *running, waiting("new", "high", 3)))) == {"large": "new"}


def test_a_victim_that_a_later_eviction_made_unneeded_is_spared() -> None:
    """The second of the two that come makes somebody leave who has held enough for both."""
    running = [
        on(waiting("one", "low"), {"a": (0,)}, second=3599),
        on(waiting("three", "low", 3), {"a": (1, 2, 3)}, second=3599),
    ]
    work = [waiting("new", "high"), waiting("newer", "high", second=1)]
    plan = schedule(pool(TWO[:1], *running, *work))
    assert evicts(plan) == {"three": "newer"}
    assert {hold.allocation: hold.agents for hold in plan.holds} == {"new.1": (("a", 1),), "newer.1": (("a", 1),)}


def test_the_agent_whose_victims_lose_least_is_chosen() -> None:
    running = [
        on(waiting("long", "low", 4), {"a": (0, 1, 2, 3)}),
        on(waiting("short", "low", 4), {"b": (0, 1, 2, 3)}, second=3000),
    ]
    assert evicts(schedule(pool(TWO, *running, waiting("new", "high")))) == {"short": "new"}


def test_of_equals_only_guests_leave_and_who_was_put_behind_by_hand() -> None:
    running, new = on(waiting("r", "late", 4), {"a": (0, 1, 2, 3)}), waiting("new", "early", 4)
    assert evicts(schedule(pool(TWO[:1], running, new))) == {}
    reserved = replace(new, reserved_agents=(TWO[0].id,))
    assert evicts(schedule(pool(TWO[:1], running, reserved))) == {"r": "new"}
    before = replace(running, assigned_at=at(-60))
    assert evicts(schedule(pool(TWO[:1], before, reserved))) == {}, "it ran there before"
    elsewhere = replace(new, reserved_agents=(TWO[1].id,))
    assert evicts(schedule(pool(TWO[:1], running, elsewhere))) == {}
    jobs = [a_job("early"), a_job("late", second=60)]
    ahead = replace(jobs[1], queue_position=jobs[0].queue_position - 1)
    first, last = on(waiting("r", "early", 4), {"a": (0, 1, 2, 3)}), waiting("new", "late", 4)
    assert evicts(schedule(pool(TWO[:1], first, last, jobs=jobs))) == {}
    assert evicts(schedule(pool(TWO[:1], first, last, jobs=[jobs[0], ahead]))) == {"r": "new"}
    twice = [replace(jobs[0], queue_position=at(300).timestamp()), replace(jobs[1], queue_position=at(200).timestamp())]
    assert evicts(schedule(pool(TWO[:1], first, last, jobs=twice))) == {"r": "new"}, (
        "both were moved, one ahead of the other"
    )
    other = a_job("other", second=90)
    behind = replace(first, job_id=other.id)
    assert evicts(schedule(pool(TWO[:1], behind, last, jobs=[ahead, other]))) == {}, "nobody has put that one behind"


def test_who_has_made_room_makes_no_equal_leave_in_turn() -> None:
    """One important task comes to eight equal ones. The one that leaves waits; it does not make the next one leave, and so on."""
    jobs = [a_job("high", priority=1), *(a_job(f"e{n}", second=n) for n in range(8))]
    agent = an_agent("a", 8)
    running = [on(waiting(f"e{n}", f"e{n}", second=n), {"a": (n,)}, second=-600 + 50 * ((n * 3) % 8)) for n in range(8)]
    snapshot = pool([agent], *running, waiting("high", "high"), jobs=jobs)
    left: list[str] = []
    while (plan := schedule(snapshot)).place or plan.preempt:
        snapshot = applied(snapshot, plan)
        for victim in list(snapshot.leaving()):
            left.append(victim.id)
            snapshot = snapshot.after(gone(victim)).after(returned(victim))
    assert left == ["e5.1"], "it has begun last, and loses least"
    assert [a.id for a in snapshot.pending()] == ["e5.2"]


@pytest.mark.parametrize("changes", [{"preemptible": False}, {"job_id": "high"}])
def test_the_unpreemptible_and_the_more_important_stay(changes: dict[str, Any]) -> None:
    running = on(waiting("r", "low", 4, **changes), {"a": (0, 1, 2, 3)})
    assert schedule(pool(TWO[:1], running, waiting("new", "high"))).preempt == ()


def test_nobody_leaves_in_vain() -> None:
    running = [
        on(waiting("soft", "low", 2), {"a": (0, 1)}),
        on(waiting("hard", "low", 2, preemptible=False), {"a": (2, 3)}),
    ]
    snapshot = pool(TWO[:1], *running, waiting("new", "high", 4))
    assert schedule(snapshot).preempt == ()


def test_preemption_is_a_choice_of_the_pool() -> None:
    running = on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)})
    assert schedule(pool(TWO[:1], running, waiting("new", "high"), preemption=False)).preempt == ()


def test_a_gang_empties_the_cheapest_whole_agents() -> None:
    agents = [an_agent(name, 2) for name in "abcd"]
    running = [
        on(waiting("wide", "low", 4), {"a": (0, 1), "b": (0, 1)}),
        on(waiting("c1", "early"), {"c": (0,)}),
        on(waiting("d1", "high", preemptible=False), {"d": (0,)}),
    ]
    snapshot = pool(agents, *running, waiting("gang", "first", 4))
    assert evicts(schedule(snapshot)) == {"wide": "gang"}
    assert holds(snapshot) == {"gang": (HoldKind.PREEMPTING, {"a": 2, "b": 2})}
    # Six slots need a third agent: the job of middling importance goes too, the unpreemptible one stays.
    assert evicts(schedule(pool(agents, *running, waiting("gang", "first", 6)))) == {"wide": "gang", "c1": "gang"}
    assert evicts(schedule(pool(agents, *running, waiting("gang", "first", 8)))) == {}


def test_what_starts_in_the_same_pass_is_not_emptied_away() -> None:
    agents = [an_agent("a", 2), an_agent("b", 2)]
    snapshot = pool(agents, on(waiting("r", "low"), {"a": (0,)}), waiting("one", "first"), waiting("gang", "high", 4))
    plan = schedule(snapshot)
    assert starts(plan) == {"one": {"a": (1,)}}
    assert plan.preempt == ()


def test_a_second_pass_asks_nobody_again() -> None:
    running = [on(waiting(f"l{n}", "low"), {"a": (n,)}) for n in range(4)]
    snapshot = pool(TWO[:1], *running, waiting("new", "high", 2))
    following = applied(snapshot, schedule(snapshot))
    assert schedule(following).preempt == ()
    assert holds(following) == {"new": (HoldKind.VACATING, {"a": 2})}


# ---------------------------------------------------------------------------------------------------------- supply


def coming(*slots: int, gangs: tuple[str, ...] = ()) -> tuple[ComingMachine, ...]:
    return tuple(ComingMachine(instance=InstanceId(f"i{n}"), slots=s, gangs=gangs) for n, s in enumerate(slots))


def tokens(snapshot: PoolSnapshot) -> list[str]:
    return [gang.token.removesuffix(".1") for gang in schedule(snapshot).demand.gangs]


def test_a_machine_on_its_way_is_waited_for_rather_than_preempting() -> None:
    running = on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)})
    work = [waiting("new", "high", 4), waiting("next", "high", 4)]
    snapshot = pool(TWO[:1], running, *work, supply=Supply(machines=coming(4)), scaling=elastic(4))
    assert evicts(schedule(snapshot)) == {"r": "next"}
    assert tokens(snapshot) == ["new"], "the one that others leave for needs no machine"


def test_a_machine_that_can_be_had_is_waited_for_too_but_not_one_that_cannot() -> None:
    running = on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)})
    offers = (AvailableOffer(offer_id="m", slots=4),)
    had = pool(TWO[:1], running, waiting("new", "high", 4), supply=Supply(offers=offers, room=1), scaling=elastic(4))
    assert schedule(had).preempt == () and tokens(had) == ["new"]
    full = had.with_supply(Supply(offers=offers, room=0))
    assert evicts(schedule(full)) == {"r": "new"} and tokens(full) == []


def test_small_gangs_share_one_machine_that_could_be_had() -> None:
    running = on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)})
    work = [waiting(f"t{n}", "high", 2) for n in range(3)]
    offers = (AvailableOffer(offer_id="m", slots=4),)
    snapshot = pool(TWO[:1], running, *work, supply=Supply(offers=offers, room=1), scaling=elastic(4))
    assert evicts(schedule(snapshot)) == {"r": "t2"}


def test_a_gang_keeps_the_idle_agent_while_the_rest_comes() -> None:
    snapshot = pool(
        TWO[:1],
        waiting("gang", "high", 8),
        waiting("small", "low"),
        supply=Supply(machines=coming(4)),
        scaling=elastic(4),
    )
    assert holds(snapshot) == {"gang": (HoldKind.MACHINES, {"a": 4})}
    assert schedule(snapshot).place == ()
    assert tokens(snapshot) == ["gang", "small"]


def test_a_gang_whose_machines_cannot_come_keeps_nothing_idle() -> None:
    snapshot = pool(TWO[:1], waiting("gang", "high", 8), waiting("small", "low"), scaling=elastic(4))
    assert starts(schedule(snapshot)) == {"small": {"a": (0,)}}


def test_machines_that_were_launched_for_a_gang_leave_idle_agents_to_others() -> None:
    machines = coming(4, 4, gangs=("gang.1",))
    snapshot = pool(TWO[:1], waiting("gang", "high", 8), waiting("small", "low"), supply=Supply(machines=machines))
    assert starts(schedule(snapshot)) == {"small": {"a": (0,)}}


def test_demand_says_what_each_gang_needs() -> None:
    blocked = replace(waiting("picky", "late", 4, single_node=True), blocked_agents=(TWO[0].id, TWO[1].id))
    snapshot = pool(TWO, blocked, waiting("aux", "low", 0, blocked_agents=(TWO[0].id, TWO[1].id)), scaling=elastic())
    first, second = schedule(snapshot).demand.gangs
    assert (first.token, first.slots, first.single_machine, first.priority) == ("picky.1", 4, True, 0)
    assert first.submitted_at == LATE.submitted_at
    assert first.excluded_instances == {"ia", "ib"}
    assert (second.token, second.slots, second.single_machine, second.priority) == ("aux.1", 0, True, 1)


def test_machines_are_asked_for_in_the_order_that_was_made_by_hand() -> None:
    """A gang of three machines that was moved ahead of one of two, one machine there and room for two more: both would wait for
    ever if the scheduler kept the one for the first and the planner for the second."""
    jobs = [a_job("first", second=60, queue_position=0.0), a_job("second", second=0)]
    scaling, work = elastic(4, max_instances=3), [waiting("second", "second", 8), waiting("first", "first", 12)]
    offers = (AvailableOffer(offer_id="m", slots=4),)
    plan = schedule(pool(TWO[:1], *work, jobs=jobs, supply=Supply(offers=offers, room=2), scaling=scaling))
    bought = plan_scale(scaling, (joined("ia", slots=4, offer="m"),), plan.demand, {}, NOW).launches
    assert [launch.gang_tokens for launch in bought] == [("first.1",), ("first.1",)]


def test_a_gang_gets_agents_that_are_emptied_and_machines_beside_them() -> None:
    """Two machines at most; a lesser one runs on the first. Of all that runs no more leaves than the gang needs."""
    supply = Supply(offers=(AvailableOffer(offer_id="m", slots=4),), room=1)
    scaling = elastic(4, max_instances=2)
    low = on(waiting("r", "low", 2), {"a": (0, 1)})
    snapshot = pool(
        TWO[:1], low, waiting("gang", "high", 8), waiting("late", "late", 4), supply=supply, scaling=scaling
    )
    plan = schedule(snapshot)
    assert evicts(plan) == {"r": "gang"}
    assert holds(snapshot) == {"gang": (HoldKind.MACHINES, {"a": 4})}
    bought = plan_scale(scaling, (joined("ia", slots=4, offer="m"),), plan.demand, {}, NOW).launches
    assert [launch.gang_tokens for launch in bought] == [("gang.1",)]
    two = replace(supply, room=2)
    assert evicts(schedule(pool(TWO[:1], low, waiting("gang", "high", 8), supply=two, scaling=scaling))) == {}
    hard = replace(low, preemptible=False)
    assert evicts(schedule(pool(TWO[:1], hard, waiting("gang", "high", 8), supply=supply, scaling=scaling))) == {}


def test_machines_are_left_to_a_gang_that_waits_for_agents_beside_them() -> None:
    """Where nobody can be made to leave, the last machine would go to each that comes later, and the gang would wait for ever."""
    supply = Supply(offers=(AvailableOffer(offer_id="m", slots=4),), room=1)
    scaling = elastic(4, max_instances=2)
    runs, gang, late = on(waiting("r", "low", 2), {"a": (0, 1)}), waiting("gang", "high", 8), waiting("late", "late", 4)
    snapshot = pool(TWO[:1], runs, gang, late, supply=supply, scaling=scaling, preemption=False)
    assert holds(snapshot) == {"gang": (HoldKind.RUNNING, {"a": 4})}
    demand = schedule(snapshot).demand
    assert [each.token for each in demand.gangs] == ["gang.1"]
    busy = joined("ia", slots=4, used=2, occupants=("r.1",), offer="m")
    assert not plan_scale(scaling, (busy,), demand, {}, NOW).launches, "it would be paid for idling"
    reserved = replace(gang, reserved_agents=(TWO[0].id,))
    later = snapshot.with_allocation(reserved).after(gone(runs))
    assert holds(later) == {"gang": (HoldKind.MACHINES, {"a": 4})}
    bought = plan_scale(scaling, (joined("ia", slots=4, offer="m"),), schedule(later).demand, {}, NOW).launches
    assert [launch.gang_tokens for launch in bought] == [("gang.1",)]


def test_a_pool_that_never_grows_has_no_demand() -> None:
    assert schedule(pool([], waiting("t", "high", 4))).demand.gangs == ()


def test_demand_is_no_longer_than_the_largest_pool() -> None:
    work = [waiting(f"t{n:03}", "high", 4) for n in range(500)]
    offers = (AvailableOffer(offer_id="m", slots=8),)
    snapshot = pool([], *work, supply=Supply(offers=offers, room=5), scaling=elastic(8, max_instances=5))
    assert len(schedule(snapshot).demand.gangs) == 11


@pytest.mark.parametrize("room", [0, 1, 2, 5])
@pytest.mark.parametrize(("cap", "listed"), [(3, 0), (4, 1), (7, 1), (8, 2), (99, 3)])
def test_demand_is_what_the_cap_lets_start_promised_or_not(room: int, cap: int, listed: int) -> None:
    work = [waiting(f"t{n}", "mine", 4) for n in range(3)]
    supply = Supply(offers=(AvailableOffer(offer_id="m", slots=2),), room=room)
    snapshot = pool([], *work, jobs=[a_job("mine", max_slots=cap)], supply=supply, scaling=elastic(2, max_instances=9))
    assert len(schedule(snapshot).demand.gangs) == listed


# ------------------------------------------------------------------------------------------------------------ cost


def crowded(agents: int, queued: int, meter: Meter) -> PoolSnapshot:
    """Every slot is used, and much more work waits."""
    machines = [an_agent(f"a{n:05}") for n in range(agents)]
    jobs = [a_job(f"j{n:03}", priority=40 + n % 5, second=n) for n in range(100)]
    running = [on(waiting(f"r{n:05}", f"j{n % 50:03}", 8), {f"a{n:05}": tuple(range(8))}) for n in range(agents)]
    work = [waiting(f"w{n:05}", f"j{50 + n % 50:03}", (1, 2, 4, 8)[n % 4], second=n) for n in range(queued)]
    return PoolSnapshot.build(a_policy(), machines, jobs, [*running, *work], now=NOW, meter=meter)


def touched(agents: int, queued: int) -> dict[str, int]:
    """Entries touched by each kind of event, and by the decision after an event that lets nothing start."""
    meter, found = Meter(), dict[str, int]()
    snapshot = crowded(agents, queued, meter)
    running = snapshot.allocations[waiting("r00003", "j003").id]
    events: dict[str, Any] = {
        "arrival": waiting("new", "j060", 2),
        "exit": gone(running),
        "preemption": leaving(running),
        "agent": an_agent("a00004", 8, draining=True),
        "job": replace(a_job("j200"), priority=3),
    }
    for name, event in events.items():
        meter.touched = 0
        snapshot.after(event)
        found[name] = meter.touched
    following = snapshot.after(events["arrival"])
    meter.touched = 0
    assert schedule(following).place == ()
    found["decision"] = meter.touched
    return found


def test_an_event_touches_few_entries_and_hardly_more_in_a_pool_ten_times_as_large() -> None:
    small, large = touched(100, 1000), touched(1000, 10_000)
    for name, count in large.items():
        assert 0 < count <= 2 * small[name] + 64, f"{name}: {small[name]} -> {count}"
        assert count <= (1500 if name == "decision" else 500), f"{name}: {count}"


def test_work_that_nothing_is_left_for_is_not_looked_at() -> None:
    """However many shapes wait, and what needs no slots is served all the same."""
    meter = Meter()
    shapes = [waiting(f"w{n:03}", f"j{n:03}", 1 + n % 8) for n in range(200)]
    jobs = [a_job(f"j{n:03}", priority=1 + n % 99) for n in range(200)] + [a_job("aux", priority=99)]
    running = on(waiting("r", "first", 4), {"a": (0, 1, 2, 3)})
    snapshot = PoolSnapshot.build(
        a_policy(), TWO[:1], [*jobs, FIRST], [running, waiting("aux", "aux", 0), *shapes], now=NOW, meter=meter
    )
    meter.touched = 0
    plan = schedule(snapshot)
    assert (list(starts(plan)), [hold.allocation for hold in plan.holds]) == (["aux"], ["w000.1"])
    assert meter.touched < 300


def test_what_cannot_be_preempted_makes_nobody_leave_while_a_reservation_could_move_there() -> None:
    """Else the reservation moves to the emptied agent, the room goes to others, and the next one is made to leave."""
    agents = [an_agent(name, 2) for name in "abc"]
    firm = [on(waiting("f1", "early"), {"a": (0,)}), on(waiting("f2", "early"), {"b": (0,)})]
    soft = [
        on(waiting(f"s{n}", "low"), {agent: (slot,)})
        for n, (agent, slot) in enumerate([("a", 1), ("b", 1), ("c", 0), ("c", 1)])
    ]
    work = [waiting("head", "early", 4), waiting("firm", "late", preemptible=False)]
    snapshot = pool(agents, *firm, *soft, *work)
    assert holds(snapshot)["head"][0] is HoldKind.RUNNING
    assert schedule(snapshot).preempt == ()
    # Without the head it may.
    assert set(evicts(schedule(snapshot.without_allocation(work[0].id))).values()) == {"firm"}
