"""Workspaces and projects."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.rest.auth import AgentUserGroup
from resolute.wire.rest.enums import OrderBy, ProjectSortBy, WorkspaceSortBy, WorkspaceState
from resolute.wire.rest.paging import Pagination


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A workspace."""

    archived: bool
    error_message: str
    id: int
    immutable: bool
    name: str
    num_experiments: int
    num_projects: int
    pinned: bool
    state: WorkspaceState
    user_id: int
    username: str
    agent_user_group: AgentUserGroup | None = None
    auto_created_namespace: str | None = None
    checkpoint_storage_config: Mapping[str, Any] | None = None
    default_aux_pool: str | None = None
    default_compute_pool: str | None = None
    pinned_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetWorkspacesResponse:
    """A page of workspaces."""

    pagination: Pagination
    workspaces: tuple[Workspace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetWorkspaceResponse:
    """One workspace."""

    workspace: Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note on a project."""

    contents: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project."""

    archived: bool
    error_message: str
    id: int
    immutable: bool
    key: str
    name: str
    notes: tuple[Note, ...]
    num_active_experiments: int
    num_experiments: int
    num_runs: int
    state: WorkspaceState
    user_id: int
    username: str
    workspace_id: int
    description: str | None = None
    last_experiment_started_at: datetime | None = None
    workspace_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetWorkspaceProjectsResponse:
    """A page of a workspace's projects."""

    pagination: Pagination
    projects: tuple[Project, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectByKeyResponse:
    """The project with that key."""

    project: Project


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectResponse:
    """One project."""

    project: Project


@dataclass(frozen=True, slots=True, kw_only=True)
class GetWorkspacesQuery:
    """Query of the workspace list; `name` matches parts in any case, `name_case_sensitive` the whole name."""

    archived: bool | None = None
    limit: int = 0
    name: str | None = None
    name_case_sensitive: str | None = None
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    pinned: bool | None = None
    sort_by: WorkspaceSortBy = WorkspaceSortBy.UNSPECIFIED
    user_ids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetWorkspaceProjectsQuery:
    """Query of a project list."""

    archived: bool | None = None
    limit: int = 0
    name: str | None = None
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by: ProjectSortBy = ProjectSortBy.UNSPECIFIED
    user_ids: tuple[int, ...] = ()
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceNamespaceMeta:
    """A namespace of Kubernetes that a workspace asks for."""

    auto_create_namespace: bool | None = None
    auto_create_namespace_all_clusters: bool | None = None
    cluster_name: str | None = None
    namespace: str | None = None
    resource_quota: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceNamespaceBinding:
    """A namespace of Kubernetes that a workspace has."""

    auto_create_namespace: bool | None = None
    cluster_name: str | None = None
    namespace: str | None = None
    workspace_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostWorkspaceRequest:
    """A new workspace."""

    name: str
    agent_user_group: AgentUserGroup | None = None
    checkpoint_storage_config: Mapping[str, Any] | None = None
    cluster_namespace_meta: Mapping[str, WorkspaceNamespaceMeta] = field(default_factory=dict)
    cluster_quota_pairs: Mapping[str, int] = field(default_factory=dict)
    default_aux_pool: str | None = None
    default_compute_pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostWorkspaceResponse:
    """The new workspace."""

    workspace: Workspace
    namespace_bindings: Mapping[str, WorkspaceNamespaceBinding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchWorkspace:
    """What is to change; the default pools have two spellings."""

    agent_user_group: AgentUserGroup | None = None
    checkpoint_storage_config: Mapping[str, Any] | None = None
    cluster_namespace_meta: Mapping[str, WorkspaceNamespaceMeta] = field(default_factory=dict)
    default_aux_pool: str | None = None
    default_aux_resource_pool: str | None = None
    default_compute_pool: str | None = None
    default_compute_resource_pool: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchWorkspaceResponse:
    """The changed workspace."""

    workspace: Workspace
    namespace_bindings: Mapping[str, WorkspaceNamespaceBinding] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostProjectRequest:
    """A new project; `key` is made from the name when it is left out."""

    name: str
    workspace_id: int
    description: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostProjectResponse:
    """The new project."""

    project: Project


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkspaceResponse:
    """Whether it is gone already."""

    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchProject:
    """What is to change."""

    description: str | None = None
    key: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchProjectResponse:
    """The changed project."""

    project: Project


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteProjectResponse:
    """Whether it is gone already."""

    completed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PutProjectNotesRequest:
    """The notes that are there instead of those that it has."""

    notes: tuple[Note, ...]
    project_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutProjectNotesResponse:
    """All notes of the project."""

    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddProjectNoteResponse:
    """All notes of the project."""

    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProjectRequest:
    """Where the project is to be."""

    destination_workspace_id: int
    project_id: int
