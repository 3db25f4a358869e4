"""Everything that the web interface serves, in one table."""

from __future__ import annotations

import asyncio

from aiohttp import web

from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, nothing
from resolute_web import assets
from resolute_web.live import Live
from resolute_web.page import Page, error_page, see
from resolute_web.views import (
    administration,
    bulk,
    checkpoints,
    cluster,
    code,
    compare,
    experiment,
    experiments,
    home,
    log,
    login,
    master_log,
    money,
    notes,
    places,
    pool,
    pool_advice,
    queue,
    rest_api,
    submit,
    trial,
)

FOREVER = "public, max-age=31536000, immutable"


class Interface:
    """The pages of one master. `routes` are added to those of the API; `close` ends the streams that tabs listen to."""

    def __init__(self, api: ApiContext) -> None:
        self._live = Live(api)
        self._checkpoints = checkpoints.Checkpoints()

    def close(self) -> None:
        self._live.close()

    @property
    def routes(self) -> tuple[Route, ...]:
        return (
            Page("GET", "/", Action.PUBLIC, nothing, _redirect_home),
            Page("GET", assets.PREFIX + "{name}", Action.PUBLIC, nothing, _asset),
            Page("GET", "/det/events", Action.VIEW, nothing, self._live.stream),
            *login.PAGES,
            *home.PAGES,
            *experiments.PAGES,
            *submit.PAGES,
            *bulk.PAGES,
            *experiment.PAGES,
            *notes.PAGES,
            *code.PAGES,
            *compare.PAGES,
            *trial.pages(),
            *log.PAGES,
            *self._checkpoints.pages,
            *queue.PAGES,
            *cluster.PAGES,
            *pool.PAGES,
            *pool_advice.PAGES,
            *money.PAGES,
            *rest_api.PAGES,
            *administration.PAGES,
            *places.PAGES,
            *master_log.PAGES,
            Page("GET", "/det/{rest:.+}", Action.PUBLIC, nothing, _nowhere),
        )


async def _redirect_home(call: Call, _: None) -> web.StreamResponse:
    """Redirects a browser to the interface. A request that does not accept HTML gets 404."""
    if "text/html" not in call.request.headers.get("Accept", ""):
        raise web.HTTPNotFound
    return see("/det/")


async def _asset(call: Call, _: None) -> web.Response:
    # In a thread: the first one packs them all.
    found = (await asyncio.to_thread(assets.served)).get(call.text("name"))
    if found is None:
        raise web.HTTPNotFound
    headers = {"Cache-Control": FOREVER, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
    body = found.content
    if found.packed is not None and "gzip" in call.request.headers.get("Accept-Encoding", ""):
        body, headers["Content-Encoding"] = found.packed, "gzip"
    return web.Response(body=body, headers={**headers, "Content-Type": found.type})


async def _nowhere(call: Call, _: None) -> web.Response:
    """A program gets the answer of the API to a path that it does not have."""
    if "text/html" not in call.request.headers.get("Accept", ""):
        raise web.HTTPNotFound
    text = f"There is no page {call.request.path[:200]}; use the navigation."
    return await error_page(call.request, call.api, 404, text)
