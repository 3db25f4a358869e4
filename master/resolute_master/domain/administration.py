"""Commands about administrative objects: templates, workspaces with their projects, and bindings of pools.

Asked of the engine like all others; `domain.commands` names them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from resolute_master.domain.ids import ExperimentId, PoolName, UserId
from resolute_master.domain.user import AgentUser, Setting
from resolute_master.domain.workspace import Note

# ------------------------------------------------------------------------------------------------------- templates


class PutTemplate(Struct, frozen=True, kw_only=True, gc=False):
    """`replace` None creates or replaces, False only creates, True only replaces."""

    name: str
    config: Mapping[str, Any]
    workspace_id: int = 1
    replace: bool | None = None
    owner: UserId = UserId(0)
    """The owner of a new template."""


class SetUserSettings(Struct, frozen=True, kw_only=True, gc=False):
    """Other keys stay as they are."""

    user: UserId
    settings: tuple[Setting, ...]


class ResetUserSettings(Struct, frozen=True, kw_only=True, gc=False):
    user: UserId


class VisitProject(Struct, frozen=True, kw_only=True, gc=False):
    user: UserId
    project_id: int


class PinWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """For one user; `pinned` False takes the pin away."""

    user: UserId
    workspace: int
    pinned: bool


class RenameTemplate(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    new_name: str


class DeleteTemplate(Struct, frozen=True, kw_only=True, gc=False):
    name: str


# ------------------------------------------------------------------------------------------------------ workspaces


class CreateWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """Replies with its id. Without a default pool of its own it has the cluster's."""

    name: str
    owner: UserId
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None


class PatchWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """None leaves a field as it is; an empty pool takes the cluster's default, `without_agent_user` takes the account away."""

    workspace: int
    name: str | None = None
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None
    without_agent_user: bool = False


class CreateProject(Struct, frozen=True, kw_only=True, gc=False):
    """Replies with its id. `key` None makes one from the name."""

    workspace: int
    name: str
    owner: UserId
    description: str = ""
    key: str | None = None


class ArchiveWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    workspace: int
    archived: bool


class DeleteWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """With its projects and all that is in them. Replies whether it is gone already; else it is DELETING."""

    workspace: int


class PatchProject(Struct, frozen=True, kw_only=True, gc=False):
    """None leaves a field as it is."""

    project: int
    name: str | None = None
    description: str | None = None
    key: str | None = None


class SetProjectNotes(Struct, frozen=True, kw_only=True, gc=False):
    """`notes` are there instead of those that it has; with `append` beside them."""

    project: int
    notes: tuple[Note, ...]
    append: bool = False


class ArchiveProject(Struct, frozen=True, kw_only=True, gc=False):
    project: int
    archived: bool


class MoveProject(Struct, frozen=True, kw_only=True, gc=False):
    """To another workspace. Experiments that have ended follow one by one."""

    project: int
    workspace: int


class FollowProject(Struct, frozen=True, kw_only=True, gc=False):
    """An experiment takes over the workspace that its project was moved to."""

    experiment: ExperimentId


class RecordProjectMoved(Struct, frozen=True, kw_only=True, gc=False):
    """Every experiment of the project is in this workspace."""

    project: int
    workspace: int


class DeleteProject(Struct, frozen=True, kw_only=True, gc=False):
    """With all of its experiments. It is DELETING until the last one is gone."""

    project: int


class ForgetProject(Struct, frozen=True, kw_only=True, gc=False):
    """A project that is DELETING holds no experiment any more."""

    project: int


class FailProjectDeletion(Struct, frozen=True, kw_only=True, gc=False):
    """An experiment of a project that is DELETING may not be deleted."""

    project: int
    problem: str


class SetBudget(Struct, frozen=True, kw_only=True, gc=False):
    """What a pool's machines, or the work of a workspace, may cost in a day and in a month; None is no limit.

    `owner` is pool or workspace, `name` the pool's name or the workspace's id.
    """

    owner: str
    name: str
    per_day: float | None
    per_month: float | None


class SetMaxCost(Struct, frozen=True, kw_only=True, gc=False):
    """What an experiment may cost in all; None is no limit."""

    experiment: ExperimentId
    max_cost: float | None


class BindingChange(StrEnum):
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"


class BindPool(Struct, frozen=True, kw_only=True, gc=False):
    """Change which workspaces the pool is for."""

    pool: PoolName
    workspaces: tuple[int, ...]
    change: BindingChange


AdministrativeCommand = (
    PutTemplate
    | SetUserSettings
    | ResetUserSettings
    | VisitProject
    | PinWorkspace
    | RenameTemplate
    | DeleteTemplate
    | CreateWorkspace
    | PatchWorkspace
    | CreateProject
    | ArchiveWorkspace
    | DeleteWorkspace
    | PatchProject
    | SetProjectNotes
    | ArchiveProject
    | MoveProject
    | FollowProject
    | RecordProjectMoved
    | DeleteProject
    | ForgetProject
    | FailProjectDeletion
    | SetBudget
    | SetMaxCost
    | BindPool
)
