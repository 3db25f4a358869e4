"""Login, logout, and the choice of colours."""

from __future__ import annotations

from ipaddress import ip_address

from aiohttp import web

from resolute.errors import InvalidInput, LimitExceeded, PermissionDenied, Unauthenticated
from resolute.wire.rest.auth import LoginRequest
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing
from resolute_master.api.resources import login as api_login
from resolute_web.forms import asking, read_form
from resolute_web.frame import THEME_COOKIE, THEMES
from resolute_web.page import LOGIN, Page, page, see

HOME = "/det/"
YEAR_S = 365 * 24 * 3600


def inside(path: str) -> str:
    """Where a login or a button leads back to: only to our own pages, whatever an address says."""
    plain = path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/det/") and not path.startswith("/det/log") else HOME


async def show(call: Call, _: None) -> web.Response:
    return await _form(call, next_=inside(call.request.query.get("next", "")))


async def _form(call: Call, *, next_: str, error: str = "", name: str = "", status: int = 200) -> web.Response:
    return await page(
        call, "login.html", title="Log in", next=next_, error=error, name=name, readable=_readable(call), status=status
    )


def _readable(call: Call) -> bool:
    """Whether what is sent can be read on a network: nothing encrypts it, and it leaves the machine."""
    if call.api.addresses.secure(call.request):
        return False
    host = (call.request.url.host or "").strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


async def enter(call: Call, _: None) -> web.Response:
    """By the API's own login, with its limits on attempts."""
    form = await read_form(call)
    name, next_ = form.text("username").strip(), inside(form.text("next"))
    request = LoginRequest(username=name, password=form.text("password"))
    try:
        answer = await api_login.login(asking(call, request), None)
    except Unauthenticated:
        return await _form(call, next_=next_, name=name, status=401, error="The name or the password is not right.")
    except (InvalidInput, PermissionDenied) as error:
        return await _form(call, next_=next_, name=name, status=400, error=f"{error}.")
    except LimitExceeded as error:
        return await _form(call, next_=next_, name=name, status=429, error=f"{error}.")
    response = see(next_)
    response.cookies.update(answer.cookies)
    return response


async def leave(call: Call, _: None) -> web.Response:
    answer = await api_login.logout(call, None)
    response = see(LOGIN)
    response.cookies.update(answer.cookies)
    return response


async def choose_theme(call: Call, _: None) -> web.Response:
    """Light, dark, or as the machine is set; kept by the browser alone."""
    form = await read_form(call)
    response, wanted = see(inside(form.text("back"))), form.text("theme")
    if wanted in THEMES:
        response.set_cookie(THEME_COOKIE, wanted, path="/det", max_age=YEAR_S, httponly=True, samesite="Lax")
    else:
        response.del_cookie(THEME_COOKIE, path="/det")
    return response


PAGES = (
    Page("GET", LOGIN, Action.PUBLIC, nothing, show),
    Page("POST", LOGIN, Action.PUBLIC, nothing, enter),
    Page("POST", "/det/logout", Action.LOG_OUT, nothing, leave),
    Page("POST", "/det/theme", Action.VIEW, nothing, choose_theme),
)
