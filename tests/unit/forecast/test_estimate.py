"""When what waits will start: pools whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from resolute.wire.states import TaskType
from resolute_master.domain.account import Limits
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, InstanceId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.forecast.accounts import Accounts
from resolute_master.forecast.decide import LazyProduction, Production
from resolute_master.forecast.estimate import HEAD, estimates, stoppage
from resolute_master.forecast.join_times import LEAST as LEAST_JOINED
from resolute_master.forecast.join_times import JoinTimes
from resolute_master.forecast.pool import Decision, VirtualPool, virtual_agent
from resolute_master.forecast.pool_simulation import SimulationStuck
from resolute_master.forecast.run_times import LEAST, MOST, RunTimes
from resolute_master.scheduler.plan import Preemption
from resolute_provisioner.model import Market, Offer, OfferBelief, PoolLaunch, PoolScaling

NOW = datetime(2026, 1, 2, tzinfo=UTC)
POOL = PoolName("p")
FIXED = PoolPolicy(name=POOL)
OFFER = Offer(offer_id="o", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
ELASTIC = PoolPolicy(name=POOL, scaling=PoolScaling(pool="p", offers=(OFFER,), max_instances=5))


def _submit(pool: VirtualPool, name: str, *, slots: int = 1) -> AllocationId:
    job = Job(
        id=JobId(name),
        kind="EXPERIMENT",
        name=name,
        owner=UserId(1),
        workspace_id=1,
        project_id=1,
        pool=POOL,
        priority=42,
        weight=1.0,
        max_slots=None,
        submitted_at=pool.now,
        queue_position=pool.now.timestamp(),
    )
    allocation = Allocation(
        id=AllocationId(f"{name}.1"),
        task_id=TaskId(name),
        task_type=TaskType.TRIAL,
        job_id=job.id,
        pool=POOL,
        slots_needed=slots,
        requested_at=pool.now,
    )
    pool.submitted(job, allocation)
    return allocation.id


def _busy(agents: int = 1, policy: PoolPolicy = FIXED) -> VirtualPool:
    """Every agent has one slot, which has been in use for an hour."""
    pool = VirtualPool.empty(policy, NOW - timedelta(hours=1))
    for number in range(agents):
        agent = virtual_agent(FIXED, InstanceId(f"a{number}"), 1, NOW)
        pool.snapshot = pool.snapshot.with_agent(agent)
        _submit(pool, f"running{number}")
    Production().decide(pool)
    pool.now = NOW
    return pool


def _past(*seconds: float) -> RunTimes:
    found = RunTimes()
    for each in seconds:
        found.add(1, 1, each)
    return found


def test_the_range_is_that_of_the_run_times_that_lasted_longer() -> None:
    pool = _busy()
    waits = _submit(pool, "next")
    past = _past(*[60.0] * 50, *[3600.0 + 10.0 * rank for rank in range(1, 101)])
    found = estimates(pool, past, seed=1)[waits]
    assert found.expected_at is not None and found.earliest is not None and found.latest is not None
    assert NOW < found.earliest < found.expected_at < found.latest <= NOW + timedelta(seconds=1000)
    assert timedelta(seconds=250) < found.expected_at - NOW < timedelta(seconds=750)
    assert "run times of 150 ended run(s) of this user with as many slots" in found.basis


def test_who_waits_behind_starts_after_who_waits_before() -> None:
    pool = _busy()
    first, second = _submit(pool, "first"), _submit(pool, "second")
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1)
    assert found[first].expected_at == NOW + timedelta(hours=1)
    assert found[second].expected_at == NOW + timedelta(hours=3)


def test_nothing_is_said_before_enough_has_ended() -> None:
    pool = _busy()
    waits = _submit(pool, "next")
    found = estimates(pool, _past(*[60.0] * (LEAST - 1)), seed=1)[waits]
    assert found.expected_at is None and found.earliest is None and found.latest is None
    assert found.basis == f"an estimate needs {LEAST} runs of the pool that have ended, and there are {LEAST - 1}"


@dataclass(slots=True)
class Restless(LazyProduction):
    """Decides for simulations, and in every n-th preempts the first running allocation again and again."""

    every: int = 1
    simulations: int = 0
    restless: bool = False

    def copy(self) -> Restless:
        self.simulations += 1
        return replace(self, restless=self.simulations % self.every == 0)

    def decide(self, pool: VirtualPool) -> Decision:
        decision = super(Restless, self).decide(pool)
        if not self.restless:
            return decision
        victim = Preemption(
            allocation=AllocationId("running0.1"), for_allocation=AllocationId("next.1"), reason="again"
        )
        return replace(decision, preempt=(victim,))


@pytest.mark.parametrize(("every", "left"), [(19, 18), (2, 10)])
def test_a_course_that_never_comes_to_rest_is_left_out_and_the_answer_says_so(every: int, left: int) -> None:
    pool = _busy()
    waits = _submit(pool, "next")
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1, decider=Restless(every=every))[waits]
    assert found.expected_at == NOW + timedelta(hours=1)
    assert found.basis.startswith(f"{left} of 19 simulations (the others did not settle) of the present queue, with ")


def test_nothing_is_said_when_too_few_courses_come_to_rest() -> None:
    pool = _busy()
    _submit(pool, "next")
    with pytest.raises(SimulationStuck, match="19 of 19 simulations: the decisions do not settle at 0 s"):
        estimates(pool, _past(*[7200.0] * LEAST), seed=1, decider=Restless(every=1))


def test_a_machine_that_is_coming_needs_no_past() -> None:
    pool = VirtualPool.empty(ELASTIC, NOW)
    waits = _submit(pool, "next")
    decision = Production().decide(pool)
    (machine,) = pool.apply_launches(decision.launches)
    pool.launched(machine)
    found = estimates(pool, RunTimes(), seed=1)[waits]
    assert found.expected_at is not None and found.earliest is not None and found.latest is not None
    assert timedelta(seconds=100) < found.expected_at - NOW < timedelta(seconds=140)
    assert timedelta(seconds=20) < found.latest - found.earliest < timedelta(seconds=120)
    assert "machines that are there or coming" in found.basis
    assert estimates(pool, RunTimes(), seed=1)[waits] == found


def test_a_start_that_the_budget_of_today_does_not_pay_is_foreseen_for_tomorrow() -> None:
    noon = NOW + timedelta(hours=12)
    expected = []
    for per_day in (None, 0.05):  # 300 s of the machine cost 0.083
        pool = VirtualPool.empty(replace(ELASTIC, budget=Limits(per_day=per_day, per_month=100.0)), noon)
        if per_day is not None:
            (account,) = pool.accounts.known.values() if pool.accounts else ()
            pool.accounts = Accounts(
                pool=POOL, known={account.id: replace(account, limits=Limits(per_day=0.1), in_day=0.05)}
            )
        found = estimates(pool, _past(*[60.0] * LEAST), seed=1, of=[_submit(pool, "next")])
        (start,) = (each.earliest for each in found.values())
        expected.append(None if start is None else start - NOW)
    today, tomorrow = expected
    assert today is not None and today < timedelta(hours=13)
    assert tomorrow is not None and timedelta(hours=24) <= tomorrow < timedelta(hours=25)


def test_the_pool_that_is_asked_about_is_not_changed() -> None:
    pool = _busy(2)
    _submit(pool, "next")
    before, machines = pool.snapshot, dict(pool.machines)
    estimates(pool, _past(*[7200.0] * LEAST), seed=1)
    assert pool.snapshot is before and pool.machines == machines and pool.now == NOW


def test_the_work_is_bounded() -> None:
    pool = _busy()
    waits = [_submit(pool, f"w{number:03d}") for number in range(60)]
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1, simulations=3, decisions=20)
    assert set(found) == set(waits)
    # What is beyond the bound is reckoned by the work before it: on one slot, that of each of the others.
    assert found[waits[0]].expected_at == NOW + timedelta(hours=1)
    last = found[waits[-1]].expected_at
    assert last is not None and timedelta(hours=58 * 2) <= last - NOW <= timedelta(hours=1 + 60 * 2)


def test_of_a_long_queue_the_head_is_played_and_the_rest_reckoned() -> None:
    pool = _busy(50)
    waits = [_submit(pool, f"w{number:05d}") for number in range(HEAD + 200)]
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1, simulations=3, decisions=300)
    expected = [found[id_].expected_at for id_ in waits]
    known = [at for at in expected if at is not None]
    assert len(known) == len(waits) and known == sorted(known)
    hours = (known[-1] - NOW) / timedelta(hours=2)
    assert len(waits) / 50 - 1 <= hours <= len(waits) / 50 + 1


def test_under_fair_share_a_long_queue_is_played_whole() -> None:
    pool = _busy(20, replace(FIXED, scheduler=SchedulerKind.FAIR_SHARE))
    waits = [_submit(pool, f"w{number:05d}") for number in range(HEAD + 5)]
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1, simulations=1, decisions=5)
    assert set(found) == set(waits) and all(each.expected_at is not None for each in found.values())


def test_run_times_prefer_the_narrowest_kind_and_forget_the_oldest() -> None:
    past = RunTimes()
    for _ in range(LEAST):
        past.add(1, 8, 100.0)
        past.add(2, 1, 7.0)
    assert past.remaining_s(0.5, 1, 8) == 100.0 and past.remaining_s(0.5, 1, 1) == 100.0
    assert past.remaining_s(0.99, 3, 1) in (7.0, 100.0)
    basis = past.basis(3, 1)
    assert basis is not None and basis.of == "the pool" and basis.runs == 2 * LEAST
    for _ in range(MOST):
        past.add(2, 1, 9.0)
    assert len(past) == MOST and past.remaining_s(0.0, 2, 1) == 9.0


def test_what_has_outlived_all_that_is_known_is_expected_to_run_about_as_long_again() -> None:
    past = _past(*[60.0] * 100)
    assert past.remaining_s(0.5, 1, 1, elapsed_s=1000.0) == 1000.0
    assert past.remaining_s(0.0, 1, 1, elapsed_s=1000.0) == 0.0


def test_a_job_that_is_leaving_comes_back_into_the_queue() -> None:
    pool = _busy()
    pool.ask_to_leave(virtual_agent(FIXED, InstanceId("a0"), 1, NOW).id, "more important work")
    waits = _submit(pool, "next")
    pool.snapshot = pool.snapshot.with_job(replace(pool.snapshot.jobs[JobId("next")], priority=1))
    found = estimates(pool, _past(*[7200.0] * LEAST), seed=1)[waits]
    assert found.expected_at == NOW + timedelta(seconds=10)


def test_who_is_asked_about_alone_is_told_the_same() -> None:
    pool = _busy()
    first, second, third = (_submit(pool, name) for name in ("a", "b", "c"))
    past = _past(*[3600.0 + 100.0 * rank for rank in range(100)])
    every = estimates(pool, past, seed=1)
    assert estimates(pool, past, seed=1, of=(second,)) == {second: every[second]}
    assert estimates(pool, past, seed=1, of=()) == {}
    assert set(every) == {first, second, third}


def test_every_course_gets_its_part_of_the_bound() -> None:
    """Without, a long queue would take it all for the first simulation, and the range would be a point."""
    pool = _busy(2)
    waits = [_submit(pool, f"w{number:03d}") for number in range(40)]
    past = _past(*[3600.0 + 50.0 * rank for rank in range(200)])
    found = estimates(pool, past, seed=1, simulations=19, decisions=19 * 10)
    for each in (found[waits[0]], found[waits[-1]]):
        assert each.earliest is not None and each.latest is not None and each.earliest < each.latest
        assert each.basis.startswith("19 simulations")


def test_nine_in_ten_start_inside_their_range_when_the_past_repeats() -> None:
    """Order statistics: what comes is drawn as the past was, and lies between the extremes of the simulations that users get."""
    pool = _busy()
    waits = _submit(pool, "next")
    past = [3600.0 + 7.0 * rank for rank in range(1, 200)]
    inside = total = 0
    for seed in range(120):
        found = estimates(pool, _past(*past), seed=seed, of=(waits,))[waits]
        assert found.earliest is not None and found.latest is not None
        total += len(past)
        inside += sum(found.earliest <= NOW + timedelta(seconds=each - 3600.0) <= found.latest for each in past)
    assert 0.87 < inside / total < 0.93


def test_machines_join_as_those_that_have_did() -> None:
    pool = VirtualPool.empty(replace(ELASTIC, scaling=replace(ELASTIC.scaling, max_instances=50)), NOW)  # type: ignore[type-var]
    for number in range(LEAST_JOINED):
        _submit(pool, f"before{number}")
    for number, machine in enumerate(pool.apply_launches(Production().decide(pool).launches)):
        pool.launched(machine)
        pool.now = NOW + timedelta(seconds=400 + number)
        pool.joined(machine)
    Production().decide(pool)
    waits = _submit(pool, "next")
    found = estimates(pool, RunTimes(), seed=1)[waits]
    assert found.earliest is not None and found.latest is not None
    took = (found.earliest - pool.now, found.latest - pool.now)
    assert timedelta(seconds=400) <= took[0] < took[1] <= timedelta(seconds=400 + LEAST_JOINED)


def test_a_pool_that_asks_for_no_machines_says_so() -> None:
    for update in (
        {"misconfigured": "there is no such image"},
        {"quota_until": NOW + timedelta(minutes=5), "last_message": "8 vCPUs are allowed"},
    ):
        pool = VirtualPool.empty(ELASTIC, NOW)
        waits = _submit(pool, "next")
        pool.beliefs["o"] = OfferBelief(offer_id="o", **update)  # type: ignore[arg-type]
        found = estimates(pool, _past(*[60.0] * LEAST), seed=1)[waits]
        assert found.expected_at is None and found.earliest is None and found.latest is None
        assert "the pool requests no others" in found.basis
        assert str(update.get("misconfigured") or update["last_message"]) in found.basis


def test_lack_of_capacity_passes() -> None:
    pool = VirtualPool.empty(ELASTIC, NOW)
    waits = _submit(pool, "next")
    pool.beliefs["o"] = OfferBelief(offer_id="o", consecutive_refusals=1, backoff_until=NOW + timedelta(seconds=30))
    found = estimates(pool, _past(*[60.0] * LEAST), seed=1)[waits]
    assert found.expected_at is not None and found.expected_at > NOW + timedelta(seconds=30)


def test_machines_that_did_not_join_are_asked_for_again() -> None:
    pool = VirtualPool.empty(ELASTIC, NOW)
    waits = _submit(pool, "next")
    again_at = NOW + timedelta(seconds=30)
    pool.beliefs["o"] = OfferBelief(offer_id="o", consecutive_boot_failures=1, boot_backoff_until=again_at)
    assert stoppage(pool) == ("", pool)
    found = estimates(pool, RunTimes(), seed=1)[waits]
    assert found.earliest is not None and again_at < found.earliest < again_at + timedelta(minutes=5)


def test_a_pool_that_gave_up_for_a_while_asks_again() -> None:
    scaling = PoolScaling(pool="p", offers=(OFFER,), max_instances=5, launch_error_timeout_s=300.0)
    pool = VirtualPool.empty(replace(ELASTIC, scaling=scaling), NOW)
    _submit(pool, "runs")
    (machine,) = pool.apply_launches(Production().decide(pool).launches)
    pool.launched(machine)
    pool.joined(machine)
    Production().decide(pool)
    waits, fails = _submit(pool, "next"), _submit(pool, "wide", slots=2)
    pool.beliefs["o"] = replace(pool.beliefs["o"], pool_launch=PoolLaunch(at=NOW, failures=1))
    assert stoppage(pool) == ("", pool)
    found = estimates(pool, RunTimes(), seed=1)
    one = found[waits]
    assert one.earliest is not None and one.latest is not None
    assert NOW + timedelta(seconds=300) <= one.earliest <= one.latest < NOW + timedelta(seconds=600)
    assert found[fails].expected_at is None
    assert found[fails].basis.startswith("it is about to fail: the last launch has failed")


def test_an_offer_whose_machines_did_not_join_is_not_lost_beside_others() -> None:
    """The only one that is large enough, where one machine is allowed."""
    large = replace(OFFER, offer_id="large", slots=2)
    pool = VirtualPool.empty(
        replace(ELASTIC, scaling=PoolScaling(pool="p", offers=(OFFER, large), max_instances=1)), NOW
    )
    waits = _submit(pool, "next", slots=2)
    again_at = NOW + timedelta(seconds=30)
    pool.beliefs["large"] = OfferBelief(offer_id="large", consecutive_boot_failures=1, boot_backoff_until=again_at)
    found = estimates(pool, RunTimes(), seed=1)[waits]
    assert found.earliest is not None and found.latest is not None
    assert again_at < found.earliest < found.latest < again_at + timedelta(minutes=5)


def test_an_offer_that_waits_for_a_person_is_not_asked_for_while_others_are() -> None:
    pool = VirtualPool.empty(
        replace(ELASTIC, scaling=PoolScaling(pool="p", offers=(OFFER, replace(OFFER, offer_id="b")), max_instances=5)),
        NOW,
    )
    pool.beliefs["b"] = OfferBelief(offer_id="b", quota_until=NOW + timedelta(minutes=5), last_message="8 vCPUs")
    why, played = stoppage(pool)
    assert why == "" and "8 vCPUs" in played.beliefs["b"].misconfigured and not pool.beliefs["b"].misconfigured


def test_the_thread_breathes_for_each_that_is_drawn_or_reckoned() -> None:
    """However few decisions: a queue that is as long takes longer."""
    pool = _busy()
    waits = [_submit(pool, f"w{number:03d}") for number in range(200)]
    breaths = 0

    def yield_control() -> None:
        nonlocal breaths
        breaths += 1

    estimates(pool, _past(*[7200.0] * LEAST), seed=1, simulations=3, decisions=3, yield_control=yield_control)
    drawn, reckoned, told = 3 * (len(waits) + 1), 3 * len(waits), len(waits)
    assert breaths >= drawn + reckoned + told


def test_the_longer_a_machine_is_on_its_way_the_longer_were_those_that_it_is_like() -> None:
    seen = tuple(100.0 + 10.0 * rank for rank in range(20))
    joins = JoinTimes(seen={"o": seen}, usual_s={"o": 7.0})
    random = Random(1)
    assert all(seen[0] <= joins.draw_s("o", random) <= seen[-1] for _ in range(100))
    # Those seen that took exactly as long say nothing: this one has not joined by then.
    drawn = [joins.draw_s("o", random, elapsed_s=seen[9]) for _ in range(100)]
    assert seen[10] <= min(drawn) < max(drawn) <= seen[-1]
    # Fewer than half of ten have taken that long: what is usual.
    assert all(joins.draw_s("o", random, elapsed_s=seen[-4]) < 20.0 for _ in range(100))


def test_what_the_machines_of_a_pool_that_asks_for_no_others_can_hold_is_told() -> None:
    pool = VirtualPool.empty(ELASTIC, NOW)
    _submit(pool, "running")
    (machine,) = pool.apply_launches(Production().decide(pool).launches)
    pool.launched(machine)
    pool.joined(machine)
    Production().decide(pool)
    waits = _submit(pool, "next")
    pool.beliefs["o"] = OfferBelief(offer_id="o", misconfigured="there is no such image")
    found = estimates(pool, _past(*[3600.0] * LEAST), seed=1)[waits]
    assert found.expected_at == NOW + timedelta(hours=1)
