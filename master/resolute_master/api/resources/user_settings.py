"""Settings that a web interface stores for the caller, and the projects that the caller viewed."""

from __future__ import annotations

from dataclasses import dataclass

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import EntityType
from resolute.wire.rest.user_settings import (
    GetProjectsByUserActivityResponse,
    GetUserSettingResponse,
    PostUserActivityRequest,
    PostUserSettingRequest,
    UserWebSetting,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.finders import find_user
from resolute_master.api.resources.workspaces import show_project
from resolute_master.domain.administration import ResetUserSettings, SetUserSettings, VisitProject
from resolute_master.domain.user import Setting, User
from resolute_master.domain.workspace import Project
from resolute_master.lifecycle import workspaces

DEFAULT_PROJECTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActivityQuery:
    limit: int = 0


def _caller(call: Call) -> User:
    return find_user(call.api, call.caller.user.id)


async def get_settings(call: Call, _: None) -> GetUserSettingResponse:
    """The settings that the web interface keeps for the user."""
    return GetUserSettingResponse(
        settings=tuple(
            UserWebSetting(key=each.key, storage_path=each.storage_path, value=each.value)
            for each in _caller(call).settings
        )
    )


async def set_settings(call: Call, _: None) -> Empty:
    """Stores settings of the web interface for the user."""
    wanted = (await call.body(PostUserSettingRequest)).settings
    if any(not each.key for each in wanted):
        raise InvalidInput("settings: a key must not be empty; name each setting")
    settings = tuple(
        Setting(storage_path=each.storage_path or "", key=each.key, value=each.value or "") for each in wanted
    )
    await call.api.engine.submit(SetUserSettings(user=call.caller.user.id, settings=settings))
    return Empty()


async def reset_settings(call: Call, _: None) -> Empty:
    """Removes all settings of the web interface of the user."""
    await call.api.engine.submit(ResetUserSettings(user=call.caller.user.id))
    return Empty()


async def looked_at(call: Call, _: None) -> Empty:
    """Records that the user has opened a project."""
    seen = await call.body(PostUserActivityRequest)
    if seen.entity_type is not EntityType.PROJECT:
        raise InvalidInput(f"entityType: {seen.entity_type} is not recorded; send {EntityType.PROJECT}")
    await call.api.engine.submit(VisitProject(user=call.caller.user.id, project_id=seen.entity_id))
    return Empty()


async def projects_looked_at(call: Call, _: None) -> GetProjectsByUserActivityResponse:
    """The projects that the caller viewed last, the newest first. Deleted ones are left out."""
    limit = call.query(_ActivityQuery).limit
    if limit < 0:
        raise InvalidInput(f"limit: {limit} must not be negative; 0 means the default, {DEFAULT_PROJECTS}")
    found: list[Project] = []
    for each in _caller(call).visits[: limit or DEFAULT_PROJECTS]:
        try:
            found.append(workspaces.need_project(call.api.engine.state, each.project_id))
        except NotFound:
            continue
    return GetProjectsByUserActivityResponse(projects=tuple([await show_project(call, each) for each in found]))


ROUTES = (
    Route("GET", "/api/v1/users/setting", Action.VIEW, nothing, get_settings),
    Route("POST", "/api/v1/users/setting", Action.KEEP_SETTINGS, nothing, set_settings),
    Route("POST", "/api/v1/users/setting/reset", Action.KEEP_SETTINGS, nothing, reset_settings),
    Route("POST", "/api/v1/users/activity", Action.KEEP_SETTINGS, nothing, looked_at),
    Route("GET", "/api/v1/user/projects/activity", Action.VIEW, nothing, projects_looked_at),
)
