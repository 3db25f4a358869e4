"""The REST API, described for people: each call with its parameters, its messages and a form that makes it."""

from __future__ import annotations

from aiohttp import web

from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_web import assets
from resolute_web.page import Page, fragment, see


async def rest_api(call: Call, _: None) -> web.Response:
    """For every user, as all documentation: the calls themselves authorise."""
    return await fragment("rest_api.html", description=assets.url("openapi.json"))


async def description(call: Call, _: None) -> web.Response:
    """At an address that stays, for programs."""
    return see(assets.url("openapi.json"))


PAGES = (
    Page("GET", "/docs/rest-api", Action.PUBLIC, nothing, rest_api),
    Page("GET", "/docs/rest-api/openapi.json", Action.PUBLIC, nothing, description),
)
