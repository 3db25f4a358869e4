"""Policy and capacity limits for one kind of work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from resolute_master.domain.account import NO_LIMITS, Limits
from resolute_master.domain.ids import PoolName
from resolute_provisioner.model import PoolScaling


class SchedulerKind(StrEnum):
    FAIR_SHARE = "fair_share"
    PRIORITY = "priority"


class Fitting(StrEnum):
    """`best` packs agents full, `worst` spreads over the emptiest."""

    BEST = "best"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPolicy:
    """Settings of a pool, a value of the configuration that is fixed while the master runs."""

    name: PoolName
    scheduler: SchedulerKind = SchedulerKind.PRIORITY
    preemption: bool = False
    """Whether the priority scheduler preempts; fair share always does."""
    hierarchical_shares: bool = False
    """Fair share divides among workspaces, then their users, then their jobs; else among jobs."""
    usage_half_life_s: float | None = None
    """With hierarchical shares: the age at which past usage counts half; None counts present usage only."""
    min_runtime_s: float = 0.0
    """Minimum run time before a preemption."""
    preemption_grace_s: float = 0.0
    """Time that an allocation waits before it preempts others."""
    default_priority: int = 42
    fitting: Fitting = Fitting.BEST
    heterogeneous_fits: bool = False
    max_aux_containers_per_agent: int = 100
    agent_reconnect_wait_s: float = 25.0
    description: str = ""
    launch_error: bool = True
    """Whether a request that the pool can never hold is refused or fails; otherwise it waits with a warning."""
    budget: Limits = NO_LIMITS
    """Limits on the cost of its machines per day and per month."""
    scaling: PoolScaling | None = None
    """Set when the pool is elastic."""
