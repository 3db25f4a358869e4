"""Converts the scheduler block of a configuration to the policy of a pool."""

from __future__ import annotations

from resolute.config.pools import Scheduler
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import Fitting, PoolPolicy, SchedulerKind


def policy_of(pool: str, scheduler: Scheduler, *, max_aux_containers_per_agent: int) -> PoolPolicy:
    """The policy of a pool that neither grows nor has a budget; times are in seconds."""
    return PoolPolicy(
        name=PoolName(pool),
        scheduler=SchedulerKind(scheduler.type),
        preemption=scheduler.preemption,
        hierarchical_shares=scheduler.hierarchical_shares,
        usage_half_life_s=scheduler.usage_half_life,
        min_runtime_s=scheduler.min_runtime,
        preemption_grace_s=scheduler.preemption_grace,
        default_priority=scheduler.default_priority,
        fitting=Fitting(scheduler.fitting_policy),
        heterogeneous_fits=scheduler.allow_heterogeneous_fits,
        max_aux_containers_per_agent=max_aux_containers_per_agent,
    )
