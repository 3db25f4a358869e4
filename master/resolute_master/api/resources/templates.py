"""Templates: named parts of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute.config import mask_experiment, parse_template
from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import OrderBy
from resolute.wire.rest.templates import (
    GetTemplateResponse,
    GetTemplatesQuery,
    GetTemplatesResponse,
    PatchTemplateConfigResponse,
    PatchTemplateNameRequest,
    PatchTemplateNameResponse,
    PostTemplateResponse,
    PutTemplateResponse,
)
from resolute.wire.rest.templates import Template as WireTemplate
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Also, Call, Finder, Route, allow, nothing
from resolute_master.api.http.paging import page_of
from resolute_master.domain.administration import DeleteTemplate, PutTemplate, RenameTemplate
from resolute_master.domain.template import Template
from resolute_master.domain.workspace import UNCATEGORIZED_ID
from resolute_master.lifecycle import workspaces

MAX_NAME = 256


def find_template(api: ApiContext, name: str) -> Template:
    found = api.engine.state.get(Template, name)
    if found is None:
        raise NotFound("template", name)
    return found


def _at(part: str) -> Finder:
    async def find(call: Call) -> Template:
        return find_template(call.api, call.text(part))

    return find


def _show(api: ApiContext, value: Template) -> WireTemplate:
    config = mask_experiment(value.config, api.config.security.secrets.names)
    return WireTemplate(name=value.id, config=config, workspace_id=value.workspace_id)


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME or "/" in name:
        raise InvalidInput(f"name: '{name[:80]}' must have 1 to {MAX_NAME} characters and no slash")


async def list_templates(call: Call, _: None) -> GetTemplatesResponse:
    """The templates, by name."""
    query = call.query(GetTemplatesQuery)
    part = (query.name or "").lower()
    found = [
        template
        for template in call.api.engine.state.all(Template)
        if part in template.id.lower() and (not query.workspace_ids or template.workspace_id in query.workspace_ids)
    ]
    found.sort(key=lambda template: template.id, reverse=query.order_by is OrderBy.DESC)
    rows, pages = page_of(found, offset=query.offset, limit=query.limit)
    return GetTemplatesResponse(templates=tuple(_show(call.api, template) for template in rows), pagination=pages)


async def get_template(call: Call, template: Template) -> GetTemplateResponse:
    """A template, by name."""
    return GetTemplateResponse(template=_show(call.api, template))


async def create(call: Call, _: None) -> PostTemplateResponse:
    """Creates a template with the name of the path."""
    return PostTemplateResponse(template=await create_named(call, call.text("templateName")))


async def create_named(call: Call, name: str) -> WireTemplate:
    """Creates a template from the message in the body."""
    return await _put(call, name, replace=False)


async def create_or_replace(call: Call, _: None) -> PutTemplateResponse:
    """Creates or changes a template. To change one, the caller needs the right to do so. The call is refused if the template was
    created or removed meanwhile."""
    before = call.api.engine.state.get(Template, call.text("templateName"))
    if before is not None:
        await allow(call, Action.CONTROL_TEMPLATES, before)
    return PutTemplateResponse(template=await _put(call, call.text("templateName"), replace=before is not None))


async def _put(call: Call, name: str, *, replace: bool) -> WireTemplate:
    """Stores a template under the name in the path. A name in the message has no effect."""
    body = await call.body(WireTemplate)
    place = workspaces.need_workspace(call.api.engine.state, body.workspace_id or UNCATEGORIZED_ID)
    return await _store(call, name, body.config, replace=replace, workspace=place.id)


async def _store(
    call: Call,
    name: str,
    config: Mapping[str, Any],
    *,
    replace: bool,
    workspace: int = UNCATEGORIZED_ID,
) -> WireTemplate:
    """Stores a template. An existing one stays in its workspace."""
    _check_name(name)
    owner, parsed = call.caller.user.id, parse_template(config)
    command = PutTemplate(name=name, config=parsed, workspace_id=workspace, replace=replace, owner=owner)
    await call.api.engine.submit(command)
    return _show(call.api, find_template(call.api, name))


async def change(call: Call, template: Template) -> PatchTemplateConfigResponse:
    """Replaces the configuration of a template with the body."""
    return PatchTemplateConfigResponse(template=await _store(call, template.id, await call.json(), replace=True))


async def _renamed(call: Call) -> Template:
    return find_template(call.api, (await call.body(PatchTemplateNameRequest)).old_name)


async def rename(call: Call, _: Template) -> PatchTemplateNameResponse:
    """Renames a template."""
    asked = await call.body(PatchTemplateNameRequest)
    _check_name(asked.new_name)
    await call.api.engine.submit(RenameTemplate(name=asked.old_name, new_name=asked.new_name))
    return PatchTemplateNameResponse(template=_show(call.api, find_template(call.api, asked.new_name)))


async def delete(call: Call, template: Template) -> Empty:
    """Deletes a template. Experiments made from it do not change."""
    await call.api.engine.submit(DeleteTemplate(name=template.id))
    return Empty()


_ONE = "/api/v1/templates/{templateName}"
_CHANGE = Action.CONTROL_TEMPLATES

ROUTES = (
    Route("GET", "/api/v1/templates", Action.VIEW, nothing, list_templates),
    Route("GET", _ONE, Action.VIEW, _at("templateName"), get_template),
    Route("POST", _ONE, Action.CREATE_TEMPLATE, nothing, create),
    Route(
        "PUT", _ONE, Action.CREATE_TEMPLATE, nothing, create_or_replace, also=(Also(_CHANGE, "of one that is there"),)
    ),
    Route("PATCH", _ONE, _CHANGE, _at("templateName"), change),
    Route("DELETE", _ONE, _CHANGE, _at("templateName"), delete),
    Route("PATCH", "/api/v1/template/rename", _CHANGE, _renamed, rename),
)
