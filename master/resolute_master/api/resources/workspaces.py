"""Workspaces and their projects: listed and created; workspaces changed, archived, deleted and pinned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from resolute.errors import InvalidInput
from resolute.wire.rest.auth import AgentUserGroup
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import OrderBy, ProjectSortBy, WorkspaceSortBy, WorkspaceState
from resolute.wire.rest.pools import ListRPsBoundToWorkspaceQuery, ListRPsBoundToWorkspaceResponse
from resolute.wire.rest.workspaces import (
    DeleteWorkspaceResponse,
    GetProjectByKeyResponse,
    GetProjectResponse,
    GetWorkspaceProjectsQuery,
    GetWorkspaceProjectsResponse,
    GetWorkspaceResponse,
    GetWorkspacesQuery,
    GetWorkspacesResponse,
    Note,
    PatchWorkspace,
    PatchWorkspaceResponse,
    PostProjectRequest,
    PostProjectResponse,
    PostWorkspaceRequest,
    PostWorkspaceResponse,
)
from resolute.wire.rest.workspaces import Project as WireProject
from resolute.wire.rest.workspaces import Workspace as WireWorkspace
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Also, Call, Finder, Route, allow, nothing
from resolute_master.api.http.paging import page_of
from resolute_master.api.reading.finders import project_at
from resolute_master.api.reading.showing import owner_of
from resolute_master.api.submission import agent_users
from resolute_master.api.submission.experiment_limits import check_texts
from resolute_master.domain.administration import (
    ArchiveWorkspace,
    CreateProject,
    CreateWorkspace,
    DeleteWorkspace,
    PinWorkspace,
)
from resolute_master.domain.administration import PatchWorkspace as ChangeWorkspace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.user import AgentUser, Pin, User
from resolute_master.domain.workspace import Deletion, Project, Workspace
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import ProjectNumbers


def workspace_at(part: str) -> Finder:
    async def find(call: Call) -> Workspace:
        return workspaces.need_workspace(call.api.engine.state, call.number(part))

    return find


async def _project_at_key(call: Call) -> Project:
    return workspaces.project_with_key(call.api.engine.state, call.text("key"))


# ------------------------------------------------------------------------------------------------------------ showing


_STATES = {
    Deletion.NONE: WorkspaceState.UNSPECIFIED,
    Deletion.DELETING: WorkspaceState.DELETING,
    Deletion.FAILED: WorkspaceState.DELETE_FAILED,
}


async def _show(call: Call, workspace: Workspace) -> WireWorkspace:
    (shown,) = await _show_workspaces(call, [workspace])
    return shown


async def _show_workspaces(call: Call, found: Sequence[Workspace]) -> tuple[WireWorkspace, ...]:
    """Workspaces with their counts, which one query gives for all."""
    projects = {one.id: workspaces.projects(call.api.engine.state, one.id) for one in found}
    ids = [project.id for each in projects.values() for project in each]
    numbers = await call.api.store.project_numbers(ids)
    return tuple(_workspace(call, one, [numbers[project.id] for project in projects[one.id]]) for one in found)


def _workspace(call: Call, workspace: Workspace, projects: Sequence[ProjectNumbers]) -> WireWorkspace:
    owner, pin = owner_of(call.api, workspace), pins_of(call).get(workspace.id)
    return WireWorkspace(
        id=workspace.id,
        name=workspace.name,
        archived=workspace.archived,
        immutable=workspace.immutable,
        pinned=pin is not None,
        pinned_at=pin.at if pin is not None else None,
        error_message=workspace.deletion_error,
        num_experiments=sum(each.experiments for each in projects),
        num_projects=len(projects),
        state=_STATES[workspace.deletion],
        user_id=owner.id if owner else 0,
        username=owner.username if owner else "",
        default_compute_pool=workspace.default_compute_pool,
        default_aux_pool=workspace.default_aux_pool,
        agent_user_group=agent_users.shown(workspace.agent_user),
    )


def pins_of(call: Call) -> Mapping[int, Pin]:
    """The caller's pins by workspace, from the current state."""
    user = call.api.engine.state.get(User, call.caller.user.id)
    return {pin.workspace_id: pin for pin in (user.pins if user is not None else ())}


