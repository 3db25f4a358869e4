"""Timeouts: the time of each deadline, and its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from resolute.wire.states import ExperimentState
from resolute_master.domain.account import Account
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Entity
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.domain.usage import Usage, interval
from resolute_master.domain.user import Session
from resolute_master.lifecycle import agents, allocations, budget, spending, trials, unmanaged, usage
from resolute_master.lifecycle.allocation_fsm import KILL_AGAIN_S, kill_again
from resolute_master.lifecycle.step import Step

LEASE_MARGIN_S = 5.0
"""Time that the master waits beyond the tasks' own lease, so that a task has ended itself before its successor starts."""

Pools = Mapping[PoolName, PoolPolicy]


def deadline(entity: Entity, pools: Pools) -> datetime | None:
    """Time of the next deadline of the entity, None without one."""
    due = _DUE.get(type(entity))
    return None if due is None else due(entity, pools)


def _of_agent(agent: Agent, pools: Pools) -> datetime | None:
    if agent.disconnected_at is None:
        return None
    # The configuration may have lost the agent's pool since it joined.
    policy = pools.get(agent.pool) or PoolPolicy(name=agent.pool)
    return agent.disconnected_at + timedelta(seconds=policy.agent_reconnect_wait_s + LEASE_MARGIN_S)


def _of_allocation(allocation: Allocation, pools: Pools) -> datetime | None:
    if allocation.ended:
        return None
    if allocation.killed_at is not None:
        return allocation.killed_at + timedelta(seconds=KILL_AGAIN_S)
    if allocation.preempt is not None:
        # The deadline of a notice concerns the machine; if the machine continues after it, the task's preemption timeout applies.
        return allocation.preempt.requested_at + timedelta(seconds=allocation.preemption_timeout_s)
    return None


def _of_trial(trial: Trial, pools: Pools) -> datetime | None:
    if trial.kill_at is not None:
        return trial.kill_at
    if trial.last_report_at is not None and trial.state is ExperimentState.ACTIVE:
        return trial.last_report_at + unmanaged.SILENCE
    return None


def _of_usage(usage: Usage, pools: Pools) -> datetime | None:
    half_life_s = _half_life_s(pools, usage.pool)
    return None if half_life_s is None else usage.measured_at + interval(half_life_s)


_DUE: Mapping[type[Entity], Callable[[Any, Pools], datetime | None]] = {
    Agent: _of_agent,
    Allocation: _of_allocation,
    Trial: _of_trial,
    Session: lambda session, pools: session.expires_at,
    Usage: _of_usage,
    Account: lambda account, pools: budget.due(account),
}


def _half_life_s(pools: Pools, pool: PoolName) -> float | None:
    """The half-life of usage in a pool; None for a pool without one, or that the configuration no longer has."""
    policy = pools.get(pool)
    return None if policy is None else policy.usage_half_life_s


def expire(step: Step, entity: Entity) -> None:
    """Applies the consequences of a deadline that has passed."""
    match entity:
        case Agent():
            wait = (step.now - entity.disconnected_at).total_seconds() if entity.disconnected_at else 0.0
            agents.lose(step, entity.id, f"agent {entity.id} has been out of contact for {wait:.0f} s")
        case Allocation(killed_at=datetime()):
            again, effects = kill_again(entity, step.now)
            step.put(again)
            step.emit(effects)
        case Allocation():
            allocations.kill(step, entity.id, "it did not save and end before its preemption timeout")
        case Trial(last_report_at=datetime()):
            unmanaged.fall_silent(step, entity)
        case Trial():
            step.put(replace(entity, kill_at=None))
            trials.set_state(step, step.need(Trial, entity.id), ExperimentState.STOPPING_KILLED)
        case Session():
            step.delete(entity)
        case Usage():
            usage.measure(step, entity.pool)  # all of the pool: the others are due later again
        case Account():
            spending.fall_due(step, entity)
        case _:
            pass
