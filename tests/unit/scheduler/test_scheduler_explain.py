"""Where jobs stand, and why, in words."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from resolute.wire.states import NoticeKind
from resolute_master.domain.agent import Agent, MachineNotice
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, InstanceId, JobId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.blockers import Blockers
from resolute_master.scheduler.explain import Explanation, explain, reasons_of
from resolute_master.scheduler.job_states import JobState, job_standing, job_states
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.snapshot_file import read_snapshot, write_snapshot
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply
from resolute_master.scheduler.what_if import Change
from support.pools import NOW, a_job, a_policy, an_agent, at, elastic, leaving, on, waiting

JOBS = [a_job("high", priority=10), a_job("mine", second=5), a_job("low", priority=90)]
MINE = JobId("mine")


def pool(
    agents: list[Agent],
    *allocations: Allocation,
    jobs: list[Job] | None = None,
    supply: Supply | None = None,
    **policy: Any,
) -> PoolSnapshot:
    return PoolSnapshot.build(a_policy(**policy), agents, jobs or JOBS, allocations, supply, now=NOW)


def why(*args: Any, **kwargs: Any) -> Explanation:
    return explain(pool(*args, **kwargs), MINE)


def closed(id_: str, size: int, *off: int, enabled: bool = True, draining: bool = False) -> Agent:
    """An agent of which these slots are disabled or draining."""
    whole = an_agent(id_, size)
    part = {"enabled": enabled, "draining": draining}
    return replace(whole, slots=tuple(replace(s, **part) if s.index in off else s for s in whole.slots))


# ----------------------------------------------------------------------------------------------------- job states


def test_states_positions_and_slots_of_a_queue() -> None:
    found = job_states(
        pool(
            [an_agent("a", 4)],
            on(waiting("r", "low", 2), {"a": (0, 1)}, second=1),
            waiting("w1", "high", 4),
            waiting("w2", "mine", 1),
            on(waiting("r2", "mine", 1), {"a": (2,)}, second=1),
        )
    )
    assert [(s.job, s.jobs_ahead, s.requested_slots, s.allocated_slots) for s in found.values()] == [
        ("high", 0, 4, 0),
        ("mine", 1, 2, 1),
        ("low", 2, 2, 2),
    ]
    assert [s.state for s in found.values()] == [
        JobState.QUEUED,
        JobState.SCHEDULED_BACKFILLED,
        JobState.SCHEDULED_BACKFILLED,
    ]


def test_running_beside_what_can_never_start_or_may_not_is_no_backfill() -> None:
    running = on(waiting("r", "low", 2), {"a": (0, 1)}, second=1)
    too_large = pool([an_agent("a", 4)], running, waiting("w", "high", 64))
    assert job_states(too_large)[JobId("low")].state is JobState.SCHEDULED
    jobs = [replace(JOBS[0], max_slots=1), *JOBS[1:]]
    capped = pool([an_agent("a", 4)], running, waiting("w", "high", 2), jobs=jobs)
    assert job_states(capped)[JobId("low")].state is JobState.SCHEDULED


def test_who_ran_before_the_more_important_came_has_overtaken_nobody() -> None:
    before = on(waiting("r1", "low", 1), {"a": (0,)}, second=1)
    later = on(waiting("r2", "mine", 1, second=2), {"a": (1,)}, second=3)
    # The first in line came last, and another in line was there before.
    found = job_states(pool([an_agent("a", 4)], before, later, waiting("w", "high", 4, second=2)))
    assert found[JobId("low")].state is JobState.SCHEDULED
    assert found[JobId("mine")].state is JobState.SCHEDULED_BACKFILLED
    assert job_standing(pool([an_agent("a", 4)], before, waiting("w", "high", 4, second=2)), JobId("low")) is not None
    both = pool([an_agent("a", 4)], before, waiting("w", "high", 4, second=2), waiting("x", "mine", 4, second=0))
    assert job_states(both)[JobId("low")].state is JobState.SCHEDULED_BACKFILLED


def test_what_waits_is_listed_by_importance_whatever_its_shape() -> None:
    found = pool(
        [], waiting("l1", "low", 1), waiting("m2", "mine", 2), waiting("l4", "low", 4), waiting("h8", "high", 8)
    )
    assert [a.id for a in found.pending()] == ["h8.1", "m2.1", "l1.1", "l4.1"]


def test_a_job_without_allocations_is_in_no_queue() -> None:
    assert job_states(pool([])) == {}
    assert why([]).state is JobState.IDLE


# ---------------------------------------------------------------------------------------------------- explanations


def test_many_are_told_what_each_is_told_alone_and_what_runs_nothing() -> None:
    jobs = [*JOBS, a_job("capped", max_slots=1, second=6), a_job("huge", second=7), a_job("young", second=8)]
    busy = pool(
        [an_agent("a", 4), an_agent("b", 4)],
        on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)}),
        on(waiting("r2", "low", 2), {"b": (0, 1)}),
        waiting("h", "high", 4),
        waiting("m", "mine", 1),
        waiting("c", "capped", 2),
        waiting("g", "huge", 64),
        waiting("y", "young", 3),
        jobs=jobs,
        preemption=True,
        min_runtime_s=7200.0,
    )
    told = reasons_of(busy, [job.id for job in jobs])
    # More time alone is asked about once: a second time would be a third pass.
    assert told == {job.id: explain(busy, job.id).reason for job in jobs if job.id != "low"}
    assert told[JobId("capped")].startswith("It waits for its own job: max_slots allows 1")
    assert told[JobId("huge")].startswith("It can never start here")
    assert "other work is preempted only after" in told[JobId("high")]
    assert len(set(told.values())) == 5


def test_machines_on_their_way_for_others_are_named_where_there_is_no_agent_yet() -> None:
    coming = ComingMachine(instance=InstanceId("i-1"), slots=4, gangs=("h.1",))
    supply = Supply(machines=(coming,), reason="the pool has its 1 machine(s)")
    work = [waiting("h", "high", 4), waiting("m", "mine", 4)]
    full = pool([], *work, supply=supply, scaling=elastic(slots=4, max_instances=1))
    assert reasons_of(full, [JobId("high"), MINE]) == {
        "high": "It waits for 4 slot(s) of machines that are starting.",
        MINE: "It waits for 4 slot(s): no agent of the pool accepts work, the 1 starting machine(s) are for earlier "
        "work, and no machine is available (the pool has its 1 machine(s)).",
    }


def test_what_runs_and_what_is_leaving() -> None:
    running = on(waiting("r", "mine", 2), {"a": (0, 1)})
    assert why([an_agent("a")], running) == Explanation(state=JobState.SCHEDULED, reason="r.1 runs on a (slots 0, 1).")
    assert why([an_agent("a")], leaving(running, reason="for k")).reason == "r.1 was preempted: for k."


def test_what_starts_now() -> None:
    assert why([an_agent("a")], waiting("w", "mine")).reason == "w.1 starts now on a."


def test_a_reservation_names_the_agents_and_the_queue() -> None:
    found = why([an_agent("a", 4)], on(waiting("r", "high", 2), {"a": (0, 1)}), waiting("w", "mine", 4))
    assert found.state is JobState.QUEUED
    assert found.reason == (
        "It waits for 4 slot(s): a is kept for it until enough of the work there has ended, and this pool does not preempt."
    )
    assert "1 job(s) of the pool are before it." in found.details
    assert "2 of 4 slots are free, at most 2 of them on one agent." in found.details


def test_a_reservation_tells_that_a_bought_machine_may_be_given_back_while_it_idles() -> None:
    """It is a word on who may use the machine, none on how long the machine is paid for."""
    work = [on(waiting("r", "high", 4), {"b": (0, 1, 2, 3)}), waiting("w", "mine", 8)]
    agents = [an_agent("a", 4, instance="i-a"), an_agent("b", 4, instance="i-b")]
    full = replace(elastic(slots=4, max_instances=2), idle_timeout_s=10.0)
    found = why(agents, *work, scaling=full)
    assert found.reason.startswith("It waits for 8 slot(s): a, b are kept for it until enough of the work there")
    assert [each for each in found.details if "released" in each] == [
        "a may be released before: a reservation keeps no machine without work for longer than max_idle_agent_period (10 s). "
        "The pool then requests others when it can have all that the work needs."
    ]
    leaves = [leaving(work[0]), work[1]]
    assert not [each for each in why(agents, *leaves, scaling=full).details if "released" in each]
    assert not [each for each in why([an_agent("a", 4), agents[1]], *work, scaling=full).details if "released" in each]


def test_room_that_is_kept_for_another_is_named() -> None:
    work = [waiting("big", "high", 4), waiting("w", "mine", 2)]
    found = why([an_agent("a", 4)], on(waiting("r", "high", 2), {"a": (0, 1)}), *work)
    assert found.reason == (
        "It waits for 2 slot(s): the free slots that would hold it are kept for others "
        "(a is kept for big.1 until enough of the work there has ended)."
    )
    assert "a is kept for big.1 until enough of the work there has ended." in found.details


def test_those_who_must_leave_are_named() -> None:
    old = on(waiting("r", "low", 4), {"a": (0, 1, 2, 3)})
    preempts = why([an_agent("a", 4)], old, waiting("w", "mine", 4), preemption=True)
    assert preempts.reason == "It waits for 4 slot(s) on a: r.1 must end first."
    assert why([an_agent("a", 4)], leaving(old), waiting("w", "mine", 4)).reason == preempts.reason


AND_NOBODY_LEAVES = "and non-preemptible work preempts nothing while earlier work has a reservation."
NOTHING_MAKES_ROOM = "and the work that could be preempted for it does not free enough slots."


def test_a_reservation_of_another_spares_others_what_could_not_be_preempted_again_its_own_does_not() -> None:
    full = on(waiting("r", "high", 4), {"a": (0, 1, 2, 3)})
    fixed = waiting("w", "mine", 4, preemptible=False)
    first = why([an_agent("a", 4)], full, fixed, preemption=True)
    assert first.reason == (
        f"It waits for 4 slot(s): a is kept for it until enough of the work there has ended, {NOTHING_MAKES_ROOM}"
    )
    three = [an_agent("a", 4), an_agent("b", 4), an_agent("small", 1)]
    also_full = on(waiting("r2", "high", 4), {"b": (0, 1, 2, 3)})
    before = why(three, full, also_full, fixed, waiting("late", "low", 4), preemption=True)
    assert before.reason == first.reason
    assert "b is kept for late.1 until enough of the work there has ended." in before.details
    behind = why([an_agent("a", 4)], full, waiting("big", "high", 4), fixed, preemption=True)
    assert behind.reason == f"It waits for 4 slot(s): no slot is free, {AND_NOBODY_LEAVES}"


def test_fair_share_spares_nobody_for_a_reservation() -> None:
    agents = [an_agent("a", 4), an_agent("b", 4)]
    running = [on(waiting(f"r-{id_}", "high", 4, preemptible=False), {id_: (0, 1, 2, 3)}) for id_ in "ab"]
    fixed = waiting("w", "mine", 4, second=9, preemptible=False)
    jobs = [a_job("high"), a_job("early", second=1), a_job("mine", second=5)]
    work = [*running, waiting("gang", "early", 8), fixed]
    found = why(agents, *work, jobs=jobs, scheduler=SchedulerKind.FAIR_SHARE)
    assert "a, b are kept for gang.1 until enough of the work there has ended." in found.details
    assert found.reason == f"It waits for 4 slot(s): no slot is free, {NOTHING_MAKES_ROOM}"


def test_what_runs_on_a_closed_slot_is_not_in_the_way_and_keeps_its_machine() -> None:
    drained, full = on(waiting("d", "low"), {"a": (2,)}), on(waiting("r", "high", 2), {"b": (0, 1)})
    agents = [replace(closed("a", 3, 2, draining=True), instance_id=InstanceId("i-a")), an_agent("b", 2)]
    gang = waiting("w", "mine", 4)
    left = why(agents, leaving(drained), leaving(full), gang)
    assert left.reason == "It waits for 4 slot(s) on a, b: r.1 must end first."
    assert left.start is not None and left.start.after == (full.id,)
    kept = why(agents, drained, full, gang)
    assert kept.blockers == Blockers(running=(full.id,), smallest=True)
    scaling = elastic(slots=2, max_instances=2)
    assert not [each for each in why(agents, drained, full, gang, scaling=scaling).details if "released" in each]
    assert [each for each in why(agents, full, gang, scaling=scaling).details if "a may be released" in each]


@pytest.mark.parametrize("part", [{"enabled": False}, {"draining": True}])
def test_slots_that_take_no_work_are_named_where_they_are_missing(part: dict[str, bool]) -> None:
    for off, said in (((0,), "slot 0 of a takes none"), ((0, 2), "slots 0, 2 of a take none")):
        found = why([closed("a", 4, *off, **part)], waiting("w", "mine", 4))
        assert found.reason == (
            "It waits for 4 slot(s): the agents that accept work could not hold it even if empty, and " + said + "."
        )
        shown = {line for line in found.details if "take" in line}
        assert shown == {said.replace(" none", " no new work.").replace(" of", " of agent").capitalize()}
    both = why([closed("a", 4, 0, **part), an_agent("b", 4, draining=True)], waiting("w", "mine", 8))
    assert both.reason.endswith("even if empty, and b, slot 0 of a take none.")
    never = why([closed("a", 4, 0, **part)], waiting("w", "mine", 5))
    assert never.reason.endswith(
        "It can never start here: it needs 5 slots on whole machines of one size, and the pool's "
        "machines by slots are: 1 of 4."
    )


def test_one_agent_that_would_do_alone_is_named_where_all_together_would_not() -> None:
    """With all its slots, a has four: one more than b, and a gang wants machines of one size."""
    agents = [closed("a", 4, 0, enabled=False), an_agent("b", 3, draining=True)]
    found = why(agents, waiting("w", "mine", 6))
    assert found.reason.endswith("the agents that accept work could not hold it even if empty, and b takes none.")
    assert found.blockers == Blockers(agents=(AgentId("b"),), smallest=True)


def test_blocked_agents_are_the_reason_where_their_free_slots_would_do() -> None:
    full = on(waiting("r", "high", 4), {"b": (0, 1, 2, 3)})
    mine = waiting("w", "mine", 4, second=9, blocked_agents=(AgentId("a"),))
    agents = [an_agent("a", 4), an_agent("b", 4)]
    found = why(agents, full, waiting("big", "high", 4, blocked_agents=(AgentId("a"),)), mine)
    assert found.reason == (
        "It waits for 4 slot(s): agents with enough free slots are blocked for it (a), and this pool does not preempt."
    )
    gang = waiting("w", "mine", 8, blocked_agents=(AgentId("a"),))
    pair = [*agents, an_agent("c", 4)]
    rest = [full, waiting("big", "high", 8, blocked_agents=(AgentId("a"),))]
    assert "agents with enough free slots are blocked for it (a)" in why(pair, *rest, gang).reason


def test_free_slots_of_blocked_agents_are_not_denied_where_they_are_too_few() -> None:
    full = on(waiting("r", "high", 4), {"b": (0, 1, 2, 3)})
    agents = [an_agent("a", 2), an_agent("b", 4)]
    blocked: dict[str, Any] = {"blocked_agents": (AgentId("a"),)}
    found = why(agents, full, waiting("big", "high", 4), waiting("w", "mine", 4, **blocked))
    assert found.reason == (
        "It waits for 4 slot(s): no slot is free on an agent that is not blocked for it, and this pool does not preempt."
    )
    aux = why(
        agents,
        on(waiting("n", "high", 0), {"b": ()}),
        waiting("w", "mine", 0, **blocked),
        max_aux_containers_per_agent=1,
    )
    assert aux.reason == "It waits for an auxiliary place: every agent that is not blocked for it has its 1."


def test_a_cap_is_named_with_its_numbers() -> None:
    jobs = [replace(JOBS[1], max_slots=3)]
    work = [on(waiting("r", "mine", 2), {"a": (0, 1)}), waiting("w", "mine", 2)]
    found = why([an_agent("a")], *work, jobs=jobs)
    assert found.reason == "It waits for its own job: max_slots allows 3, 2 are in use, and it needs 2."
    assert "r.1 runs on a (slots 0, 1)." in found.details


def test_what_is_too_large_for_the_pool_is_told_so() -> None:
    agents = [an_agent("a", 8), an_agent("b", 8), an_agent("c", 4)]
    single = why(agents, waiting("w", "mine", 12, single_node=True))
    assert single.reason == "It can never start here: it needs 12 slots on one machine, and the largest has 8."
    gang = why(agents, waiting("w", "mine", 20))
    assert gang.reason.endswith("the pool's machines by slots are: 2 of 8, 1 of 4.")
    assert not why(agents, waiting("w", "mine", 20), heterogeneous_fits=True).reason.startswith("It can never")
    assert why(agents, waiting("w", "mine", 16)).reason == "w.1 starts now on a, b."


def test_an_elastic_pool_counts_with_what_it_could_launch() -> None:
    fits = why([], waiting("w", "mine", 40), scaling=elastic(8, max_instances=5))
    assert (
        fits.reason
        == "It waits for 40 slot(s): no agent of the pool accepts work, and no machine is available (the pool may not launch more)."
    )
    never = why([an_agent("a", 8, instance="a")], waiting("w", "mine", 48), scaling=elastic(8, max_instances=5))
    assert never.reason.startswith("It can never start here")


NONE_TAKES_WORK = "no agent of the pool accepts work, and "
GO_TO_OTHERS = NONE_TAKES_WORK + "the machines that may be launched go to earlier work."
WOULD_NOT_HOLD = NONE_TAKES_WORK + "those that may be launched now would not hold it"


def without_machines(*allocations: Allocation, offers: dict[str, int], most: int, **policy: Any) -> str:
    """What is said of "mine" in an elastic pool that has no machine, and may ask for so many of these sizes."""
    scaling = elastic(max_instances=most)
    (one,) = scaling.offers
    all_offers = tuple(replace(one, offer_id=id_, slots=slots) for id_, slots in offers.items())
    available = tuple(AvailableOffer(offer_id=id_, slots=slots) for id_, slots in offers.items())
    supply = Supply(offers=available, room=most)
    return why([], *allocations, supply=supply, scaling=replace(scaling, offers=all_offers), **policy).reason


def test_an_agent_that_drains_with_a_closed_slot_is_said_to_need_both() -> None:
    """Switching the agent on would not be enough for four slots, and is for three."""
    shut = replace(closed("a", 4, 3, enabled=False), draining=True)

    def changes(slots: int) -> list[tuple[Change, str]]:
        told = why([shut], waiting("w", "mine", slots))
        assert "Slot 3 of agent a takes no new work." in told.details
        assert told.what_if is not None
        return [(each.change, each.value) for each in told.what_if.found if each.change is not Change.MORE_AGENTS]

    assert (Change.AGENT_SLOTS, "a") in changes(4) and (Change.AGENT, "a") not in changes(4)
    assert (Change.AGENT, "a") in changes(3) and (Change.AGENT_SLOTS, "a") not in changes(3)


def test_a_job_that_is_held_waits_for_nothing_but_that_also_in_a_file() -> None:
    """Its cap is none of the things to change: the scheduler's own way to hold it says nothing of it."""
    held = replace(a_job("mine", max_slots=4), hold="the budget of workspace W2 is used up").as_scheduled
    live = pool([an_agent("a")], waiting("w", "mine", 1), jobs=[held])
    for snapshot in (live, read_snapshot(write_snapshot(live))):
        told = explain(snapshot, MINE)
        assert told.reason == "Its job is held: the budget of workspace W2 is used up."
        assert told.blockers is None and told.what_if is not None and not told.what_if.found
        aux = explain(snapshot.with_allocation(waiting("w", "mine", 0)), MINE)
        assert aux.start is not None, "what needs no slots costs nothing"


