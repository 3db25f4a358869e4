"""Lets pages of other sites use the API, where the configuration allows it (`enable_cors`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
PREFLIGHT_S = 3600


@web.middleware
async def answer_preflight(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answers the request that a browser sends before a request of another site's page."""
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return await handler(request)
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": request.headers.get("Access-Control-Request-Headers", "Authorization"),
        "Access-Control-Max-Age": str(PREFLIGHT_S),
    }
    return web.Response(headers=headers)


async def allow_everyone(request: web.Request, response: web.StreamResponse) -> None:
    """Bearer tokens work from anywhere; a browser never sends another site's cookies with a `*`."""
    response.headers["Access-Control-Allow-Origin"] = "*"