async def show_project(call: Call, project: Project) -> WireProject:
    (shown,) = await _show_projects(call, [project])
    return shown


async def _show_projects(call: Call, projects: Sequence[Project]) -> tuple[WireProject, ...]:
    numbers = await call.api.store.project_numbers([project.id for project in projects])
    return tuple(_project(call, project, numbers[project.id]) for project in projects)


def _project(call: Call, project: Project, numbers: ProjectNumbers) -> WireProject:
    state = call.api.engine.state
    owner = owner_of(call.api, project)
    return WireProject(
        id=project.id,
        workspace_id=project.workspace_id,
        workspace_name=workspaces.need_workspace(state, project.workspace_id).name,
        name=project.name,
        key=project.key,
        description=project.description,
        archived=workspaces.is_archived(state, project),
        immutable=project.immutable,
        error_message=project.deletion_error,
        notes=shown_notes(project),
        num_experiments=numbers.experiments,
        num_active_experiments=numbers.active,
        num_runs=numbers.trials,
        last_experiment_started_at=numbers.last_started_at,
        state=_STATES[project.deletion],
        user_id=owner.id if owner else 0,
        username=owner.username if owner else "",
    )


def shown_notes(project: Project) -> tuple[Note, ...]:
    return tuple(Note(name=note.name, contents=note.contents) for note in project.notes)


# ------------------------------------------------------------------------------------------------------------ listing


def _fits(call: Call, one: Workspace | Project, query: GetWorkspacesQuery | GetWorkspaceProjectsQuery) -> bool:
    owner = owner_of(call.api, one)
    archived = one.archived if isinstance(one, Workspace) else workspaces.is_archived(call.api.engine.state, one)
    return (
        query.archived in (None, archived)
        and (not query.users or (owner is not None and owner.username in query.users))
        and (not query.user_ids or (owner is not None and owner.id in query.user_ids))
    )


async def list_workspaces(call: Call, _: None) -> GetWorkspacesResponse:
    """One page of workspaces."""
    query, pins = call.query(GetWorkspacesQuery), pins_of(call)
    found = [
        one
        for one in workspaces.workspaces(call.api.engine.state)
        if _fits(call, one, query)
        and (query.name or "").lower() in one.name.lower()
        and query.name_case_sensitive in (None, "", one.name)
        and query.pinned in (None, one.id in pins)
    ]
    if query.sort_by is WorkspaceSortBy.NAME:
        found.sort(key=lambda one: (one.name, one.id))
    rows, pages = page_of(_directed(found, query.order_by), offset=query.offset, limit=query.limit)
    return GetWorkspacesResponse(workspaces=await _show_workspaces(call, rows), pagination=pages)


async def get_workspace(call: Call, workspace: Workspace) -> GetWorkspaceResponse:
    """A workspace."""
    return GetWorkspaceResponse(workspace=await _show(call, workspace))


async def list_projects(call: Call, workspace: Workspace) -> GetWorkspaceProjectsResponse:
    """The projects of a workspace. A name must match exactly: the released client deletes the first project of the answer."""
    query = call.query(GetWorkspaceProjectsQuery)
    here = workspaces.projects(call.api.engine.state, workspace.id)
    found = [one for one in here if _fits(call, one, query) and query.name in (None, "", one.name)]
    if query.sort_by is ProjectSortBy.NAME:
        found.sort(key=lambda one: (one.name, one.id))
    rows, pages = page_of(_directed(found, query.order_by), offset=query.offset, limit=query.limit)
    return GetWorkspaceProjectsResponse(projects=await _show_projects(call, rows), pagination=pages)