def test_a_weight_that_is_told_is_enough_as_it_is_told() -> None:
    """2.3 becomes what a tenth of it, taken so many times, is not: where both would be charged the same, nobody leaves."""
    jobs = [a_job("rich", weight=2.3), a_job("mine", weight=1.0)]
    for slots in range(1, 5):
        running = [on(waiting(f"r{n}", "rich"), {"a": (n,)}) for n in range(4)]
        snapshot = PoolSnapshot.build(
            a_policy(scheduler=SchedulerKind.FAIR_SHARE),
            [an_agent("a", 4)],
            jobs,
            [*running, waiting("w", "mine", slots)],
            now=NOW,
        )
        told = explain(snapshot, MINE)
        assert told.what_if is not None
        for each in told.what_if.found:
            if each.change is Change.WEIGHT:
                after = snapshot.with_job(replace(jobs[1], weight=float(each.value)))
                assert schedule(after).preempt or schedule(after).place


@pytest.mark.parametrize(("killed", "enough"), [(True, "1.1"), (False, "2")])
def test_room_that_somebody_leaves_but_takes_again_is_promised_to_nobody(killed: bool, enough: str) -> None:
    """Three slots, three jobs: a little more weight gets the slot of the one that leaves, unless its next run asks for it."""
    jobs = [a_job("many"), a_job("mine", second=1), a_job("back", second=2)]
    running = [on(waiting(name, name), {"a": (slot,)}) for slot, name in enumerate(["many", "mine", "back"])]
    running[2] = replace(leaving(running[2]), killed_at=NOW if killed else None)
    more = [waiting("m1", "many"), waiting("m2", "many"), waiting("w", "mine", second=1)]
    fair: dict[str, Any] = {"scheduler": SchedulerKind.FAIR_SHARE, "preemption": False}
    told = why([an_agent("a", 3)], *running, *more, jobs=jobs, **fair).what_if
    assert told is not None and told.complete
    assert [each.value for each in told.found if each.change is Change.WEIGHT] == [enough]


