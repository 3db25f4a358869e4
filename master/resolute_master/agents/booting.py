"""The endpoints for booting machines: the agent's wheel, and the report of a failed boot.

The wheel is public: it is the open source of the agent, and machines check it against the hash in their user data. A report is
authenticated by the machine's join token alone, which is valid only for joining and for this report.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from resolute.errors import PermissionDenied
from resolute_master.agents.hub import AgentHub
from resolute_master.agents.wheel import WheelCache

TOKEN_HEADER = "X-Resolute-Join-Token"
REPORT_BYTES = 16 * 1024
"""A report is a few lines; more of it is not read."""

REPORT_S = 10.0
"""Maximum time to wait for the end of a report."""


def add_boot_routes(app: web.Application, hub: AgentHub, wheel_cache: WheelCache) -> None:

    async def fetch(request: web.Request) -> web.Response:
        wheel = await asyncio.to_thread(wheel_cache.wheel)
        if request.match_info["name"] != wheel.name:
            raise web.HTTPNotFound(text=f"this master has {wheel.name}\n")
        return web.Response(body=wheel.data, content_type="application/zip")

    async def failed(request: web.Request) -> web.Response:
        said = (await _beginning(request)).decode(errors="replace")
        token = request.headers.get(TOKEN_HEADER, "")
        try:
            await hub.boot_failed(request.match_info["instance"], token, request.query.get("stage", ""), said)
        except PermissionDenied as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None
        return web.Response(status=204)

    app.router.add_get("/agents/wheels/{name}", fetch)
    app.router.add_post("/agents/boot/{instance}", failed)


async def _beginning(request: web.Request) -> bytes:
    """The first `REPORT_BYTES` of the body, or all of a shorter one. Raises `HTTPRequestTimeout` if they do not arrive within
    `REPORT_S`."""
    try:
        async with asyncio.timeout(REPORT_S):
            return await request.content.readexactly(REPORT_BYTES)
    except asyncio.IncompleteReadError as all_of_it:
        return all_of_it.partial
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the report did not arrive within {REPORT_S:g} s\n") from None