def _directed(found: Sequence[Any], order: OrderBy) -> Sequence[Any]:
    return found[::-1] if order is OrderBy.DESC else found


async def get_project(call: Call, project: Project) -> GetProjectResponse:
    """A project, by id."""
    return GetProjectResponse(project=await show_project(call, project))


async def get_project_by_key(call: Call, project: Project) -> GetProjectByKeyResponse:
    """A project, by key."""
    return GetProjectByKeyResponse(project=await show_project(call, project))


async def list_pools(call: Call, workspace: Workspace) -> ListRPsBoundToWorkspaceResponse:
    """Names of the pools that accept work of the workspace: those that are bound to it, and unbound ones."""
    query, engine = call.query(ListRPsBoundToWorkspaceQuery), call.api.engine
    usable = [str(pool) for pool in sorted(engine.pools) if workspaces.may_use(engine.state, pool, workspace.id)]
    rows, pages = page_of(usable, offset=query.offset, limit=query.limit)
    return ListRPsBoundToWorkspaceResponse(resource_pools=rows, pagination=pages)


# ----------------------------------------------------------------------------------------------------------- changing


async def create(call: Call, _: None) -> PostWorkspaceResponse:
    """Creates a workspace."""
    request = await call.body(PostWorkspaceRequest)
    _refuse_unavailable(
        {
            "checkpointStorageConfig": request.checkpoint_storage_config,
            "clusterNamespaceMeta": request.cluster_namespace_meta,
            "clusterQuotaPairs": request.cluster_quota_pairs,
        }
    )
    account = (await _account(call, request.agent_user_group))[0]
    command = CreateWorkspace(
        name=request.name,
        owner=call.caller.user.id,
        default_compute_pool=_pool(call, "defaultComputePool", request.default_compute_pool),
        default_aux_pool=_pool(call, "defaultAuxPool", request.default_aux_pool),
        agent_user=account,
    )
    id_ = await call.api.engine.submit(command)
    created = workspaces.need_workspace(call.api.engine.state, id_)
    return PostWorkspaceResponse(workspace=await _show(call, created))


async def patch(call: Call, workspace: Workspace) -> PatchWorkspaceResponse:
    """Changes the name, default pools or agent account of a workspace."""
    request = await call.body(PatchWorkspace)
    _refuse_unavailable(
        {
            "checkpointStorageConfig": request.checkpoint_storage_config,
            "clusterNamespaceMeta": request.cluster_namespace_meta,
        }
    )
    account, unlinked = await _account(call, request.agent_user_group)
    compute = (
        request.default_compute_pool
        if request.default_compute_pool is not None
        else request.default_compute_resource_pool
    )
    aux = request.default_aux_pool if request.default_aux_pool is not None else request.default_aux_resource_pool
    command = ChangeWorkspace(
        workspace=workspace.id,
        name=request.name,
        default_compute_pool=_pool(call, "defaultComputePool", compute),
        default_aux_pool=_pool(call, "defaultAuxPool", aux),
        agent_user=account,
        without_agent_user=unlinked,
    )
    await call.api.engine.submit(command)
    changed = workspaces.need_workspace(call.api.engine.state, workspace.id)
    return PatchWorkspaceResponse(workspace=await _show(call, changed))


def _archive(archived: bool) -> Callable[[Call, Workspace], Awaitable[Empty]]:
    async def handle(call: Call, workspace: Workspace) -> Empty:
        await call.api.engine.submit(ArchiveWorkspace(workspace=workspace.id, archived=archived))
        return Empty()

    word = "Archives" if archived else "Unarchives"
    handle.__doc__ = f"{word} a workspace. The projects of an archived workspace count as archived."
    return handle


def _pin(pinned: bool) -> Callable[[Call, Workspace], Awaitable[Empty]]:
    async def handle(call: Call, workspace: Workspace) -> Empty:
        await call.api.engine.submit(PinWorkspace(user=call.caller.user.id, workspace=workspace.id, pinned=pinned))
        return Empty()

    handle.__doc__ = f"{'Pins' if pinned else 'Unpins'} a workspace for the user."
    return handle


