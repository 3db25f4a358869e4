"""Limits are kept: work is saved and stopped before they are passed, and goes on when it may."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.ids import SeededIds
from resolute.wire.states import ExperimentState
from resolute_master.decision import budgets, supply
from resolute_master.domain.account import (
    DEFAULT_SAVE_S,
    END_S,
    NOTHING,
    RISE,
    Account,
    Limits,
    Owner,
    Rate,
    account_id,
)
from resolute_master.domain.administration import SetBudget, SetMaxCost
from resolute_master.domain.allocation import Allocation, PreemptRequest
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.commands import ActivateExperiment, CancelExperiment, RecordObservation
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine import pool_view
from resolute_master.lifecycle import budget, spending
from resolute_master.lifecycle.apply import apply
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Launch, Market, Observed, Offer, PoolScaling, ScalePlan
from support.cluster import T0, an_instance, at
from support.paid_cluster import POOL, Habits, PaidCluster, a_paid_pool, words

SPOT_OFFER = Offer(offer_id="local", instance_type="t", zone="z", market=Market.SPOT, slots=1)

SECOND = 0.001
"""What a second of a slot costs where nothing else is said."""


# -------------------------------------------------------------------------------------------------------- an account


def test_an_account_counts_by_the_day_and_the_month_of_utc() -> None:
    evening = datetime(2026, 1, 31, 23, tzinfo=UTC)
    account = Account(id="pool/a", at=evening).paying(Rate(per_hour=2.0), evening)
    before, after = account.until(evening + timedelta(minutes=30)), account.until(evening + timedelta(hours=3))
    assert (before.in_day, before.in_month, before.in_all) == (1.0, 1.0, 1.0)
    assert (after.in_day, after.in_month, after.in_all) == (4.0, 4.0, 6.0)
    next_evening = account.until(evening + timedelta(days=1))
    assert (next_evening.in_day, next_evening.in_month) == (46.0, 46.0)


def test_what_was_heard_of_late_counts_from_when_it_was() -> None:
    midnight = datetime(2026, 1, 2, tzinfo=UTC)
    since, now = midnight - timedelta(hours=3), midnight + timedelta(hours=1)

    def one_an_hour(begin: datetime | None) -> float:
        return (now - max(since, begin or since)).total_seconds() / 3600.0

    account = Account(id="pool/a", at=midnight).corrected(one_an_hour, now)
    assert (account.in_day, account.in_month, account.in_all) == (1.0, 4.0, 4.0)
    assert account.corrected(lambda begin: -9.0, now).in_day == 0.0


def test_a_limit_is_reached_when_a_save_takes_the_rest() -> None:
    account = Account(id="experiment/1", at=T0, limits=Limits(in_all=1.0)).paying(Rate(per_hour=3.6), T0)
    comes = budget.due(account)
    assert comes is not None and (comes - T0).total_seconds() == pytest.approx(1000 - DEFAULT_SAVE_S, abs=0.01)
    assert budget.reached(account, at(900)) is None
    found = budget.reached(account, comes)
    assert found is not None and found.until is None
    assert budget.reached(account, at(0), more=Rate(per_hour=3.6 * 20)) is not None


def test_only_what_is_on_spot_is_reckoned_at_a_price_that_has_risen() -> None:
    account = Account(id="pool/a", at=T0, limits=Limits(in_all=1.0)).paying(Rate(per_hour=3.6), T0)
    spot = Rate(per_hour=0.36, moving_per_hour=0.36)
    both = account.paying(spot, T0)
    found = budget.reached(both, at(890))
    assert found is not None and found.rises
    assert found.ahead == pytest.approx((3.6 + 0.36 * RISE) * DEFAULT_SAVE_S / 3600)
    assert both.paying(NOTHING - spot, T0) == account, (
        "a pool that once had a machine on spot holds nothing back for it"
    )


def test_a_day_whose_budget_is_not_reached_is_looked_at_again_when_the_next_begins() -> None:
    account = Account(id="pool/a", at=T0, limits=Limits(per_day=1000.0)).paying(Rate(per_hour=3.6), T0)
    assert budget.due(account) == T0 + timedelta(days=1)
    assert budget.due(replace(account, rate_per_hour=0.0)) is None


def test_slower_saves_count_at_once_and_quicker_ones_little_by_little() -> None:
    account = Account(id="pool/a", at=T0)
    assert account.wind_down_s == DEFAULT_SAVE_S
    slow = account.having_saved(40.0)
    assert (slow.wind_down_s, slow.having_saved(20.0).save_s, slow.having_saved(80.0).save_s) == (
        1.5 * 40 + END_S,
        35.0,
        80.0,
    )


# ------------------------------------------------------------------------------------------------------------ max_cost


def test_an_experiment_is_saved_and_paused_before_it_costs_more_than_it_may() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(3000)
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert 1.0 - DEFAULT_SAVE_S * SECOND < cluster.spent_by(id_) <= 1.0
    assert cluster.account(account_id(Owner.EXPERIMENT, id_)).in_all == pytest.approx(cluster.spent_by(id_), abs=0.02)
    (said,) = words(cluster.decisions, "budget")
    assert "max_cost of experiment 1 is reached" in said and "det experiment set max-cost 1" in said
    assert cluster.running() == 0


def test_what_does_not_save_in_time_is_killed_before_the_limit() -> None:
    cluster = PaidCluster(a_paid_pool(), Habits(save_s=lambda: 5000.0))
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(3000)
    assert 0.98 < cluster.spent_by(id_) <= 1.0
    assert cluster.experiment(id_).state is ExperimentState.PAUSED


def test_an_experiment_that_has_reached_its_limit_goes_on_when_it_is_raised_and_not_before() -> None:
    cluster = PaidCluster(a_paid_pool(), Habits(save_s=lambda: 50.0))
    id_ = cluster.submit(max_cost=0.5)
    cluster.run_for(1000)
    with pytest.raises(FailedPrecondition, match="max_cost of experiment 1 is reached"):
        cluster.act(ActivateExperiment(experiment=id_))
    cluster.act(SetMaxCost(experiment=id_, max_cost=0.495))
    with pytest.raises(FailedPrecondition):
        cluster.act(ActivateExperiment(experiment=id_))
    cluster.act(SetMaxCost(experiment=id_, max_cost=1.0))
    assert cluster.experiment(id_).max_cost == 1.0
    cluster.act(ActivateExperiment(experiment=id_))
    cluster.run_for(2000)
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert 0.9 < cluster.spent_by(id_) <= 1.0
    cluster.act(SetMaxCost(experiment=id_, max_cost=None))
    cluster.act(ActivateExperiment(experiment=id_))
    cluster.run_for(2000)
    assert cluster.experiment(id_).state is ExperimentState.ACTIVE


def test_what_saves_quicker_than_was_feared_may_use_the_rest() -> None:
    cluster = PaidCluster(a_paid_pool(), Habits(save_s=lambda: 2.0))
    id_ = cluster.submit(max_cost=0.5)
    cluster.run_for(1000)
    assert cluster.spent_by(id_) == pytest.approx(0.5 - DEFAULT_SAVE_S * SECOND + 2 * SECOND, abs=0.001)
    cluster.act(ActivateExperiment(experiment=id_))
    cluster.run_for(1000)
    assert 0.48 < cluster.spent_by(id_) <= 0.5
    assert cluster.killed() == 0, "it saved both times"
    with pytest.raises(FailedPrecondition, match="up to 15 s for a save"):
        cluster.act(ActivateExperiment(experiment=id_))


def test_a_limit_that_is_set_while_it_runs_counts_what_was_spent_before() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit()
    cluster.run_for(500)
    with pytest.raises(InvalidInput, match=r"max_cost: 0.3 is not more than the 0.49\d* that experiment 1 has spent"):
        cluster.act(SetMaxCost(experiment=id_, max_cost=0.3))
    cluster.act(SetMaxCost(experiment=id_, max_cost=0.6))
    cluster.run_for(200)
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert 0.5 < cluster.spent_by(id_) <= 0.6


def test_what_cannot_be_paid_for_is_not_begun() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit(max_cost=0.01)  # less than a save
    cluster.run_for(500)
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert cluster.spent_by(id_) == 0.0


def test_a_limit_is_refused_where_it_could_not_be_kept() -> None:
    unknown = PaidCluster(a_paid_pool(price=None))
    with pytest.raises(InvalidInput, match="price of paid of pool 'default' is unknown"):
        unknown.submit(max_cost=1.0)
    static = PaidCluster({POOL: replace(a_paid_pool()[POOL], scaling=None)})
    with pytest.raises(InvalidInput, match="starts no machines"):
        static.submit(max_cost=1.0)
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit()
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidInput, match="max_cost"):
            cluster.act(SetMaxCost(experiment=id_, max_cost=wrong))


def test_a_limit_survives_the_master() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit(max_cost=1.0)
    for _ in range(12):
        cluster.run_for(97)
        cluster.restart_master()
    cluster.run_for(1000)
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert 0.9 < cluster.spent_by(id_) <= 1.0


@pytest.mark.parametrize("after_s", [0, 500, 870, 881, 885, 950, 970])
@pytest.mark.parametrize("save_s", [5.0, 50.0, 5000.0])
def test_a_limit_is_kept_when_the_price_doubles(after_s: float, save_s: float) -> None:
    cluster = PaidCluster(a_paid_pool(market=Market.SPOT), Habits(save_s=lambda: save_s))
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(after_s)
    cluster.move_market(3.6 * RISE)
    cluster.run_for(3000)
    assert 0.75 < cluster.spent_by(id_) <= 1.0
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    (said,) = words(cluster.decisions, "budget")
    assert "with up to 60 s for a save to be paid (0." in said
    assert ", what is on spot at up to 2 times its price of now)" in said


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 4.0])
def test_a_quick_save_is_not_killed_when_the_price_doubles_meanwhile(after_s: float) -> None:
    cluster = PaidCluster(a_paid_pool(market=Market.SPOT), Habits(save_s=lambda: 5.0))
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(1000)
    cluster.act(ActivateExperiment(experiment=id_))  # a save was seen: it may use the rest
    told = run_until_it_is_asked_to_save(cluster).deadline
    assert told is not None
    cluster.run_for(after_s)
    cluster.move_market(3.6 * RISE)
    kills_at = budget.due(cluster.account(account_id(Owner.EXPERIMENT, id_)))
    assert kills_at is not None and told <= kills_at, "the told deadline does not come nearer"
    cluster.run_for(100)
    assert cluster.killed() == 0
    assert cluster.running() == 0
    assert cluster.spent_by(id_) <= 1.0


def run_until_it_is_asked_to_save(cluster: PaidCluster) -> PreemptRequest:
    for _ in range(3000):
        cluster.run_for(0.1)
        for each in cluster.memory.state.all(Allocation):
            if each.preempt is not None:
                return each.preempt
    pytest.fail("nothing was asked to save")


def test_a_price_that_falls_makes_a_limit_last_longer() -> None:
    cluster = PaidCluster(a_paid_pool(market=Market.SPOT))
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(500)
    cluster.move_market(0.36)
    cluster.run_for(3000)
    assert cluster.experiment(id_).state is ExperimentState.ACTIVE
    assert cluster.spent_by(id_) == pytest.approx(0.788, abs=0.01)


# ------------------------------------------------------------------------------------------------------------- budgets


def test_a_pool_lands_within_its_day_when_the_price_rises() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=2.0), market=Market.SPOT))
    cluster.submit(trials=2)
    cluster.run_for(500)
    cluster.move_market(3.6 * RISE)
    cluster.run_for(5000)
    assert cluster.running() == 0
    assert 1.5 < cluster.bill() <= 2.0


def test_what_moved_yesterday_was_spent_yesterday() -> None:
    """A machine that is heard of late, after its price has moved and a day has begun."""
    midnight = datetime(2026, 1, 2, tzinfo=UTC)
    machine = an_instance(requested_at=T0, offer=SPOT_OFFER).at_price(7.2, midnight - timedelta(hours=1))
    step = Step(ClusterState([machine]), now=midnight + timedelta(hours=2), ids=SeededIds(1), sequence=1)
    word = RecordObservation(
        instance=machine.id,
        provider_id="vm",
        observed=Observed.RUNNING,
        paid_from=midnight - timedelta(hours=3),
        paid_until=None,
    )
    apply(step, word)
    spending.book(step, ClusterState([machine]))
    account = step.need(Account, "pool/default")
    assert account.in_all == pytest.approx(2 * 3.6 + 3 * 7.2)
    assert account.in_day == pytest.approx(2 * 7.2)


def test_a_pool_lands_within_its_day_and_goes_on_the_next() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=2.0)))
    cluster.submit(trials=2)
    cluster.run_for(5000)
    assert cluster.running() == 0
    assert [paid.until is None for paid in cluster.machines.values()] == [False, False], "idle machines are given back"
    assert 1.8 < cluster.bill() <= 2.0
    waiting = cluster.memory.state.all(Allocation)
    assert len(waiting) == 2 and all(each.assigned_at is None for each in waiting)
    assert "the budget of pool default is used up" in budget.hold_of_pool(cluster.memory.state, POOL)
    cluster.run_for(86_400 - 5000 + 500)
    assert cluster.running() == 2
    assert cluster.bill(T0 + timedelta(days=1)) <= 2.0


def test_a_machine_that_could_not_be_paid_for_long_enough_is_not_begun() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=0.29)))
    cluster.submit()
    cluster.run_for(1000)
    assert cluster.bill() == 0.0
    assert budget.hold_of_pool(cluster.memory.state, POOL) == "", "nothing is paid for, so that nothing is to be ended"
    assert (
        "the pool's budget of 0.29 today does not cover another machine" in cluster.memory.snapshots[POOL].supply.reason
    )


def test_a_machine_that_still_boots_when_the_money_is_used_up_is_given_back_at_once() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=1.0)), Habits(boot_s=1100.0))
    cluster.submit()
    cluster.run_for(800)
    assert cluster.bill() == pytest.approx(0.8)
    cluster.run_for(4200)
    (paid,) = cluster.machines.values()
    assert paid.until is not None and cluster.bill() <= 1.0
    (given_back,) = words(cluster.decisions, "terminate")
    assert "has not joined yet, and the pool may not spend now" in given_back
    assert all(known.belief.consecutive_boot_failures == 0 for known in cluster.memory.state.all(PoolBelief)), (
        "the offer is not to blame"
    )


def test_a_gang_whose_second_machine_cannot_be_paid_gets_none() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=0.5)))
    cluster.submit(slots=2)
    cluster.run_for(1000)
    assert cluster.bill() == 0.0


def a_late_and_important_one(limits: Limits, *, after_s: float, machines: int = 3) -> PaidCluster:
    """Something runs, and after so long a job of priority 1 comes."""
    pools = {
        name: replace(each, preemption=True) for name, each in a_paid_pool(machines=machines, budget=limits).items()
    }
    cluster = PaidCluster(pools)
    cluster.submit()
    cluster.run_for(after_s)
    cluster.submit(priority=1)
    return cluster


def preempted(cluster: PaidCluster) -> list[str]:
    return words(cluster.decisions, "preempt")


def test_the_important_evicts_where_the_budget_pays_for_no_other_machine() -> None:
    cluster = a_late_and_important_one(Limits(per_day=1.6), after_s=1000.0)
    cluster.run_for(100)
    (said,) = preempted(cluster)
    assert "has priority 1 before 42" in said
    assert len(cluster.machines) == 1 and cluster.running() == 1


def test_the_important_waits_for_a_machine_that_the_budget_pays_for() -> None:
    cluster = a_late_and_important_one(Limits(per_day=3.0), after_s=1000.0)
    cluster.run_for(100)
    assert preempted(cluster) == []
    assert len(cluster.machines) == 2 and cluster.running() == 2


def test_who_waits_is_told_that_the_budget_has_no_room_and_until_when() -> None:
    cluster = a_late_and_important_one(Limits(per_day=1.6), after_s=1000.0)
    cluster.run_for(100)
    known = cluster.memory.snapshots[POOL].supply
    assert known.offers == ()
    assert known.reason == (
        "offer paid: the pool's budget of 1.6 today does not cover another machine; raise it with "
        "`det resource-pool set-budget default`; next request at 00:00:00 UTC"
    )
    waiting = next(each for each in cluster.memory.state.all(Allocation) if each.assigned_at is None)
    told = explain(cluster.memory.snapshots[POOL].at(cluster.now), waiting.job_id)
    assert any(known.reason in each for each in told.details), told.details
    assert not any("may launch" in each for each in (told.reason, *told.details))


def what_else_is_payable(per_day: float, *machines: Instance) -> PoolScaling:
    """Payable part of a pool that may have nine machines at 3.6 an hour: 300 s of one cost 0.3."""
    scaling = a_paid_pool(machines=9)[POOL].scaling
    assert scaling is not None
    account = Account(id="pool/default", at=T0, limits=Limits(per_day=per_day))
    return pool_view.payable(ClusterState((account, *machines)), scaling, T0)


def test_machines_that_were_asked_for_and_are_not_paid_for_yet_take_room_in_the_budget() -> None:
    coming = [an_instance(f"default-{n}", offer_id="paid", observed=Observed.UNKNOWN) for n in range(4)]
    assert [each.machines for each in what_else_is_payable(1.3, *coming[:2]).unpaid] == [2]
    assert [each.machines for each in what_else_is_payable(1.3, *coming).unpaid] == [0]
    gone = [replace(each, observed=Observed.GONE) for each in coming[1:]]
    (found,) = what_else_is_payable(1.3, coming[0], *gone).unpaid
    assert (found.machines, found.until) == (3, T0 + timedelta(days=1))
    assert what_else_is_payable(3.1, coming[0]).unpaid == ()


def test_a_pool_that_spends_nothing_may_buy_no_more_than_its_budget_either() -> None:
    assert [each.machines for each in what_else_is_payable(0.1).unpaid] == [0]
    assert [each.machines for each in what_else_is_payable(1.3).unpaid] == [4]
    assert what_else_is_payable(3.1).unpaid == ()


def test_a_gang_beyond_the_budget_does_not_end_the_day_for_the_others() -> None:
    cluster = PaidCluster(a_paid_pool(machines=12, budget=Limits(per_day=1.3)))
    gang = cluster.submit(slots=9)
    cluster.run_for(300)
    assert not cluster.machines and budget.hold_of_pool(cluster.memory.state, POOL) == ""
    for _ in range(3):
        cluster.submit()
    cluster.run_for(300)
    assert (len(cluster.machines), cluster.running()) == (3, 3)
    cluster.act(SetBudget(owner="pool", name="default", per_day=50.0, per_month=None))
    cluster.run_for(1000)
    assert cluster.spent_by(gang) > 0.0


def test_what_waits_alone_for_the_budget_of_tomorrow_is_begun_then() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=0.5)))
    first = cluster.submit()
    cluster.run_for(200)
    cluster.act(CancelExperiment(experiment=first))
    cluster.run_for(200)
    cluster.submit()
    cluster.run_for(100)
    assert budget.hold_of_pool(cluster.memory.state, POOL) == ""
    spent = cluster.bill()
    cluster.run_for(86_400 - 600)
    assert cluster.bill() == spent
    cluster.run_for(300)
    assert cluster.bill() > spent


def test_of_a_search_beyond_the_budget_as_many_trials_run_as_it_pays() -> None:
    cluster = PaidCluster(a_paid_pool(machines=9, budget=Limits(per_day=1.3)))
    cluster.submit(trials=9)
    cluster.run_for(200)
    assert (len(cluster.machines), cluster.running()) == (4, 4)
    assert budget.hold_of_pool(cluster.memory.state, POOL) == ""


@pytest.mark.parametrize(("per_day", "room"), [(1.3, 3), (0.7, 1)])
def test_no_more_machines_may_be_asked_for_than_the_budget_pays(per_day: float, room: int) -> None:
    found = supply.of(what_else_is_payable(per_day, an_instance("default-1", paid_from=T0)), (), {}, T0)
    assert (found.room, [each.room for each in found.offers]) == (room, [room])


def test_a_scale_plan_says_who_gets_no_machine_for_the_budget() -> None:
    scaling = a_paid_pool(budget=Limits(per_day=1.0))[POOL].scaling
    assert scaling is not None
    account = Account(id="pool/default", at=T0, limits=Limits(per_day=1.0), in_day=0.2, rate_per_hour=3.6)
    runs = an_instance("default-1")
    state = ClusterState((account, replace(runs, offer_id="paid", price_per_hour=3.6, paid_from=T0)))
    asked = ScalePlan(launches=tuple(Launch(offer_id="paid", gang_tokens=(token,), reason="") for token in "ab"))
    view = pool_view.pool_view(state, PoolSnapshot.build(PoolPolicy(name=POOL, scaling=scaling), now=T0), ())
    kept = budgets.within(view, scaling, asked)
    assert [each.gang_tokens for each in kept.launches] == [("a",)]
    (note,) = kept.notes
    assert (note.subject, note.text) == (
        "b",
        "the pool's budget of 1 today does not cover more than 1 more machine(s); raise it with "
        "`det resource-pool set-budget default`",
    )
    assert kept.revisit_at == T0.replace(hour=0) + timedelta(days=1)


def test_what_waits_for_the_budget_of_tomorrow_gets_its_machine_then() -> None:
    # What runs costs 86.4 a day, so that it is never wound down.
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=86.5)))
    cluster.submit()
    cluster.run_for(86_400 - 400)
    cluster.submit()
    cluster.run_for(399)
    before = len(cluster.machines)
    cluster.run_for(100)
    assert (before, len(cluster.machines)) == (1, 2) and preempted(cluster) == []


def test_a_task_is_told_until_when_it_may_save() -> None:
    cluster = PaidCluster(a_paid_pool(), Habits(save_s=lambda: 5000.0))
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(960)
    (allocation,) = cluster.memory.state.all(Allocation)
    assert allocation.preempt is not None
    cluster.run_for(200)
    (end,) = [paid.until for paid in cluster.tasks.values()]
    assert end is not None and abs((end - allocation.preempt.deadline).total_seconds() - cluster.habits.kill_s) < 0.1
    assert cluster.spent_by(id_) <= 1.0


def test_a_month_outlasts_its_days() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=2.0, per_month=3.0)))
    cluster.submit()
    cluster.run_for(3 * 86_400)
    assert 2.8 < cluster.bill() <= 3.0
    assert "this month" in budget.hold_of_pool(cluster.memory.state, POOL)
    cluster.run_for(29 * 86_400)
    assert cluster.bill(datetime(2026, 2, 1, tzinfo=UTC)) > 0.0


def test_an_operator_raises_a_budget_at_once() -> None:
    cluster = PaidCluster(a_paid_pool(budget=Limits(per_day=1.0)))
    cluster.submit()
    cluster.run_for(3000)
    assert cluster.running() == 0
    cluster.act(SetBudget(owner="pool", name="default", per_day=2.0, per_month=None))
    cluster.run_for(100)
    assert cluster.running() == 1
    cluster.restart_master()
    assert cluster.account("pool/default").limits.per_day == 2.0, "the configuration says nothing new"
    cluster.pools = a_paid_pool(budget=Limits(per_day=1.5))
    cluster.restart_master()
    assert cluster.account("pool/default").limits.per_day == 1.5
    cluster.run_for(3000)
    assert 1.3 < cluster.bill() <= 1.5


def test_a_workspace_lands_and_leaves_the_others_alone() -> None:
    cluster = PaidCluster(a_paid_pool(machines=4))
    cluster.act(SetBudget(owner="workspace", name="1", per_day=1.0, per_month=None))
    mine = cluster.submit(trials=2)
    cluster.run_for(3000)
    assert cluster.experiment(mine).state is ExperimentState.ACTIVE
    assert 0.8 < cluster.spent_by(mine) <= 1.0
    (job,) = cluster.memory.state.all(Job)
    assert "the budget of workspace Uncategorized is used up" in job.hold
    later = cluster.submit()
    cluster.run_for(500)
    assert cluster.spent_by(later) == 0.0
    assert not [paid for paid in cluster.machines.values() if paid.until is None], "no machine is started for it"
    cluster.act(SetBudget(owner="workspace", name="1", per_day=None, per_month=None))
    cluster.run_for(200)
    assert cluster.running() == 3
    assert not any(job.hold for job in cluster.memory.state.all(Job))


def test_a_budget_is_refused_by_key_and_value() -> None:
    cluster = PaidCluster(a_paid_pool())
    with pytest.raises(InvalidInput, match="per_day: -1 must be greater than 0"):
        cluster.act(SetBudget(owner="pool", name="default", per_day=-1.0, per_month=None))
    with pytest.raises(InvalidInput, match="starts no machines"):
        static = PaidCluster({POOL: replace(a_paid_pool()[POOL], scaling=None)})
        static.act(SetBudget(owner="pool", name="default", per_day=1.0, per_month=None))


def test_the_accounts_agree_with_the_bill() -> None:
    cluster = PaidCluster(a_paid_pool(slots=2))
    first = cluster.submit(slots=2)
    second = cluster.submit()
    for number in range(6):
        cluster.run_for(123.4)
        cluster.lose_machine(number)
        if number == 3:
            cluster.restart_master()
    cluster.run_for(50)
    assert cluster.account("pool/default").in_all == pytest.approx(cluster.bill(), abs=1e-6)
    for id_ in (first, second):
        assert cluster.account(f"experiment/{id_}").in_all == pytest.approx(cluster.spent_by(id_), abs=1e-6)
    both = cluster.spent_by(first) + cluster.spent_by(second)
    assert cluster.account("workspace/1").in_all == pytest.approx(both, abs=1e-6)


def test_a_machine_of_which_the_cloud_says_no_more_than_that_it_is_gone_is_paid_for_no_longer() -> None:
    cluster = PaidCluster(a_paid_pool())
    cluster.submit()
    cluster.run_for(100)
    (id_,) = cluster.machines
    gone = RecordObservation(instance=id_, provider_id=id_, observed=Observed.GONE, paid_from=None, paid_until=None)
    step = Step(cluster.memory.state, now=cluster.now, ids=SeededIds(1), sequence=1)
    apply(step, gone)
    assert step.need(Instance, id_).paid_until == cluster.now
