"""No machine is bought for work whose experiment or workspace cannot pay for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.account import Account, Limits, Owner, account_id
from resolute_master.domain.administration import CreateWorkspace, SetBudget, SetMaxCost
from resolute_master.domain.commands import ActivateExperiment, CancelExperiment, PauseExperiment
from resolute_master.domain.ids import UserId
from resolute_master.domain.job import Job
from resolute_master.lifecycle import budget
from resolute_provisioner.model import Market
from support.paid_cluster import POOL, PaidCluster, a_paid_pool, words

DAY_S = 86_400.0


def with_budget(per_day: float, cluster: PaidCluster | None = None) -> PaidCluster:
    """300 s of a slot cost 0.3."""
    cluster = cluster or PaidCluster(a_paid_pool(machines=9))
    cluster.act(SetBudget(owner="workspace", name="1", per_day=per_day, per_month=None))
    return cluster


def why(cluster: PaidCluster) -> list[str]:
    """What holds jobs back."""
    return list(cluster.memory.unpaid[POOL].values())


@pytest.mark.parametrize("per_day", [0.05, 0.1, 0.3])
def test_for_work_that_its_workspace_cannot_pay_no_machine_is_bought_on_any_day(per_day: float) -> None:
    cluster = with_budget(per_day)
    cluster.submit(trials=3)
    cluster.run_for(3 * DAY_S)
    assert cluster.machines == {}
    assert why(cluster) == [
        f"the budget of workspace Uncategorized, {per_day:g} today, leaves no room for another machine; raise it with "
        "`det workspace set-budget Uncategorized`"
    ]
    (job,) = cluster.memory.state.all(Job)
    assert job.hold == "", "it is no record"
    with_budget(1.0, cluster)
    assert why(cluster) == []
    cluster.run_for(100)
    assert cluster.running() == 3


def test_an_experiment_that_could_not_pay_for_a_save_is_paused_without_a_machine() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit(max_cost=0.05)
    assert cluster.machines == {} and cluster.experiment(id_).state is ExperimentState.PAUSED
    (said,) = words(cluster.decisions, "budget")
    assert "max_cost of experiment 1 is reached: 0.0000 of 0.05 spent, with up to 60 s for a save" in said
    cluster.act(SetMaxCost(experiment=id_, max_cost=0.1))
    cluster.act(ActivateExperiment(experiment=id_))
    cluster.run_for(30)
    assert cluster.running() == 1, "a limit may be meant for a minute"


def test_an_experiment_whose_limit_was_lowered_is_paused_when_it_is_to_go_on() -> None:
    cluster = PaidCluster(a_paid_pool())
    id_ = cluster.submit(max_cost=1.0)
    cluster.run_for(100)
    cluster.act(PauseExperiment(experiment=id_))
    cluster.run_for(100)
    cluster.act(SetMaxCost(experiment=id_, max_cost=cluster.spent_by(id_) + 0.03))
    cluster.act(ActivateExperiment(experiment=id_))
    assert cluster.experiment(id_).state is ExperimentState.PAUSED
    assert len(cluster.machines) == 1 and why(cluster) == []


def test_of_an_experiment_as_many_trials_get_machines_as_its_limit_pays_a_save_for() -> None:
    cluster = PaidCluster(a_paid_pool(machines=9))
    id_ = cluster.submit(max_cost=0.2, trials=9)
    cluster.run_for(15)
    assert (len(cluster.machines), cluster.running()) == (3, 3)
    assert cluster.experiment(id_).state is ExperimentState.ACTIVE


def test_what_a_workspace_has_no_money_for_today_gets_its_machine_tomorrow() -> None:
    cluster = with_budget(1.0)
    first = cluster.submit()
    cluster.run_for(810)
    cluster.act(CancelExperiment(experiment=first))
    cluster.run_for(200)
    cluster.submit()
    cluster.run_for(DAY_S - 1010 - 10)
    assert len(cluster.machines) == 1
    cluster.run_for(50)
    assert (len(cluster.machines), cluster.running()) == (2, 1)


def test_of_a_search_as_many_trials_get_machines_as_the_workspace_pays() -> None:
    cluster = with_budget(1.3)
    cluster.submit(trials=9)
    cluster.run_for(200)
    assert (len(cluster.machines), cluster.running()) == (4, 4)
    assert cluster.account("workspace/1").landing is None


def test_what_is_too_large_for_the_money_waits_and_what_is_small_enough_runs() -> None:
    cluster = with_budget(1.3)
    large = cluster.submit(slots=5, priority=1)
    small = cluster.submit()
    cluster.run_for(300)
    assert cluster.spent_by(large) == 0.0 < cluster.spent_by(small)
    assert len(cluster.machines) == 1 and len(why(cluster)) == 1
    with_budget(9.0, cluster)
    cluster.run_for(100)
    assert cluster.running() == 6


def test_money_that_other_work_of_the_workspace_needs_no_more_is_there_for_the_next() -> None:
    cluster = with_budget(0.7)
    first, second = cluster.submit(), cluster.submit()
    third = cluster.submit()
    cluster.run_for(30)
    assert (len(cluster.machines), len(why(cluster))) == (2, 1)
    again = cluster.memory.revisit[POOL] - cluster.now
    assert again.total_seconds() <= budget.LEAST_LIFE_S, "it may also be work in another pool that ends"
    for each in (first, second):
        cluster.act(CancelExperiment(experiment=each))
    cluster.run_for(400)
    assert cluster.spent_by(third) > 0.0


def test_a_workspace_without_a_budget_is_served_beside_one_that_has_none_left() -> None:
    cluster = with_budget(0.1)
    cluster.act(CreateWorkspace(name="rich", owner=UserId(1)))
    poor = cluster.submit(trials=50)
    other = cluster.submit(workspace=2)
    cluster.run_for(100)
    assert len(cluster.machines) == 1
    assert cluster.spent_by(poor) == 0.0 < cluster.spent_by(other)


@pytest.mark.parametrize(
    ("slots", "per_day", "runs"), [(1, 0.2, 1), (1, 0.14, 0), (2, 0.31, 2), (2, 0.29, 0), (8, 1.3, 1)]
)
def test_the_cheapest_machines_that_would_take_it_are_what_has_to_be_paid(
    slots: int, per_day: float, runs: int
) -> None:
    """300 s of a slot cost 0.3 on small machines and 0.15 on large ones, on spot twice as much is held back."""
    pool = a_paid_pool(machines=9)[POOL]
    assert pool.scaling is not None
    (small,) = pool.scaling.offers
    large = replace(small, offer_id="large", slots=8, price_per_hour=14.4)
    spot = replace(small, offer_id="spot", price_per_hour=2.0, market=Market.SPOT)
    scaling = replace(pool.scaling, offers=(small, large, spot))
    cluster = with_budget(per_day, PaidCluster({POOL: replace(pool, scaling=scaling)}))
    cluster.submit(slots=slots)
    cluster.run_for(30)
    assert (len(cluster.machines) > 0) is (runs > 0)


def test_a_limit_of_all_that_pays_is_looked_at() -> None:
    cluster = with_budget(0.1)
    id_ = cluster.submit(max_cost=50.0)
    cluster.run_for(100)
    assert cluster.machines == {} and cluster.experiment(id_).state is ExperimentState.ACTIVE
    assert account_id(Owner.EXPERIMENT, id_) not in {each.id for each in cluster.memory.state.all(Account)}
    assert Limits(per_day=0.1) == cluster.account("workspace/1").limits
