"""What was spent, and what may be: served beyond the contract.

    GET  /api/v1/cost?groupBy=&since=&until=&format=        GetCostResponse, or CSV
    GET  /api/v1/experiments/{experimentId}/cost            GetExperimentCostResponse
    GET  /api/v1/budgets                                    GetBudgetsResponse
    PUT  /api/v1/workspaces/{id}/budget                     Budget -> BudgetState
    PUT  /api/v1/resource-pools/{poolName}/budget           Budget -> BudgetState
    PUT  /api/v1/experiments/{experimentId}/max_cost        MaxCost -> GetExperimentCostResponse

Money is in the currency of the pools' prices. `LedgerRow` is that of the ledger (`extensions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute.wire.rest.extensions import LedgerRow


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCostQuery:
    """`since` and `until` are a time (RFC 3339), a date, or how long ago (`7d`, `36h`); empty is no limit.

    `group_by` is one of pool, instance, user, workspace, experiment, job, day (of UTC); `format` is json or csv.
    """

    group_by: str = "pool"
    since: str = ""
    until: str = ""
    format: str = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """`key` is the id of the subject, and empty for time without one: boots, and machines without a task."""

    key: str
    name: str
    row: LedgerRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotSaving:
    """What machines on spot have cost, and what the same types would have cost on demand for the same time. `not_compared_s`
    are seconds of machines on spot of which one of the two prices is not known; neither cost has them in it."""

    spot_cost: float = 0.0
    on_demand_cost: float = 0.0
    not_compared_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetCostResponse:
    """Rows by key; they sum to `totals`, whatever they are grouped by. `price_sources` are the sources of the pools' prices;
    `spot` compares with on demand, and is null if no machine was on spot."""

    group_by: str
    until: datetime
    since: datetime | None = None
    rows: tuple[CostRow, ...] = ()
    totals: LedgerRow
    price_sources: tuple[str, ...] = ()
    spot: SpotSaving | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetExperimentCostResponse:
    """What an experiment has cost, and its limit. `wind_down_reason` is the reason why the limit stopped it, if it did."""

    experiment_id: int
    totals: LedgerRow
    trials: tuple[CostRow, ...] = ()
    max_cost: float | None = None
    wind_down_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxCost:
    """The most that an experiment may cost; null is no limit."""

    max_cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that may be spent in a day and in a month of UTC; null is no limit."""

    per_day: float | None = None
    per_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A budget and its spending. While it is exhausted, `wind_down_reason` is the reason, and work resumes at `resumes_at`."""

    owner: str
    """pool or workspace."""
    name: str
    budget: Budget
    spent_today: float = 0.0
    spent_this_month: float = 0.0
    rate_per_hour: float = 0.0
    wind_down_reason: str = ""
    resumes_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBudgetsResponse:
    """The budgets and spending of every pool and workspace that has spent something or has a budget."""

    budgets: tuple[BudgetState, ...] = ()
