"""Requests while the database is unavailable: those of tasks wait for it, changes by other callers are refused.

The released harness repeats a refused request 20 times after the pause that the answer requests. That is a minute, and then the
trial fails. So requests of tasks are held for as long as the database is unavailable. Other callers get an immediate error, and
nothing is stored. Requests that the committed state can answer are answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from resolute.errors import PermissionDenied, Unauthenticated, Unavailable
from resolute_master.api.auth.authenticate import authenticate
from resolute_master.api.context import ApiContext

AWAY_S = 5.0
"""A database server restarts in less: changes that arrive meanwhile wait for it."""

LOOK_S = 0.5

READS = frozenset({"GET", "HEAD", "OPTIONS"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def answered(request: web.Request, handler: Handler, api: ApiContext) -> web.StreamResponse:
    """The answer of the handler. Raises `Unavailable` for a change of which nothing has been done."""
    reads = request.method in READS
    if not reads and api.store.away_s() >= AWAY_S and not _is_of_a_task(request, api):
        raise Unavailable(
            f"the database has not answered for {api.store.away_s():.0f} s; nothing was stored: repeat the request in a "
            "few seconds"
        )
    while True:
        try:
            return await handler(request)
        except Unavailable:
            if not reads or api.store.away_s() == 0 or not _is_of_a_task(request, api):
                raise
        while api.store.away_s() > 0:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)  # the store does not report when it is available again


def _is_of_a_task(request: web.Request, api: ApiContext) -> bool:
    try:
        return authenticate(request, api.tokens).allocation is not None
    except (Unauthenticated, PermissionDenied):
        return False