archive, unarchive = _archive(True), _archive(False)
pin, unpin = _pin(True), _pin(False)


async def delete(call: Call, workspace: Workspace) -> DeleteWorkspaceResponse:
    """Deletes a workspace. One with projects is removed when their last experiment is deleted; until then its state shows the
    progress."""
    return DeleteWorkspaceResponse(completed=await call.api.engine.submit(DeleteWorkspace(workspace=workspace.id)))


async def _account(call: Call, group: AgentUserGroup | None) -> tuple[AgentUser | None, bool]:
    """The account of a request, as in `agent_users.asked`. Raises `PermissionDenied` for a caller without the right to set it."""
    if group is not None:
        await allow(call, Action.LINK_AGENT_USER)
    return agent_users.asked(group)


def _refuse_unavailable(given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value:
            raise InvalidInput(f"{name}: is not available for workspaces yet; leave it out")


def _pool(call: Call, key: str, name: str | None) -> PoolName | None:
    """The default pool of a request. None: unchanged; an empty name means the cluster's default."""
    if not name:
        return None if name is None else PoolName("")
    if name not in call.api.engine.pools:
        known = ", ".join(f"'{pool}'" for pool in sorted(call.api.engine.pools))
        raise InvalidInput(f"{key}: there is no pool '{name}'; choose one of {known}")
    return PoolName(name)


async def create_project(call: Call, workspace: Workspace) -> PostProjectResponse:
    """Creates a project in the workspace of the path. A workspace in the body has no effect."""
    request = await call.body(PostProjectRequest)
    check_texts(description=request.description or "")
    command = CreateProject(
        workspace=workspace.id,
        name=request.name,
        owner=call.caller.user.id,
        description=request.description or "",
        key=request.key or None,
    )
    id_ = await call.api.engine.submit(command)
    created = workspaces.need_project(call.api.engine.state, id_)
    return PostProjectResponse(project=await show_project(call, created))


_LIST = "/api/v1/workspaces"
_ONE = f"{_LIST}/{{id}}"
_by_id, _by_workspace_id = workspace_at("id"), workspace_at("workspaceId")

_LINKED = Also(Action.LINK_AGENT_USER, "with `agentUserGroup`")

ROUTES = (
    Route("GET", _LIST, Action.VIEW, nothing, list_workspaces),
    Route("POST", _LIST, Action.CREATE_WORKSPACE, nothing, create, also=(_LINKED,)),
    Route("GET", _ONE, Action.VIEW, _by_id, get_workspace),
    Route("PATCH", _ONE, Action.EDIT_WORKSPACE, _by_id, patch, also=(_LINKED,)),
    Route("DELETE", _ONE, Action.DELETE_WORKSPACE, _by_id, delete),
    Route("POST", f"{_ONE}/archive", Action.EDIT_WORKSPACE, _by_id, archive),
    Route("POST", f"{_ONE}/unarchive", Action.EDIT_WORKSPACE, _by_id, unarchive),
    Route("POST", f"{_ONE}/pin", Action.PIN_WORKSPACE, _by_id, pin),
    Route("POST", f"{_ONE}/unpin", Action.PIN_WORKSPACE, _by_id, unpin),
    Route("GET", f"{_ONE}/projects", Action.VIEW, _by_id, list_projects),
    Route("POST", f"{_LIST}/{{workspaceId}}/projects", Action.CREATE_PROJECT, _by_workspace_id, create_project),
    Route("GET", f"{_LIST}/{{workspaceId}}/available-resource-pools", Action.VIEW, _by_workspace_id, list_pools),
    Route("GET", "/api/v1/projects/{id}", Action.VIEW, project_at("id"), get_project),
    Route("GET", "/api/v1/projects/key/{key}", Action.VIEW, _project_at_key, get_project_by_key),
)
