"""Limits on the cost of pools, workspaces and experiments, and what they have spent."""

from __future__ import annotations

from datetime import datetime

from resolute.errors import NotFound
from resolute.wire.rest.costs import Budget, BudgetState, GetBudgetsResponse, GetExperimentCostResponse, MaxCost
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.finders import experiment_at, find_experiment
from resolute_master.api.resources.cost import experiment_cost
from resolute_master.api.resources.workspaces import workspace_at
from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.administration import SetBudget, SetMaxCost
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.workspace import Workspace
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.workspaces import workspaces


async def list_budgets(call: Call, _: None) -> GetBudgetsResponse:
    """Budgets of pools and workspaces, with their spending."""
    state, now = call.api.engine.state, call.api.clock.now()
    names = {account_id(Owner.WORKSPACE, one.id): one.name for one in workspaces(state)}
    accounts = sorted(state.all(Account), key=lambda each: each.id)
    return GetBudgetsResponse(
        budgets=tuple(_shown(each, names.get(each.id, each.name), now) for each in accounts if _has_budget(each))
    )


def _has_budget(account: Account) -> bool:
    return account.owner is not Owner.EXPERIMENT


async def set_pool_budget(call: Call, pool: PoolName) -> BudgetState:
    """Sets the budget of a resource pool."""
    return await _set(call, Owner.POOL, pool, pool)


async def set_workspace_budget(call: Call, workspace: Workspace) -> BudgetState:
    """Sets the budget of a workspace."""
    return await _set(call, Owner.WORKSPACE, str(workspace.id), workspace.name)


async def _set(call: Call, owner: Owner, key: str, name: str) -> BudgetState:
    wanted = await call.body(Budget)
    await call.api.engine.submit(
        SetBudget(owner=owner.value, name=key, per_day=wanted.per_day, per_month=wanted.per_month)
    )
    return _shown(_account(call.api.engine.state, owner, key), name, call.api.clock.now())


def _account(state: ClusterState, owner: Owner, key: str) -> Account:
    found = state.get(Account, account_id(owner, key))
    assert found is not None, "a budget that was set has an account"
    return found


def _shown(account: Account, name: str, now: datetime) -> BudgetState:
    current = account.until(now)
    return BudgetState(
        owner=account.owner.value,
        name=name,
        budget=Budget(per_day=account.limits.per_day, per_month=account.limits.per_month),
        spent_today=current.in_day,
        spent_this_month=current.in_month,
        rate_per_hour=current.rate_per_hour,
        wind_down_reason=account.wind_down_reason,
        resumes_at=account.wind_down.until if account.wind_down is not None else None,
    )


async def set_max_cost(call: Call, experiment: Experiment) -> GetExperimentCostResponse:
    """Sets the limit on the cost of an experiment."""
    wanted = await call.body(MaxCost)
    await call.api.engine.submit(SetMaxCost(experiment=experiment.id, max_cost=wanted.max_cost))
    return await experiment_cost(call.api, await find_experiment(call.api, experiment.id))


async def _pool(call: Call) -> PoolName:
    name = PoolName(call.text("poolName"))
    if name not in call.api.engine.pools:
        raise NotFound("resource pool", name)
    return name


ROUTES = (
    Route("GET", "/api/v1/budgets", Action.VIEW, nothing, list_budgets),
    Route("PUT", "/api/v1/resource-pools/{poolName}/budget", Action.SET_BUDGETS, _pool, set_pool_budget),
    Route("PUT", "/api/v1/workspaces/{id}/budget", Action.SET_BUDGETS, workspace_at("id"), set_workspace_budget),
    Route(
        "PUT",
        "/api/v1/experiments/{experimentId}/max_cost",
        Action.CONTROL_EXPERIMENT,
        experiment_at("experimentId"),
        set_max_cost,
    ),
)