def test_in_a_pool_that_is_held_nothing_starts_and_that_also_in_a_file() -> None:
    live = pool([an_agent("a")], waiting("w", "mine", 1)).with_hold("the budget of pool default is used up")
    for snapshot in (live, read_snapshot(write_snapshot(live))):
        assert schedule(snapshot) == Plan()
        told = explain(snapshot, MINE)
        assert told.reason == "Nothing starts in the pool: the budget of pool default is used up."
        assert told.start is None and told.blockers is None and told.what_if is not None and not told.what_if.found
        assert schedule(snapshot.with_hold("")).place


def test_an_explanation_takes_no_memory_for_each_slot_that_is_asked_for() -> None:
    tracemalloc.start()
    try:
        never = why([an_agent("a", slots=4), an_agent("b", slots=4)], waiting("w", "mine", 10_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert never.reason.startswith("It can never start here")
    assert never.what_if is not None
    assert [(each.value, each.now) for each in never.what_if.found if each.change is Change.SLOTS] == [
        ("8", "10000000")
    ]
    assert peak < 2**22


def test_what_was_started_by_hand_counts_beside_what_may_be_launched() -> None:
    scaling, by_hand = elastic(slots=4, max_instances=1), [an_agent("a", slots=4), an_agent("b", slots=4)]
    supply = Supply(offers=(AvailableOffer(offer_id="o", slots=4),), room=1)
    fits, larger = (waiting(str(n), "mine", n) for n in (12, 16))
    assert not why(by_hand, fits, supply=supply, scaling=scaling).reason.startswith("It can never start here")
    assert why(by_hand, larger, supply=supply, scaling=scaling).reason.endswith("are at most: 3 of 4.")
    launched = [an_agent("a", slots=4, instance="a"), an_agent("b", slots=4)]
    full = Supply(reason="the pool has its 1 machine(s)")
    assert why(launched, fits, supply=full, scaling=scaling).reason.endswith("are at most: 2 of 4.")


def test_a_size_that_never_fits_is_told_so_before_there_is_a_machine() -> None:
    fives = without_machines(waiting("w", "mine", 5), offers={"o": 4}, most=2)
    assert fives == (
        "It can never start here: it needs 5 slots on whole machines of one size, and the pool's machines by slots are at "
        "most: 2 of 4."
    )
    assert without_machines(waiting("w", "mine", 12), offers={"o": 4}, most=2).startswith("It can never start here")
    alone = waiting("w", "mine", 12, single_node=True)
    assert without_machines(alone, offers={"o": 4, "p": 8}, most=2).endswith("on one machine, and the largest has 8.")
    mixed = without_machines(waiting("w", "mine", 9), offers={"o": 4, "p": 6}, most=2, heterogeneous_fits=True)
    assert mixed.endswith(
        "needs 9 slots exactly on whole machines, and the pool's machines by slots are at most: 2 of 6, 2 of 4."
    )
    assert without_machines(waiting("w", "mine", 8), offers={"o": 4, "p": 6}, most=2) == (
        "It waits for 8 slot(s) of machines that the pool may launch."
    )


@pytest.mark.parametrize("slots", [4, 8])
def test_machines_that_go_to_others_are_not_denied(slots: int) -> None:
    reason = without_machines(waiting("h", "high", 8), waiting("w", "mine", slots), offers={"o": 4}, most=2)
    assert reason == f"It waits for {slots} slot(s): {GO_TO_OTHERS}"


def test_machines_that_are_too_few_or_too_small_for_now_go_to_nobody() -> None:
    shut = an_agent("a", 4, draining=True, instance="i-a")
    supply = Supply(offers=(AvailableOffer(offer_id="m", slots=4),), room=1)
    gang = waiting("w", "mine", 8)
    few = why([shut], gang, supply=supply, scaling=elastic(4, max_instances=2))
    assert few.reason == f"It waits for 8 slot(s): {WOULD_NOT_HOLD}."
    assert "The pool may launch 1 more machine(s)." in few.details
    refused = replace(supply, room=2, offers=(AvailableOffer(offer_id="m", slots=4, one_only=True),), reason="m: no 2")
    assert why([], gang, supply=refused, scaling=elastic(4, max_instances=2)).reason.endswith(
        WOULD_NOT_HOLD + " (m: no 2)."
    )
    coming = replace(supply, machines=(ComingMachine(instance=InstanceId("i-1"), slots=4, gangs=("h.1",)),))
    behind = why([], waiting("h", "high", 4), gang, supply=coming, scaling=elastic(4, max_instances=2))
    assert behind.reason == (
        "It waits for 8 slot(s): no agent of the pool accepts work, the 1 starting machine(s) are for earlier "
        "work, and those that may be launched now would not hold it."
    )
    # Machines of one gang are bought in one size, so that a mix is never asked for, though the pool could come to have it.
    mix = without_machines(waiting("w", "mine", 12), offers={"o": 4, "p": 8}, most=2, heterogeneous_fits=True)
    assert mix == f"It waits for 12 slot(s): {WOULD_NOT_HOLD}."


def test_an_empty_pool_says_why_it_launches_none() -> None:
    assert why([], waiting("w", "mine")).reason.endswith(
        "no agent of the pool accepts work, and the pool launches no machines."
    )
    supply = Supply(reason="m: no capacity until 12:00")
    found = why([], waiting("w", "mine"), supply=supply, scaling=elastic())
    assert "no machine is available (m: no capacity until 12:00)" in found.reason
    assert "The pool can get no more machines now: m: no capacity until 12:00." in found.details


def test_machines_on_their_way_and_those_that_can_be_had() -> None:
    machine = ComingMachine(instance=InstanceId("i1"), slots=8, expected_at=at(30), gangs=("w.1",))
    found = why([], waiting("w", "mine", 8), supply=Supply(machines=(machine,)), scaling=elastic())
    assert found.reason == "It waits for 8 slot(s) of machines that are starting."
    assert "Machine i1 with 8 slot(s) is starting, expected at 00:00:30 UTC, launched for it." in found.details
    offered = Supply(offers=(AvailableOffer(offer_id="m", slots=8),), room=2)
    had = why([], waiting("w", "mine", 8), supply=offered, scaling=elastic())
    assert had.reason == "It waits for 8 slot(s) of machines that the pool may launch."
    assert "The pool may launch 2 more machine(s)." in had.details


def test_agents_that_take_no_work_are_listed_with_the_reason() -> None:
    notice = MachineNotice(kind=NoticeKind.INTERRUPTION, deadline=None, reason="", received_at=NOW)
    agents = [
        an_agent("a", draining=True),
        an_agent("b", enabled=False),
        an_agent("c", disconnected_at=NOW),
        an_agent("d", notice=notice),
        an_agent("e", 1),
    ]
    found = why(agents, waiting("w", "mine", blocked_agents=(AgentId("e"),)))
    assert found.reason == "It waits for 1 slot(s): every agent that accepts work is blocked for it (e)."
    for line in ("a accepts no new work: it is draining", "b accepts no new work: it is disabled"):
        assert f"Agent {line}." in found.details
    assert "Agent c accepts no new work: it is out of contact." in found.details
    assert "Agent d accepts no new work: it has a notice (interruption)." in found.details
    assert "Agents that are blocked for it: e." in found.details


def test_auxiliary_places_run_out() -> None:
    found = why([an_agent("a")], waiting("w", "mine", 0), max_aux_containers_per_agent=0)
    assert found.reason == "It waits for an auxiliary place: every agent has its 0."


def test_the_rest_of_a_jobs_queue_is_summed_up() -> None:
    work = [waiting(f"w{n}", "mine", 8, second=n) for n in range(3)]
    found = why([an_agent("a", 8)], on(waiting("r", "high", 8), {"a": tuple(range(8))}), *work)
    assert "3 allocations of the job wait; this is about the first, w0.1." in found.details
