"""What was spent, by whom and on what, and what may still be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from resolute.wire.rest.costs import BudgetState, CostRow, GetCostQuery
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_master.api.resources.budgets import list_budgets
from resolute_master.api.resources.cost import GROUPINGS, cost_of, get_cost
from resolute_master.domain.copies import replace
from resolute_master.lifecycle.cost import Grouping
from resolute_web.days import bars_of
from resolute_web.page import Page, fragment, page

MOST_ROWS = 200

PERIODS = (("", "all the time"), ("1d", "the last day"), ("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A limit and what was spent of it; `left` is 0 where it is used up."""

    limit: float
    spent: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """None: there is no limit."""

    state: BudgetState
    day: Left | None
    month: Left | None


async def money(call: Call, _: None) -> web.StreamResponse:
    """With the parameters of the API's call, whose CSV it serves too."""
    answer = await get_cost(call, None)
    if isinstance(answer, web.StreamResponse):
        return answer
    asked = call.query(GetCostQuery)
    rows = _ordered(answer.rows, asked.group_by)
    return await page(
        call,
        "money.html",
        title="Money",
        section="Money",
        cost=answer,
        rows=rows[:MOST_ROWS],
        more=max(0, len(rows) - MOST_ROWS),
        groupings=GROUPINGS,
        periods=PERIODS,
        asked=asked,
        budgets=[_budget(each) for each in (await list_budgets(call, None)).budgets],
    )


def _ordered(rows: Sequence[CostRow], group_by: str) -> list[CostRow]:
    """The most expensive first; of days the last."""
    if group_by == Grouping.DAY:
        return sorted(rows, key=lambda each: each.key, reverse=True)
    return sorted(rows, key=lambda each: (-(each.row.cost or 0.0), -each.row.paid_s, each.key))


def _budget(state: BudgetState) -> Budget:
    day, month = state.budget.per_day, state.budget.per_month
    return Budget(
        state=state,
        day=None if day is None else Left(limit=day, spent=state.spent_today),
        month=None if month is None else Left(limit=month, spent=state.spent_this_month),
    )


async def days(call: Call, _: None) -> web.Response:
    """The bars of the page, which asks for them when it is there: the same cost a second time, by day."""
    asked = replace(call.query(GetCostQuery), group_by=Grouping.DAY.value)
    answer = await cost_of(call.api, asked)
    return await fragment("money_days.html", days=bars_of(answer.rows))


PAGES = (
    Page("GET", "/det/money", Action.VIEW, nothing, money),
    Page("GET", "/det/money/days", Action.VIEW, nothing, days),
)
