"""Workspaces, projects and bindings of pools."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.user import AgentUser

UNCATEGORIZED = "Uncategorized"
"""Name of the workspace, and of the project in it, that always exist and do not change."""

UNCATEGORIZED_ID = 1


class Deletion(StrEnum):
    """State of the deletion of a workspace or a project. A deleted one has no row."""

    NONE = ""
    DELETING = "DELETING"
    FAILED = "DELETE_FAILED"
    """The deletion has stopped at an entity that it must not delete. The rest can be used, or deleted again."""


class Note(Struct, frozen=True, kw_only=True, gc=False):
    """A text about a project."""

    name: str
    contents: str


class Workspace(Struct, frozen=True, kw_only=True, gc=False):
    """A workspace. The default pools are for jobs that name no pool; None selects the cluster's."""

    id: int
    name: str
    owner: UserId
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None
    """The account of all its tasks; None: that of the owner of each."""
    archived: bool = False
    """Whether it is archived; then its projects count as archived as well."""
    deletion: Deletion = Deletion.NONE
    deletion_error: str = ""
    """Why its deletion has failed."""

    @property
    def immutable(self) -> bool:
        return self.id == UNCATEGORIZED_ID


class Project(Struct, frozen=True, kw_only=True, gc=False):
    """A part of a workspace; `key` is its short name, unique in the cluster."""

    id: int
    workspace_id: int
    name: str
    key: str
    owner: UserId
    description: str = ""
    notes: tuple[Note, ...] = ()
    archived: bool = False
    """Whether it is archived itself; see `lifecycle.workspaces.is_archived`."""
    deletion: Deletion = Deletion.NONE
    deletion_error: str = ""
    """Why its deletion has failed."""

    @property
    def immutable(self) -> bool:
        return self.id == UNCATEGORIZED_ID


class PoolBinding(Struct, frozen=True, kw_only=True, gc=False):
    """The pool `id` accepts only these workspaces. A pool without a binding accepts all."""

    id: PoolName
    workspaces: tuple[int, ...]
    """Ids of the workspaces, at least one, sorted."""
