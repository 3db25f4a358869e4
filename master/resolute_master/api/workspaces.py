"""The one workspace and the one project that always exist; others are not available yet."""

from __future__ import annotations

from resolute.errors import NotFound
from resolute.wire.rest.enums import WorkspaceState
from resolute.wire.rest.workspaces import (
    GetProjectResponse,
    GetWorkspaceProjectsQuery,
    GetWorkspaceProjectsResponse,
    GetWorkspaceResponse,
    GetWorkspacesQuery,
    GetWorkspacesResponse,
    Project,
    Workspace,
)
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route, nothing
from resolute_master.api.paging import page_of
from resolute_master.api.render.experiments import UNCATEGORIZED
from resolute_master.domain.user import User
from resolute_master.store.base import ExperimentQuery

ID = 1


async def _workspace(call: Call) -> Workspace:
    owner = next(iter(call.api.engine.state.all(User)), None)
    experiments = await call.api.store.page_experiments(ExperimentQuery(limit=0))
    return Workspace(
        id=ID,
        name=UNCATEGORIZED,
        archived=False,
        immutable=True,
        pinned=False,
        error_message="",
        num_experiments=experiments.total,
        num_projects=1,
        state=WorkspaceState.UNSPECIFIED,
        user_id=owner.id if owner else 0,
        username=owner.username if owner else "",
    )


async def _project(call: Call) -> Project:
    owner = next(iter(call.api.engine.state.all(User)), None)
    every = await call.api.store.page_experiments(ExperimentQuery(limit=None, sort_by="start_time"))
    numbers = await call.api.store.experiment_numbers([e.id for e in every.rows])
    return Project(
        id=ID,
        workspace_id=ID,
        workspace_name=UNCATEGORIZED,
        name=UNCATEGORIZED,
        key="UNCAT",
        description="",
        archived=False,
        immutable=True,
        error_message="",
        notes=(),
        num_experiments=every.total,
        num_active_experiments=sum(not e.state.gone for e in every.rows),
        num_runs=sum(n.trials for n in numbers.values()),
        last_experiment_started_at=every.rows[-1].started_at if every.rows else None,
        state=WorkspaceState.UNSPECIFIED,
        user_id=owner.id if owner else 0,
        username=owner.username if owner else "",
    )


def _named(name: str | None) -> bool:
    return (name or "").lower() in UNCATEGORIZED.lower()


async def list_workspaces(call: Call, _: None) -> GetWorkspacesResponse:
    query = call.query(GetWorkspacesQuery)
    only = await _workspace(call)
    fits = (
        _named(query.name)
        and query.name_case_sensitive in (None, "", only.name)
        and not query.archived
        and not query.pinned
        and (not query.users or only.username in query.users)
        and (not query.user_ids or only.user_id in query.user_ids)
    )
    rows, pages = page_of((only,) if fits else (), offset=query.offset, limit=query.limit)
    return GetWorkspacesResponse(workspaces=rows, pagination=pages)


async def _only(call: Call) -> int:
    """The id of the workspace or project that exists."""
    if call.number("id") != ID:
        kind = "project" if call.request.path.startswith("/api/v1/projects/") else "workspace"
        raise NotFound(kind, call.number("id"))
    return ID


async def get_workspace(call: Call, _: int) -> GetWorkspaceResponse:
    return GetWorkspaceResponse(workspace=await _workspace(call))


async def list_projects(call: Call, _: int) -> GetWorkspaceProjectsResponse:
    query = call.query(GetWorkspaceProjectsQuery)
    only = await _project(call)
    fits = (
        _named(query.name)
        and not query.archived
        and (not query.users or only.username in query.users)
        and (not query.user_ids or only.user_id in query.user_ids)
    )
    rows, pages = page_of((only,) if fits else (), offset=query.offset, limit=query.limit)
    return GetWorkspaceProjectsResponse(projects=rows, pagination=pages)


async def get_project(call: Call, _: int) -> GetProjectResponse:
    return GetProjectResponse(project=await _project(call))


ROUTES = (
    Route("GET", "/api/v1/workspaces", Action.VIEW, nothing, list_workspaces),
    Route("GET", "/api/v1/workspaces/{id}", Action.VIEW, _only, get_workspace),
    Route("GET", "/api/v1/workspaces/{id}/projects", Action.VIEW, _only, list_projects),
    Route("GET", "/api/v1/projects/{id}", Action.VIEW, _only, get_project),
)
