"""The cluster: pools, agents with their slots, and machines of elastic pools with what each costs."""

from __future__ import annotations

from datetime import timedelta

from aiohttp import web

from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_master.domain.agent import Agent
from resolute_web import agents
from resolute_web.machines import machine_row
from resolute_web.page import Page, page
from resolute_web.pools import summaries

LOOKED_BACK = timedelta(days=1)
"""Machines that ended in this time are shown too."""

MOST_MACHINES = 200


async def cluster(call: Call, _: None) -> web.Response:
    api = call.api
    now = api.clock.now()
    found = await api.store.instances(since=now - LOOKED_BACK)
    newest = sorted(found, key=lambda each: (each.over, -each.requested_at.timestamp(), each.id))
    return await page(
        call,
        "cluster.html",
        title="Cluster",
        section="Cluster",
        topics=("cluster", "queue"),
        pools=await summaries(api),
        agents=await agents.rows_of(call, api.engine.state.all(Agent)),
        machines=[machine_row(each, now) for each in newest[:MOST_MACHINES]],
        more=max(0, len(newest) - MOST_MACHINES),
    )


PAGES = (Page("GET", "/det/clusters", Action.VIEW, nothing, cluster),)
