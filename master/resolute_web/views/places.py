"""Administration of workspaces and their projects: created, changed, archived, moved and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.workspaces import (
    MoveProjectRequest,
    PatchProject,
    PatchWorkspace,
    PostProjectRequest,
    PostWorkspaceRequest,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Finder, nothing
from resolute_master.api.reading.finders import project_at
from resolute_master.api.reading.showing import owner_of
from resolute_master.api.resources import projects as api_projects
from resolute_master.api.resources import workspaces as api_workspaces
from resolute_master.api.resources.workspaces import workspace_at
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.lifecycle import workspaces
from resolute_web import place_actions
from resolute_web.actions import Button, refusal_of
from resolute_web.forms import read_form
from resolute_web.page import Page, page, see
from resolute_web.place_actions import (
    PROJECT_VERBS,
    WORKSPACE_VERBS,
    PlaceVerb,
    Situation,
    buttons_of,
    reason_of,
    unfit_to_change,
)
from resolute_web.views.administration import ADMIN, NOT_REFUSED, Refused, sent, tabbed

HERE = f"{ADMIN}/workspaces"
PROJECTS = f"{ADMIN}/projects"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProject:
    """`change` and `move` say why the caller may not; empty when they may."""

    project: Project
    archived: bool
    experiments: int
    change: str
    move: str
    targets: Sequence[Workspace]
    """Where it may be moved to."""
    buttons: Sequence[Button]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorkspace:
    """`change` says why the caller may not rename it, `add` why they may not create a project in it."""

    workspace: Workspace
    owner: str
    pinned: bool
    change: str
    add: str
    buttons: Sequence[Button]
    projects: Sequence[ShownProject]


# ------------------------------------------------------------------------------------------------------------ showing


async def show(call: Call, _: None) -> web.Response:
    return await _shown(call)


async def _shown(call: Call, refused: Refused = NOT_REFUSED) -> web.Response:
    """Pinned workspaces are first."""
    now = place_actions.situation(call)
    found = [await _workspace(call, now, each) for each in workspaces.workspaces(now.state)]
    return await tabbed(
        call,
        "workspaces",
        "admin_workspaces.html",
        places=sorted(found, key=lambda each: not each.pinned),
        refusal=await refusal_of(call, Action.CREATE_WORKSPACE),
        refused=refused,
    )


async def _workspace(call: Call, now: Situation, workspace: Workspace) -> ShownWorkspace:
    state = now.state
    owner, unfit = owner_of(call.api, workspace), unfit_to_change(state, workspace)
    projects = workspaces.projects(state, workspace.id)
    numbers = await call.api.store.project_numbers([project.id for project in projects])
    return ShownWorkspace(
        workspace=workspace,
        owner=owner.username if owner else "",
        pinned=place_actions.pinned(call, workspace),
        change=unfit or await refusal_of(call, Action.EDIT_WORKSPACE, workspace),
        add=unfit or await refusal_of(call, Action.CREATE_PROJECT, workspace),
        buttons=await buttons_of(call, now, workspace, f"{HERE}/{workspace.id}"),
        projects=[await _project(call, now, each, numbers[each.id].experiments) for each in projects],
    )


async def _project(call: Call, now: Situation, project: Project, experiments: int) -> ShownProject:
    state = now.state
    unfit = unfit_to_change(state, project)
    targets = [
        each
        for each in workspaces.workspaces(state)
        if each.id != project.workspace_id and not unfit_to_change(state, each)
    ]
    nowhere = "" if targets else "There is no other workspace that takes projects."
    return ShownProject(
        project=project,
        archived=workspaces.is_archived(state, project),
        experiments=experiments,
        change=unfit or await refusal_of(call, Action.EDIT_PROJECT, project),
        move=unfit or await refusal_of(call, Action.MOVE_PROJECT, project) or nowhere,
        targets=targets,
        buttons=await buttons_of(call, now, project, f"{PROJECTS}/{project.id}"),
    )


# ----------------------------------------------------------------------------------------------------------- changing


async def _after(call: Call, refused: Refused) -> web.Response:
    return await _shown(call, refused) if refused.text else see(HERE)


async def create(call: Call, _: None) -> web.Response:
    name = (await read_form(call)).text("name").strip()
    return await _after(call, await sent(call, PostWorkspaceRequest(name=name), api_workspaces.create))


async def rename(call: Call, workspace: Workspace) -> web.Response:
    name = (await read_form(call)).text("name").strip()
    return await _after(call, await sent(call, PatchWorkspace(name=name), api_workspaces.patch, workspace))


async def create_project(call: Call, workspace: Workspace) -> web.Response:
    name = (await read_form(call)).text("name").strip()
    request = PostProjectRequest(name=name, workspace_id=workspace.id)
    return await _after(call, await sent(call, request, api_workspaces.create_project, workspace))


async def change_project(call: Call, project: Project) -> web.Response:
    form = await read_form(call)
    request = PatchProject(
        name=form.text("name").strip(), description=form.text("description"), key=form.text("key").strip() or None
    )
    return await _after(call, await sent(call, request, api_projects.patch, project))


async def move_project(call: Call, project: Project) -> web.Response:
    text = (await read_form(call)).text("workspace")
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"workspace: '{text[:80]}' is not the number of a workspace; choose one of the list")
    request = MoveProjectRequest(project_id=project.id, destination_workspace_id=int(text[:9]))
    return await _after(call, await sent(call, request, api_projects.move, project))


# -------------------------------------------------------------------------------------------------------------- verbs


def _doing(verb: PlaceVerb, at: str, find: Finder) -> Page:
    async def do(call: Call, place: Workspace | Project) -> web.Response:
        return await _after(call, await sent(call, {}, verb.do, place))

    return Page("POST", f"{at}/{verb.name}", verb.action, find, do)


def _asking(verb: PlaceVerb, at: str, find: Finder) -> Page:
    """The question before something that cannot be undone."""

    async def ask(call: Call, place: Workspace | Project) -> web.Response:
        noun, base = ("workspace", HERE) if isinstance(place, Workspace) else ("project", PROJECTS)
        return await page(
            call,
            "ask.html",
            title=f"{verb.label} {noun} {place.name}?",
            section="Administration",
            subject=place.name,
            question=verb.question,
            symbol=verb.icon,
            button=f"{verb.label} {noun}",
            reason=await reason_of(call, place_actions.situation(call), verb, place),
            path=f"{base}/{place.id}/{verb.name}",
            back=HERE,
        )

    return Page("GET", f"{at}/ask/{verb.name}", Action.VIEW, find, ask)


_WORKSPACE, _PROJECT = f"{HERE}/{{workspaceId}}", f"{PROJECTS}/{{projectId}}"
_at_workspace, _at_project = workspace_at("workspaceId"), project_at("projectId")

PAGES = (
    Page("GET", HERE, Action.VIEW, nothing, show),
    Page("POST", HERE, Action.CREATE_WORKSPACE, nothing, create),
    Page("POST", _WORKSPACE, Action.EDIT_WORKSPACE, _at_workspace, rename),
    Page("POST", f"{_WORKSPACE}/projects", Action.CREATE_PROJECT, _at_workspace, create_project),
    *(_doing(verb, _WORKSPACE, _at_workspace) for verb in WORKSPACE_VERBS),
    *(_asking(verb, _WORKSPACE, _at_workspace) for verb in WORKSPACE_VERBS if verb.question),
    Page("POST", _PROJECT, Action.EDIT_PROJECT, _at_project, change_project),
    Page("POST", f"{_PROJECT}/move", Action.MOVE_PROJECT, _at_project, move_project),
    *(_doing(verb, _PROJECT, _at_project) for verb in PROJECT_VERBS),
    *(_asking(verb, _PROJECT, _at_project) for verb in PROJECT_VERBS if verb.question),
)
