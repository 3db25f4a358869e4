"""What is in a job's way, and what would start it: pools small enough to know the answer beforehand."""

from __future__ import annotations

from typing import Any

import pytest

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, JobId, PoolName, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.domain.usage import Usage
from resolute_master.scheduler.blockers import Blockers
from resolute_master.scheduler.explain import Explanation, explain
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.pools import NOW, a_job, a_policy, an_agent, leaving, on, waiting

MINE = JobId("mine")
JOBS = [a_job("high", priority=10), a_job("early", second=1), a_job("mine", second=5), a_job("low", priority=90)]
ALL = (0, 1, 2, 3)


def told(
    agents: list[Agent],
    *allocations: Allocation,
    jobs: list[Job] | None = None,
    others: dict[PoolName, PoolSnapshot] | None = None,
    passes: int = 60,
    **policy: Any,
) -> Explanation:
    snapshot = PoolSnapshot.build(a_policy(**policy), agents, jobs or JOBS, allocations, now=NOW)
    return explain(snapshot, MINE, others, passes=passes)


def blockers(*args: Any, **kwargs: Any) -> Blockers:
    found = told(*args, **kwargs)
    assert found.blockers is not None and found.gave_up == ()
    return found.blockers


def changes(found: Explanation) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Change -> (value, who must have left)."""
    assert found.what_if is not None and found.what_if.complete
    return {each.change.value: (each.value, each.start.after) for each in found.what_if.found}


# ------------------------------------------------------------------------------------------------------ in its way


def test_the_fewest_that_run_where_it_would_fit_are_in_its_way() -> None:
    many = [on(waiting(f"s{n}", "high", 1), {"a": (n,)}) for n in range(4)]
    pair = [on(waiting("p0", "high", 3), {"b": (0, 1, 2)}), on(waiting("p1", "high", 1), {"b": (3,)})]
    found = blockers([an_agent("a", 4), an_agent("b", 4)], *many, *pair, waiting("w", "mine", 4))
    assert found == Blockers(running=(AllocationId("p0.1"), AllocationId("p1.1")), smallest=True)
    assert blockers([an_agent("a", 4), an_agent("b", 4)], *many, *pair, waiting("w", "mine", 3)).running == ("p0.1",)


def test_what_is_leaving_already_is_in_its_way_too() -> None:
    found = told([an_agent("a", 4)], leaving(on(waiting("r", "low", 4), {"a": ALL})), waiting("w", "mine", 4))
    assert found.start is not None and found.start.after == ("r.1",)
    assert found.blockers == Blockers(running=(AllocationId("r.1"),), smallest=True)


def test_a_reservation_of_another_is_in_its_way_where_its_room_would_do() -> None:
    work = [on(waiting("r", "high", 2), {"a": (0, 1)}), waiting("big", "high", 4), waiting("w", "mine", 2)]
    assert blockers([an_agent("a", 4)], *work) == Blockers(ahead=(AllocationId("big.1"),), smallest=True)


def test_who_would_take_the_room_first_is_in_its_way_beside_who_has_it() -> None:
    running = on(waiting("r", "high", 4), {"a": ALL})
    found = blockers([an_agent("a", 4)], running, waiting("first", "early", 4), waiting("w", "mine", 4))
    assert (found.running, found.ahead, found.smallest) == (("r.1",), ("first.1",), True)


def test_a_long_queue_before_it_counts_as_one() -> None:
    queue = [waiting(f"q{n:02}", "early", 4, second=n) for n in range(40)]
    running = on(waiting("r", "high", 4), {"a": ALL})
    found = blockers([an_agent("a", 4)], running, *queue, waiting("w", "mine", 4))
    assert found.ahead_together and len(found.ahead) == 40 and found.running == ("r.1",) and found.smallest


def test_a_cap_is_in_its_way_alone_or_with_what_runs() -> None:
    capped = [replace(job, max_slots=2) if job.id == MINE else job for job in JOBS]
    own = on(waiting("own", "mine", 2), {"a": (0, 1)})
    assert blockers([an_agent("a", 4)], own, waiting("w", "mine", 2), jobs=capped) == Blockers(cap=True, smallest=True)
    full = blockers(
        [an_agent("a", 4)], own, on(waiting("r", "high", 2), {"a": (2, 3)}), waiting("w", "mine", 2), jobs=capped
    )
    assert full == Blockers(running=(AllocationId("own.1"),), smallest=True), "its own end frees both"


@pytest.mark.parametrize(("shut", "why"), [({"draining": True}, "draining"), ({"enabled": False}, "disabled")])
def test_agents_that_take_no_work_are_in_its_way_when_nothing_else_helps(shut: dict[str, Any], why: str) -> None:
    agents = [an_agent("a", 4, **shut), an_agent("b", 3)]
    found = told(agents, waiting("w", "mine", 4))
    assert found.blockers == Blockers(agents=(AgentId("a"),), smallest=True)
    assert changes(found) == {"agent": ("a", ()), "slots": ("3", ())}
    assert f"Agent a accepts no new work: it is {why}." in found.details
    assert found.reason == (
        "It waits for 4 slot(s): the agents that accept work could not hold it even if empty, and a takes none."
    )


def test_agents_that_are_blocked_for_it_are_in_its_way() -> None:
    found = told([an_agent("a", 4)], waiting("w", "mine", 4, blocked_agents=(AgentId("a"),)))
    assert found.blockers == Blockers(blocked=True, smallest=True)
    assert changes(found) == {"blocked_agents": ("", ()), "more_agents": ("4", ())}


def test_nothing_is_in_the_way_of_what_is_too_large() -> None:
    found = told([an_agent("a", 4)], on(waiting("r", "high", 4), {"a": ALL}), waiting("w", "mine", 64))
    assert found.reason.startswith("It can never start here") and found.blockers is None and not found.gave_up


# -------------------------------------------------------------------------------------------------- what would start it


def test_the_least_change_of_priority_is_named_and_who_would_leave() -> None:
    running = on(waiting("r", "mid", 4), {"a": ALL})
    for submitted in (10.0, 0.0):
        jobs = [*JOBS, a_job("mid", priority=20, second=submitted)]
        found = told([an_agent("a", 4)], running, waiting("w", "mine", 4), jobs=jobs, preemption=True)
        assert changes(found)["priority"] == ("19", ("r.1",)), "nobody leaves for an equal one that came before it"


def test_a_place_in_the_queue_is_named() -> None:
    work = [waiting("big", "early", 4), waiting("w", "mine", 2), on(waiting("r", "high", 2), {"a": (0, 1)})]
    found = told([an_agent("a", 4)], *work)
    assert changes(found) == {"priority": ("41", ()), "ahead_of": ("early", ()), "more_agents": ("4", ())}


def test_the_least_weight_is_named() -> None:
    rich = [on(waiting(f"r{n}", "rich", 1, second=n), {"a": (n,)}) for n in range(4)]
    jobs = [a_job("rich", weight=3.0), a_job("mine", weight=1.0), a_job("poor")]
    work = [*rich, waiting("w", "mine", 2)]
    found = told([an_agent("a", 4)], *work, jobs=jobs, scheduler=SchedulerKind.FAIR_SHARE)
    value, after = changes(found)["weight"]
    assert float(value) > 1.0 and len(after) == 2
    assert (
        "Its job holds 0 slot(s) at weight 1; free slots go to the job that holds the least for its weight."
        in found.details
    )


def test_other_pools_fewer_slots_and_more_machines_are_named() -> None:
    other = PoolSnapshot.build(a_policy(name=PoolName("spare")), [an_agent("s", 8, pool=PoolName("spare"))], now=NOW)
    busy = PoolSnapshot.build(a_policy(name=PoolName("tiny")), [an_agent("t", 1, pool=PoolName("tiny"))], now=NOW)
    work = [on(waiting("r", "high", 3), {"a": (0, 1, 2)}), waiting("w", "mine", 4, single_node=True)]
    others = {PoolName("spare"): other, PoolName("tiny"): busy}
    found = told([an_agent("a", 4)], *work, others=others)
    assert changes(found) == {"pool": ("spare", ()), "slots": ("1", ()), "more_agents": ("4", ())}


def test_a_move_to_another_pool_is_tried_without_the_place_that_was_given_by_hand() -> None:
    """Where it is, it was moved to the front: with that place it would make leave what came to the other pool before it."""
    spare = PoolName("spare")
    there = [an_agent("s", 4, pool=spare)]
    first = on(replace(waiting("r2", "there", 4), pool=spare), {"s": ALL})
    job = replace(a_job("mine", second=5), queue_position=0.5)
    for priority, found_there in ((42, {}), (43, {"pool": ("spare", ("r2.1",))})):
        competitor = a_job("there", priority=priority, second=1, pool=spare)
        other = PoolSnapshot.build(a_policy(name=spare, preemption=True), there, [competitor], [first], now=NOW)
        work = [on(waiting("r", "high", 4), {"a": ALL}), waiting("w", "mine", 4)]
        found = told([an_agent("a", 4)], *work, jobs=[JOBS[0], job], others={spare: other})
        assert changes(found) == {**found_there, "more_agents": ("4", ())}


def test_leave_to_run_on_several_machines_is_named() -> None:
    found = told([an_agent("a", 4), an_agent("b", 4)], waiting("w", "mine", 8, single_node=True))
    assert changes(found) == {"single_node": ("false", ()), "slots": ("4", ())}


def test_a_cap_that_would_do_is_named() -> None:
    capped = [replace(job, max_slots=3) if job.id == MINE else job for job in JOBS]
    work = [on(waiting("own", "mine", 2), {"a": (0, 1)}), waiting("w", "mine", 2)]
    assert changes(told([an_agent("a", 4)], *work, jobs=capped)) == {"max_slots": ("4", ()), "slots": ("1", ())}


def test_what_changes_nothing_is_not_named() -> None:
    """Who waits for others that leave already would only wait for others."""
    gone = leaving(on(waiting("r", "low", 4), {"a": ALL}))
    found = told([an_agent("a", 4)], gone, waiting("w", "mine", 4), preemption=True)
    assert changes(found) == {"more_agents": ("4", ())}


# ---------------------------------------------------------------------------------------------------------- the rest


def test_who_is_ahead_is_counted_and_the_first_named() -> None:
    jobs = [a_job(f"j{n:02}", second=n) for n in range(12)] + [a_job("mine", second=99)]
    found = told([], *[waiting(f"w{n}", f"j{n:02}") for n in range(12)], waiting("w", "mine"), jobs=jobs)
    assert found.jobs_ahead == 12
    assert found.first_ahead == tuple(f"j{n:02}" for n in range(8))


def test_shares_of_workspace_and_user_are_told() -> None:
    jobs = [
        a_job("mine", owner=UserId(3), workspace_id=2),
        a_job("mate", owner=UserId(4), workspace_id=2),
        a_job("far"),
    ]
    work = [
        on(waiting("r1", "mate", 2), {"a": (0, 1)}),
        on(waiting("r2", "far", 1), {"a": (2,)}),
        on(waiting("r3", "mine", 1), {"a": (3,)}),
        waiting("w", "mine", 1),
    ]
    policy: dict[str, Any] = {"scheduler": SchedulerKind.FAIR_SHARE, "hierarchical_shares": True}
    details = told([an_agent("a", 4)], *work, jobs=jobs, **policy).details
    assert "Its workspace 2 holds 3 of the pool's 4 slot(s) in use." in details
    assert "Its user 3 holds 1 of that workspace's 3 slot(s) in use." in details


def test_what_a_user_is_charged_for_the_past_is_told() -> None:
    job = a_job("mine", owner=UserId(3), workspace_id=2)
    policy = a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, usage_half_life_s=3600.0)
    past = replace(Usage.none_yet(policy.name, 2, UserId(3), now=NOW), charged=2.5)
    full = on(waiting("r", "mine", 4), {"a": ALL})
    work = [full, waiting("w", "mine", 1, second=1)]
    snapshot = PoolSnapshot.build(policy, [an_agent("a", 4)], [job], work, now=NOW, usage=[past])
    assert (
        "Its user 3 holds 4 of that workspace's 4 slot(s) in use, and is charged 2.5 for the past."
        in explain(snapshot, MINE).details
    )


def test_the_end_of_a_wait_is_named() -> None:
    work = [on(waiting("r", "low", 4), {"a": ALL}), waiting("w", "mine", 4)]
    grace = told([an_agent("a", 4)], *work, preemption=True, preemption_grace_s=7200.0)
    assert "other work is preempted only after its preemption_grace, at 02:00:00 UTC" in grace.reason
    young = told([an_agent("a", 4)], *work, preemption=True, min_runtime_s=7200.0)
    assert "other work is preempted only after they have run for the min_runtime of 7200 s" in young.reason


def test_an_answer_without_enough_passes_says_what_it_did_not_find_out() -> None:
    work = [on(waiting("r", "high", 4), {"a": ALL}), waiting("first", "early", 4), waiting("w", "mine", 4)]
    found = told([an_agent("a", 4)], *work, passes=6)
    assert found.passes <= 6 and len(found.gave_up) == 2 and found.blockers is None
    assert found.reason == told([an_agent("a", 4)], *work).reason
