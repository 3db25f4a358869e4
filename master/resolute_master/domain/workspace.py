"""Workspaces, projects and bindings of pools."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.user import AgentUser

UNCATEGORIZED = "Uncategorized"
"""The workspace, and the project in it, that always exist and do not change."""

UNCATEGORIZED_ID = 1


class Deletion(StrEnum):
    """How far the deletion of a workspace or a project is; one that is deleted is not there any more."""

    NONE = ""
    DELETING = "DELETING"
    FAILED = "DELETE_FAILED"
    """It has stopped at something that it may not delete; what is left can be used, or deleted again."""


class Note(Struct, frozen=True, kw_only=True, gc=False):
    """A text about a project."""

    name: str
    contents: str


class Workspace(Struct, frozen=True, kw_only=True, gc=False):
    """The default pools are for work that names no pool; None takes the cluster's."""

    id: int
    name: str
    owner: UserId
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None
    """The account of its tasks, for any owner; None: that of the owner."""
    archived: bool = False
    """Its projects count as archived, too."""
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
    """By itself: see `lifecycle.workspaces.is_archived`."""
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
    """Ids, at least one, in order."""
