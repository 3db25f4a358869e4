"""Settings of a user of a web interface, opaque to the master."""

from __future__ import annotations

from resolute.errors import InvalidInput, NotFound
from resolute_master.domain.administration import PinWorkspace, ResetUserSettings, SetUserSettings, VisitProject
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import UserId
from resolute_master.domain.user import Pin, User, Visit
from resolute_master.lifecycle.step import Step
from resolute_master.lifecycle.workspaces import need_project, need_workspace

MAX_SETTINGS = 1000
MAX_SETTING_CHARACTERS = 65_536
"""Most characters of one value. Every start of a master reads the settings with the user."""
MAX_SETTINGS_CHARACTERS = 262_144
"""Most characters of all keys and values of a user together."""
MAX_VISITS = 20
"""Number of projects whose views are recorded, the newest."""
MAX_PINS = 100
"""Most workspaces that a user may pin."""


def _need(step: Step, id_: UserId) -> User:
    user = step.get(User, id_)
    if user is None:
        raise NotFound("user", id_)
    return user


def put(step: Step, command: SetUserSettings) -> None:
    """Stores settings; other keys are unchanged. Raises `InvalidInput` above the limits."""
    user = _need(step, command.user)
    new = {each.id: each for each in command.settings}
    settings = tuple(sorted(({each.id: each for each in user.settings} | new).values(), key=lambda each: each.id))
    for each in command.settings:
        if len(each.value) > MAX_SETTING_CHARACTERS:
            raise InvalidInput(
                f"settings: the value of '{each.key[:80]}' has {len(each.value)} characters, over the limit of "
                f"{MAX_SETTING_CHARACTERS}; shorten it"
            )
    size = sum(len(each.storage_path) + len(each.key) + len(each.value) for each in settings)
    if len(settings) > MAX_SETTINGS or size > MAX_SETTINGS_CHARACTERS:
        raise InvalidInput(
            f"settings: would be {len(settings)} of {size} characters, over the limit of {MAX_SETTINGS} of "
            f"{MAX_SETTINGS_CHARACTERS} characters; reset them first"
        )
    step.put(replace(user, settings=settings))


def reset(step: Step, command: ResetUserSettings) -> None:
    step.put(replace(_need(step, command.user), settings=()))


def visit(step: Step, command: VisitProject) -> None:
    user, project = _need(step, command.user), need_project(step, command.project_id)
    others = (each for each in user.visits if each.project_id != project.id)
    visits = (Visit(project_id=project.id, at=step.now), *others)[:MAX_VISITS]
    step.put(replace(user, visits=visits))


def pin(step: Step, command: PinWorkspace) -> None:
    """Pins a workspace. One that is pinned already keeps its place."""
    user, workspace = _need(step, command.user), need_workspace(step, command.workspace)
    pinned = any(each.workspace_id == workspace.id for each in user.pins)
    if command.pinned == pinned:
        return
    pins = tuple(each for each in user.pins if each.workspace_id != workspace.id)
    if command.pinned:
        if len(pins) >= MAX_PINS:
            raise InvalidInput(f"pins: {len(pins)} workspaces are pinned, which is the maximum; unpin one first")
        pins = (Pin(workspace_id=workspace.id, at=step.now), *pins)
    step.put(replace(user, pins=pins))
