"""Builds the view of a pool for a decision from the state of the cluster. It decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import cast

from resolute_master.decision import budgets
from resolute_master.decision.view import Budgets, PoolBudget, PoolView, Progress, ReadWhenAsked, SlotPrice
from resolute_master.domain.account import NOTHING, Account, Owner, account_id
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, AllocationId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle import instances, spending
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.prices import price_of_slot
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import InstanceView, Intent, PoolScaling

State = Step | ClusterState
"""A state to read. The mappings of a view read it on access, so a view is for immediate use."""


def pool_view(state: State, snapshot: PoolSnapshot, machines: tuple[InstanceView, ...]) -> PoolView:
    """The view of the snapshot's pool at the snapshot's time. `machines` are those of the pool, by id."""
    pool = snapshot.policy.name
    if snapshot.policy.scaling is None:
        return PoolView(snapshot=snapshot)  # its machines cost nothing
    return PoolView(
        snapshot=snapshot,
        machines=machines,
        beliefs=instances.beliefs(state, pool),
        budgets=_budgets(state, snapshot),
        progress=_progress(state, pool, snapshot.now),
    )


def payable(state: State, scaling: PoolScaling, now: datetime) -> PoolScaling:
    """The elastic part of a pool within its current budget: for questions about possible purchases."""
    pool = PoolName(scaling.pool)
    return budgets.payable(scaling, _pool_budget(state, pool), instances.beliefs(state, pool), now)


# ------------------------------------------------------------------------------------------------------------- budgets


def _budgets(state: State, snapshot: PoolSnapshot) -> Budgets:
    def payers(id_: AllocationId) -> tuple[Account, ...] | None:
        allocation = state.get(Allocation, id_)
        return None if allocation is None else spending.payers(state, allocation, snapshot.now)

    def price(id_: AgentId) -> SlotPrice | None:
        found = price_of_slot(state, id_)
        return None if found is None else SlotPrice(per_hour=found.per_hour, moves=found.moves)

    return Budgets(
        pool=_pool_budget(state, snapshot.policy.name, spending.begun(snapshot.policy, snapshot.now)),
        payers=ReadWhenAsked(snapshot.allocations, payers),
        prices=ReadWhenAsked(snapshot.agents, price),
    )


def _pool_budget(state: State, pool: PoolName, begun: Account | None = None) -> PoolBudget | None:
    """The budget of a pool. `begun`: the account of a pool that has not spent anything yet."""
    account = state.get(Account, account_id(Owner.POOL, pool)) or begun
    if account is None or account.wind_down is not None or not account.limits:
        return None
    machines = state.find(Instance, "instances_of_pool", pool)
    rates = (budgets.rate_of(each.price_per_hour, moves=each.price_moves) for each in machines if _is_to_be_paid(each))
    return PoolBudget(account=account, machines=sum(rates, NOTHING))


def _is_to_be_paid(instance: Instance) -> bool:
    if instance.over or instance.paid_until is not None:
        return False
    return instance.paid_from is not None or instance.intent is Intent.RUN


# ------------------------------------------------------------------------------------------------------------ progress


def _progress(state: State, pool: PoolName, now: datetime) -> Mapping[AllocationId, Progress]:
    """Progress of the pool's allocations with a deadline."""
    ids = cast("frozenset[AllocationId]", state.keys("deadlines_of_pool", pool))
    return ReadWhenAsked(ids, lambda id_: progress_of(state, id_, now))


def progress_of(state: State, id_: AllocationId, now: datetime) -> Progress | None:
    """Progress of an allocation; None if it belongs to no trial, because its length is never known."""
    allocation = state.get(Allocation, id_)
    trial = None if allocation is None or allocation.trial_id is None else state.get(Trial, allocation.trial_id)
    experiment = None if trial is None else state.get(Experiment, trial.experiment_id)
    if trial is None or experiment is None:
        return None
    total = _total_steps(experiment, trial)
    done, saved = _done(trial, now), float(trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0)
    step_s = trial.pace.step_s if trial.pace is not None else None
    return Progress(
        submitted_at=experiment.started_at,
        # Before there is a pace, the owner's estimate.
        total_s=experiment.estimated_duration_s if step_s is None or total is None else total * step_s,
        saved=_part(saved, total),
        done=_part(done, total),
        unsaved_s=0.0 if step_s is None else max(0.0, done - saved) * step_s,
    )


def _total_steps(experiment: Experiment, trial: Trial) -> float | None:
    """The length in steps: the one that the search requests, otherwise the one that follows from the trial's own progress."""
    if (batches := experiment.max_batches) is not None:
        return float(batches)
    return trial.steps_completed / trial.progress if trial.progress > 0 and trial.steps_completed else None


def _part(steps: float, total: float | None) -> float:
    """The fraction of the length that these steps are; 0 if the length in steps is unknown."""
    if total is None:
        return 0.0
    return min(1.0, steps / total) if total else 1.0


def _done(trial: Trial, now: datetime) -> float:
    """Estimated steps by now: the reported ones, and those at its pace since then, until its usual next report."""
    pace = trial.pace
    if trial.reported_run != trial.run_id and trial.latest_checkpoint is not None:
        return float(trial.latest_checkpoint.steps_completed)  # what older runs did past that is not there any more
    if pace is None or not pace.step_s or pace.run_id != trial.run_id:
        return float(trial.steps_completed)
    silent_s = max(0.0, (now - pace.at).total_seconds())
    return trial.steps_completed + min(silent_s, pace.interval_s) / pace.step_s
