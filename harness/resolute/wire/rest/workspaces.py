"""Workspaces and projects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
