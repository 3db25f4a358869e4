"""The path that a request for a page takes: as for a call of the API, with answers for people.

A browser without a session is redirected to the login and back. A refusal is explained on a page. Forms carry the token of the
session, which the route checks as it does for every change by a cookie; a form of another site is refused by the header that
browsers add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import web

from resolute.errors import PermissionDenied, ResoluteError, Unauthenticated
from resolute_master.api.auth.authenticate import authenticate
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.errors import INTERNAL, status_of, unexpected
from resolute_master.api.http.serving import SERVING
from resolute_web.frame import frame_of
from resolute_web.rendering import render

LOGIN = "/det/login"

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every page. Nothing on a page can run a script or load anything from elsewhere, whatever its names and logs
contain."""


@dataclass(frozen=True, slots=True)
class Page(Route):
    """A route for people. `handle` returns a response; what it raises becomes a page."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await Route.serve(self, request)
        except (web.HTTPException, ConnectionResetError):
            raise
        except Unauthenticated:
            return to_login(request)
        except Exception as error:
            return await _explained(request, error)

    async def _answer(self, call: Call) -> web.StreamResponse:
        if self.method == "POST":
            _check_origin(call.request)
        return await Route._answer(self, call)


# ------------------------------------------------------------------------------------------------------------ answers


async def page(
    call: Call,
    template: str,
    *,
    title: str,
    section: str = "",
    topics: tuple[str, ...] = (),
    status: int = 200,
    **values: Any,
) -> web.Response:
    """A whole page. `topics` are the topics of its signals while it is open (`live`)."""
    frame = frame_of(call, title=title, section=section, topics=topics)
    return html(await render(template, {"frame": frame, **values}), status=status)


async def fragment(template: str, **values: Any) -> web.Response:
    """A part of a page."""
    return html(await render(template, values))


def html(text: str, *, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=HEADERS)


def data(body: bytes, content_type: str = "application/json") -> web.Response:
    """What a script of a page reads."""
    return web.Response(body=body, content_type=content_type, headers=HEADERS)


def see(path: str) -> web.Response:
    """After a form: the page that shows what came of it."""
    return web.Response(status=303, headers={**HEADERS, "Location": path})


def to_login(request: web.Request) -> web.Response:
    """Only pages are come back to: a form that was sent is gone."""
    if "text/html" not in request.headers.get("Accept", "") and request.method == "GET":
        return web.Response(status=401, text="log in first", headers=HEADERS)
    back = f"?next={quote(request.path_qs, safe='')}" if request.method == "GET" else ""
    return see(f"{LOGIN}{back}")


async def _explained(request: web.Request, error: Exception) -> web.Response:
    status = status_of(error) if isinstance(error, ResoluteError) else INTERNAL
    text = str(error) if isinstance(error, ResoluteError) else unexpected(request, error)
    api = request.app[SERVING].context
    return await error_page(request, api, status.http, text)


_TITLES = {
    403: "Not allowed",
    404: "Not found",
    429: "Too much at once",
    500: "Internal error",
    503: "Not now",
}


async def error_page(request: web.Request, api: ApiContext, status: int, text: str) -> web.Response:
    """For whoever asked, logged in or not."""
    try:
        caller = authenticate(request, api.tokens)
    except ResoluteError:
        caller = None
    frame = frame_of(Call(api, request, caller), title=_TITLES.get(status, "Refused"), section="", topics=())
    return html(await render("error.html", {"frame": frame, "text": text, "status": status}), status=status)


# -------------------------------------------------------------------------------------------------------------- forms


def _check_origin(request: web.Request) -> None:
    """Raises `PermissionDenied` for a form that another site has made a browser send; a login has no session's token yet."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise PermissionDenied("another site sent this form; open the page here and send the form again")
