"""Administration: users, templates, the master's configuration, and its health. Workspaces are in `views.places`."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from aiohttp import web

from resolute.config import load_yaml
from resolute.config.yaml_text import dump_yaml
from resolute.errors import ResoluteError
from resolute.wire.rest.auth import User as WireUser
from resolute.wire.rest.templates import Template as WireTemplate
from resolute.wire.rest.users import PatchUser, PostUserRequest
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Finder, Handler, allow, nothing
from resolute_master.api.http.errors import status_of
from resolute_master.api.reading.finders import user_at
from resolute_master.api.resources import master as api_master
from resolute_master.api.resources import templates as api_templates
from resolute_master.api.resources import users as api_users
from resolute_master.api.resources.health import store_health
from resolute_master.domain.agent import Agent
from resolute_master.domain.template import Template
from resolute_master.domain.user import User
from resolute_web.actions import refusal_of
from resolute_web.forms import Form, asking, read_form
from resolute_web.page import Page, page, see

ADMIN = "/det/admin"

TABS: Mapping[str, str] = {
    "users": "Users",
    "workspaces": "Workspaces",
    "templates": "Templates",
    "configuration": "Configuration",
    "health": "Health",
    "logs": "Master log",
}


@dataclass(frozen=True, slots=True)
class Refused:
    """What the API said to a form, in its words, and with which status."""

    text: str = ""
    status: int = 200


NOT_REFUSED = Refused()


async def tabbed(call: Call, tab: str, template: str, *, refused: Refused = NOT_REFUSED, **values: Any) -> web.Response:
    """A tab, with what was refused of the form before."""
    return await page(
        call,
        template,
        title=TABS[tab],
        section="Administration",
        tab=tab,
        tabs=TABS,
        error=refused.text,
        status=refused.status,
        **values,
    )


async def sent(call: Call, message: object, handler: Handler, target: object = None) -> Refused:
    try:
        await handler(asking(call, message), target)
    except ResoluteError as error:
        return Refused(str(error), status_of(error).http)
    return NOT_REFUSED


# -------------------------------------------------------------------------------------------------------------- users


async def users(call: Call, _: None) -> web.Response:
    return await _users(call)


async def _users(call: Call, refused: Refused = NOT_REFUSED, name: str = "") -> web.Response:
    return await tabbed(
        call,
        "users",
        "admin_users.html",
        users=sorted(call.api.engine.state.all(User), key=lambda user: user.username.lower()),
        refusal=await refusal_of(call, Action.CREATE_USER),
        granting=await refusal_of(call, Action.GRANT),
        me=call.caller.user.id,
        refused=refused,
        name=name,
    )


async def create_user(call: Call, _: None) -> web.Response:
    form = await read_form(call)
    user = WireUser(username=form.text("username").strip(), admin=form.text("admin") == "yes", active=True)
    request = PostUserRequest(user=user, password=form.text("password"))
    refused = await sent(call, request, api_users.create_user)
    return await _users(call, refused, user.username) if refused.text else see(f"{ADMIN}/users")


async def change_user(call: Call, user: User) -> web.Response:
    """One thing at a time: whether the user may log in, or administers, or a new password."""
    form = await read_form(call)
    request = PatchUser(
        active=_yes_or_no(form, "active"),
        admin=_yes_or_no(form, "admin"),
        password=form.text("password") or None,
        is_hashed=False if form.text("password") else None,
    )
    refused = await sent(call, request, api_users.patch_user, user)
    return await _users(call, refused) if refused.text else see(f"{ADMIN}/users")


def _yes_or_no(form: Form, name: str) -> bool | None:
    return {"yes": True, "no": False}.get(form.text(name))


# ---------------------------------------------------------------------------------------------------------- templates


async def templates(call: Call, _: None) -> web.Response:
    return await _templates(call)


async def _templates(call: Call, refused: Refused = NOT_REFUSED, name: str = "", text: str = "") -> web.Response:
    found = sorted(call.api.engine.state.all(Template), key=lambda each: each.id)
    wanted = name or call.request.query.get("name", "")
    chosen = next((each for each in found if each.id == wanted), None)
    return await tabbed(
        call,
        "templates",
        "admin_templates.html",
        templates=found,
        chosen=chosen,
        name=wanted,
        text=text or (await _text_of(call, chosen) if chosen is not None else ""),
        refusal=await (
            refusal_of(call, Action.CREATE_TEMPLATE)
            if chosen is None
            else refusal_of(call, Action.CONTROL_TEMPLATES, chosen)
        ),
        refused=refused,
    )


async def _text_of(call: Call, template: Template) -> str:
    answer = await api_templates.get_template(call, template)
    return dump_yaml(dict(answer.template.config))


async def put_template(call: Call, _: None) -> web.Response:
    """A new one, or another configuration of one that is there; by the calls of the API, as who may."""
    form = await read_form(call)
    name, text = form.text("name").strip(), form.text("config").replace("\r\n", "\n")
    state = call.api.engine.state
    try:
        config = load_yaml(text, what="the template")
        before = state.get(Template, name)
        if before is None:
            await _created(call, name, config)
        else:
            await allow(call, Action.CONTROL_TEMPLATES, before)
            await api_templates.change(asking(call, config), before)
    except ResoluteError as error:
        return await _templates(call, Refused(str(error), status_of(error).http), name, text)
    return see(f"{ADMIN}/templates")


async def _created(call: Call, name: str, config: Mapping[str, Any]) -> None:
    asked = asking(call, WireTemplate(name=name, config=config, workspace_id=0))
    await api_templates.create_named(asked, name)


async def delete_template(call: Call, template: Template) -> web.Response:
    await api_templates.delete(call, template)
    return see(f"{ADMIN}/templates")


def _template_at(part: str) -> Finder:
    async def find(call: Call) -> Template:
        return api_templates.find_template(call.api, call.text(part))

    return find


# ------------------------------------------------------------------------------------------- configuration and health


async def configuration(call: Call, _: None) -> web.Response:
    refusal = await refusal_of(call, Action.VIEW_MASTER_CONFIG)
    shown = {} if refusal else (await api_master.config(call, None)).config
    text = yaml.safe_dump(shown, sort_keys=True, allow_unicode=True) if shown else ""
    return await tabbed(call, "configuration", "admin_configuration.html", text=text, refusal=refusal)


async def health(call: Call, _: None) -> web.Response:
    api = call.api
    agents = api.engine.state.all(Agent)
    stopped = api.engine.stopped
    return await tabbed(
        call,
        "health",
        "admin_health.html",
        store=await store_health(api.store),
        engine="" if stopped is None else str(stopped),
        versions=sorted(Counter(each.version for each in agents).items()),
        away=[each for each in agents if not each.connected],
        watches=[(watch.pool, watch.status) for watch in api.price_watches],
        info=await api_master.master(call, None),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.release()}",
    )


_user = user_at("userId")

PAGES = (
    Page("GET", ADMIN, Action.VIEW, nothing, users),
    Page("GET", f"{ADMIN}/users", Action.VIEW, nothing, users),
    Page("POST", f"{ADMIN}/users", Action.CREATE_USER, nothing, create_user),
    Page("POST", f"{ADMIN}/users/{{userId}}", Action.EDIT_USER, _user, change_user),
    Page("GET", f"{ADMIN}/templates", Action.VIEW, nothing, templates),
    Page("POST", f"{ADMIN}/templates", Action.CREATE_TEMPLATE, nothing, put_template),
    Page(
        "POST",
        f"{ADMIN}/templates/{{templateName}}/delete",
        Action.CONTROL_TEMPLATES,
        _template_at("templateName"),
        delete_template,
    ),
    Page("GET", f"{ADMIN}/configuration", Action.VIEW, nothing, configuration),
    Page("GET", f"{ADMIN}/health", Action.VIEW, nothing, health),
)
