"""What other settings of a pool would save, by its own history."""

from __future__ import annotations

from aiohttp import web

from resolute.wire.rest.advice import conclusion, remarks
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.domain.pool import PoolPolicy
from resolute_web.page import Page, page
from resolute_web.views.pool import find_pool

MAX_WAIT_S = 1.0
"""A page is shown then, and is loaded again until the advice is there."""
RELOADED_S = 5


async def advice(call: Call, policy: PoolPolicy) -> web.Response:
    api = call.api
    found = await api.advices.of_pool(api.engine, api.store, policy, api.clock, max_wait_s=MAX_WAIT_S)
    return await page(
        call,
        "pool_advice.html",
        title=f"Advice on pool {policy.name}",
        section="Cluster",
        found=found,
        conclusion="" if found.advice is None else conclusion(found.advice),
        remarks=list(remarks(found)),
        policy=policy,
        reloaded_s=RELOADED_S if found.computing and found.advice is None else 0,
    )


PAGES = (Page("GET", "/det/resourcepool/{poolName}/advice", Action.VIEW, find_pool, advice),)
