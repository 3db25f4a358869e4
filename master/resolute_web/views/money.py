"""What was spent, by whom and on what, and what may still be."""

from __future__ import annotations

from aiohttp import web

from resolute.wire.rest.costs import GetCostQuery
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_master.api.resources.budgets import list_budgets
from resolute_master.api.resources.cost import GROUPINGS, get_cost
from resolute_web.page import Page, page

MOST_ROWS = 200

PERIODS = (("", "all the time"), ("1d", "the last day"), ("7d", "7 days"), ("30d", "30 days"))


async def money(call: Call, _: None) -> web.StreamResponse:
    """With the parameters of the API's call, whose CSV it serves too."""
    answer = await get_cost(call, None)
    if isinstance(answer, web.StreamResponse):
        return answer
    rows = sorted(answer.rows, key=lambda each: (-(each.row.cost or 0.0), -each.row.paid_s, each.key))
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
        asked=call.query(GetCostQuery),
        budgets=(await list_budgets(call, None)).budgets,
    )


PAGES = (Page("GET", "/det/money", Action.VIEW, nothing, money),)
