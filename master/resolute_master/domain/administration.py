"""Commands about administrative objects: templates, workspaces with their projects, and bindings of pools.

They are submitted to the engine like all others; `domain.commands` lists all commands.
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
    """Sets keys of a user's settings. Other keys are unchanged."""

    user: UserId
    settings: tuple[Setting, ...]


class ResetUserSettings(Struct, frozen=True, kw_only=True, gc=False):
    user: UserId


class VisitProject(Struct, frozen=True, kw_only=True, gc=False):
    user: UserId
    project_id: int


class PinWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """Pins a workspace for one user, or removes the pin (`pinned` False)."""

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
    """Creates a workspace; replies with its id. Without a default pool, the cluster's default applies."""

    name: str
    owner: UserId
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None


class PatchWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """Changes a workspace. None leaves a field unchanged; an empty pool selects the cluster's default; `without_agent_user`
    removes the account."""

    workspace: int
    name: str | None = None
    default_compute_pool: PoolName | None = None
    default_aux_pool: PoolName | None = None
    agent_user: AgentUser | None = None
    without_agent_user: bool = False


class CreateProject(Struct, frozen=True, kw_only=True, gc=False):
    """Creates a project; replies with its id. `key` None derives a key from the name."""

    workspace: int
    name: str
    owner: UserId
    description: str = ""
    key: str | None = None


class ArchiveWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    workspace: int
    archived: bool


class DeleteWorkspace(Struct, frozen=True, kw_only=True, gc=False):
    """Deletes a workspace with its projects and their content. Replies whether it has been removed; otherwise it is DELETING."""

    workspace: int


class PatchProject(Struct, frozen=True, kw_only=True, gc=False):
    """Changes a project. None leaves a field unchanged."""

    project: int
    name: str | None = None
    description: str | None = None
    key: str | None = None


class SetProjectNotes(Struct, frozen=True, kw_only=True, gc=False):
    """Replaces the notes of a project by `notes`, or adds them with `append`."""

    project: int
    notes: tuple[Note, ...]
    append: bool = False


class ArchiveProject(Struct, frozen=True, kw_only=True, gc=False):
    project: int
    archived: bool


class MoveProject(Struct, frozen=True, kw_only=True, gc=False):
    """Moves a project to another workspace. Ended experiments follow one by one."""

    project: int
    workspace: int


class FollowProject(Struct, frozen=True, kw_only=True, gc=False):
    """Moves an experiment to the workspace to which its project was moved."""

    experiment: ExperimentId


class RecordProjectMoved(Struct, frozen=True, kw_only=True, gc=False):
    """Records that every experiment of the project is in the workspace."""

    project: int
    workspace: int


class DeleteProject(Struct, frozen=True, kw_only=True, gc=False):
    """Deletes a project with all of its experiments. It is DELETING until the last one has been removed."""

    project: int


class ForgetProject(Struct, frozen=True, kw_only=True, gc=False):
    """Removes a project that is DELETING and has no experiment left."""

    project: int


class FailProjectDeletion(Struct, frozen=True, kw_only=True, gc=False):
    """Records that an experiment of a project that is DELETING must not be deleted."""

    project: int
    problem: str


class SetBudget(Struct, frozen=True, kw_only=True, gc=False):
    """Sets the limits on the cost of a pool's machines, or of a workspace's jobs, per day and per month; None is no limit.

    `owner` is pool or workspace, `name` the pool's name or the workspace's id.
    """

    owner: str
    name: str
    per_day: float | None
    per_month: float | None


class SetMaxCost(Struct, frozen=True, kw_only=True, gc=False):
    """Sets the limit on the total cost of an experiment; None is no limit."""

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
