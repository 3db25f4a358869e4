"""Workspaces, their projects, and the bindings of pools.

A pool without a binding accepts all work; a bound one accepts new work of its workspaces only. A binding is a rule of admission:
what was admitted before it was made continues.

An archived workspace or project, and one that is being deleted, accepts no new work and no changes (`check_open`). What runs there
continues.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from shlex import quote

from resolute.errors import AlreadyExists, FailedPrecondition, InvalidInput, NotFound
from resolute_master.domain import administration as c
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.workspace import (
    UNCATEGORIZED,
    UNCATEGORIZED_ID,
    Deletion,
    PoolBinding,
    Project,
    Workspace,
)
from resolute_master.lifecycle import budget
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step

MAX_WORKSPACE_NAME_LENGTH = 80
"""Name of a workspace or a project, as in the contract."""

MAX_PROJECT_KEY_LENGTH = 5
"""Key of a project that the caller chooses: it is a prefix of numbers."""

NO_OWNER = UserId(0)
"""Owner of the built-in workspace and project."""

BUILT_IN_WORKSPACE = Workspace(id=UNCATEGORIZED_ID, name=UNCATEGORIZED, owner=NO_OWNER)
BUILT_IN_PROJECT = Project(
    id=UNCATEGORIZED_ID, workspace_id=UNCATEGORIZED_ID, name=UNCATEGORIZED, key="UNCAT", owner=NO_OWNER
)

State = Step | ClusterState
"""To be read."""


# --------------------------------------------------------------------------------------------------------- looking up


def workspaces(state: State) -> tuple[Workspace, ...]:
    """All workspaces, by id."""
    return (BUILT_IN_WORKSPACE, *sorted(state.all(Workspace), key=lambda one: one.id))


def projects(state: State, workspace: int | None = None) -> tuple[Project, ...]:
    """All projects, or those of one workspace, by id."""
    every = (BUILT_IN_PROJECT, *sorted(state.all(Project), key=lambda one: one.id))
    return tuple(one for one in every if workspace in (None, one.workspace_id))


def need_workspace(state: State, id_: int) -> Workspace:
    found = BUILT_IN_WORKSPACE if id_ == UNCATEGORIZED_ID else state.get(Workspace, id_)
    if found is None:
        raise NotFound("workspace", id_)
    return found


def need_project(state: State, id_: int) -> Project:
    found = BUILT_IN_PROJECT if id_ == UNCATEGORIZED_ID else state.get(Project, id_)
    if found is None:
        raise NotFound("project", id_)
    return found


def project_with_key(state: State, key: str) -> Project:
    """The project with the key, in upper or lower case. Raises `NotFound`."""
    found = next((one for one in projects(state) if one.key == key.upper()), None)
    if found is None:
        raise NotFound("project with the key", key)
    return found


def project_named(state: State, workspace: str, project: str) -> Project:
    """The project of these names, as in the configuration of an experiment. Raises `InvalidInput` that lists the existing names."""
    place = next((one for one in workspaces(state) if one.name == workspace), None)
    if place is None:
        known = _listed(one.name for one in workspaces(state))
        raise InvalidInput(f"workspace: there is no workspace '{workspace}'; choose one of {known}, or create it")
    here = projects(state, place.id)
    found = next((one for one in here if one.name == project), None)
    if found is None:
        known = _listed(one.name for one in here) or "none yet"
        raise InvalidInput(
            f"project: workspace '{workspace}' has no project '{project}'; it has {known}; choose one, or create it"
        )
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# --------------------------------------------------------------------------------------------------- what is read-only


def is_archived(state: State, project: Project) -> bool:
    """Whether the project is archived, itself or with its workspace."""
    return project.archived or need_workspace(state, project.workspace_id).archived


def check_workspace_open(workspace: Workspace) -> None:
    """Raises `FailedPrecondition` for one that is archived or being deleted."""
    if workspace.deletion is Deletion.DELETING:
        raise FailedPrecondition(f"workspace '{workspace.name}' is being deleted; choose another one")
    if workspace.archived:
        raise FailedPrecondition(
            f"workspace '{workspace.name}' is archived; unarchive it first (det workspace unarchive {quote(workspace.name)})"
        )


def check_open(state: State, project: Project) -> None:
    """Raises `FailedPrecondition` for a project that is archived or being deleted, and for one of such a workspace."""
    workspace = need_workspace(state, project.workspace_id)
    check_workspace_open(workspace)
    called = named(state, project)
    if project.deletion is Deletion.DELETING:
        raise FailedPrecondition(f"{called} is being deleted; choose another one")
    if project.archived:
        command = f"det project unarchive {quote(workspace.name)} {quote(project.name)}"
        raise FailedPrecondition(f"{called} is archived; unarchive it first ({command})")


def named(state: State, project: Project) -> str:
    """Name of a project in refusals."""
    return f"project '{project.name}' of workspace '{need_workspace(state, project.workspace_id).name}'"


# --------------------------------------------------------------------------------------------------------- workspaces


def create(step: Step, command: c.CreateWorkspace) -> int:
    """Creates a workspace; returns its id."""
    _check_new_workspace_name(step, command.name)
    # The first number is that of the workspace that always exists.
    workspace = Workspace(id=step.next_number("workspace") + UNCATEGORIZED_ID, name=command.name, owner=command.owner)
    workspace = replace(workspace, agent_user=command.agent_user)
    step.put(_with_default_pools(step, workspace, command.default_compute_pool, command.default_aux_pool))
    return workspace.id


def patch(step: Step, command: c.PatchWorkspace) -> None:
    workspace = need_workspace(step, command.workspace)
    if workspace.immutable:
        raise FailedPrecondition(
            f"workspace '{workspace.name}' cannot be changed: its default pools are the cluster's; create another one"
        )
    check_workspace_open(workspace)
    if command.name is not None and command.name != workspace.name:
        _check_new_workspace_name(step, command.name)
        workspace = replace(workspace, name=command.name)
    account = None if command.without_agent_user else command.agent_user or workspace.agent_user
    workspace = replace(workspace, agent_user=account)
    step.put(_with_default_pools(step, workspace, command.default_compute_pool, command.default_aux_pool))


def _with_default_pools(step: Step, workspace: Workspace, compute: PoolName | None, aux: PoolName | None) -> Workspace:
    """The workspace with other default pools. None leaves a default unchanged; an empty name selects the cluster's."""
    for pool in (compute, aux):
        if pool:
            check_pool(step, pool, workspace, step.pools)
    return replace(
        workspace,
        default_compute_pool=workspace.default_compute_pool if compute is None else compute or None,
        default_aux_pool=workspace.default_aux_pool if aux is None else aux or None,
    )


def _check_name(kind: str, name: str) -> None:
    if not name.strip() or len(name) > MAX_WORKSPACE_NAME_LENGTH:
        raise InvalidInput(
            f"name: '{name[:MAX_WORKSPACE_NAME_LENGTH]}' must have 1 to {MAX_WORKSPACE_NAME_LENGTH} characters, not only spaces; "
            f"give the {kind} another name"
        )


def _check_new_workspace_name(step: Step, name: str) -> None:
    _check_name("workspace", name)
    if any(one.name == name for one in workspaces(step)):
        raise AlreadyExists(f"workspace '{name}' exists already; choose another name")


# ----------------------------------------------------------------------------------------------------------- projects


def create_project(step: Step, command: c.CreateProject) -> int:
    """Creates a project; returns its id."""
    workspace = need_workspace(step, command.workspace)
    if workspace.immutable:
        raise FailedPrecondition(
            f"workspace '{workspace.name}' has one project and allows no other; create a workspace first"
        )
    check_workspace_open(workspace)
    check_new_project_name(step, workspace, command.name)
    project = Project(
        id=step.next_number("project") + UNCATEGORIZED_ID,
        workspace_id=workspace.id,
        name=command.name,
        key=checked_key(step, command.key) if command.key else _key_of(step, command.name),
        owner=command.owner,
        description=command.description,
    )
    step.put(project)
    return project.id


def check_new_project_name(step: Step, workspace: Workspace, name: str) -> None:
    _check_name("project", name)
    if any(one.name == name for one in projects(step, workspace.id)):
        raise AlreadyExists(f"project '{name}' of workspace '{workspace.name}' exists already; choose another name")


def checked_key(step: Step, asked: str) -> str:
    """The key in upper case. Raises an error for an invalid key, or one of another project."""
    key = asked.upper()
    if not re.fullmatch(rf"[A-Z0-9]{{1,{MAX_PROJECT_KEY_LENGTH}}}", key):
        raise InvalidInput(f"key: '{asked[:80]}' must be 1 to {MAX_PROJECT_KEY_LENGTH} letters and digits")
    if any(one.key == key for one in projects(step)):
        raise AlreadyExists(f"a project with the key '{key}' exists already; choose another key")
    return key


def _key_of(step: Step, name: str) -> str:
    taken = {one.key for one in projects(step)}
    base = re.sub(r"[^A-Z0-9]", "", name.upper())[:3] or "P"
    number = 0
    while True:
        key = base + (str(number) if number else "")
        if key not in taken:
            return key
        number += 1


def move(step: Step, experiment: Experiment, project_id: int) -> None:
    """Moves an experiment to another project. If it has not ended, it needs a pool that it may use there."""
    project = need_project(step, project_id)
    if experiment.archived:
        raise FailedPrecondition(f"experiment {experiment.id} is archived; unarchive it first")
    check_open(step, need_project(step, experiment.project_id))
    check_open(step, project)
    job = step.need(Job, experiment.job_id)
    workspace = need_workspace(step, project.workspace_id)
    if not job.ended:
        check_pool(step, job.pool, workspace, step.pools)
    put_into(step, experiment, project)


def put_into(step: Step, experiment: Experiment, project: Project) -> None:
    """Puts an experiment and its job into the project, and updates its configuration."""
    job = step.need(Job, experiment.job_id)
    workspace = need_workspace(step, project.workspace_id)
    names = {"workspace": workspace.name, "project": project.name}
    step.put(
        replace(
            experiment,
            workspace_id=workspace.id,
            project_id=project.id,
            configuration=written({**experiment.config, **names}),
        )
    )
    step.put(budget.with_hold(step, replace(job, workspace_id=workspace.id, project_id=project.id)))


# -------------------------------------------------------------------------------------------------------------- pools


def bind(step: Step, command: c.BindPool) -> None:
    """Change the workspaces of a pool; without any it accepts all work again."""
    wanted = {need_workspace(step, id_).id for id_ in command.workspaces}
    if not wanted and command.change is not c.BindingChange.REPLACE:
        raise InvalidInput("workspaceNames: name at least one workspace")
    binding = step.get(PoolBinding, command.pool)
    bound = set(binding.workspaces) if binding is not None else set()
    match command.change:
        case c.BindingChange.ADD:
            now = bound | wanted
        case c.BindingChange.REMOVE:
            missing = sorted(wanted - bound)
            if missing:
                names = ", ".join(need_workspace(step, id_).name for id_ in missing)
                raise NotFound(f"binding of pool '{command.pool}' to workspace", names)
            now = bound - wanted
        case c.BindingChange.REPLACE:
            now = wanted
    if now and all_deleted(step, now):
        raise FailedPrecondition(
            f"workspaceNames: pool '{command.pool}' would be bound only to workspaces that are being deleted, and then accept "
            "the work of all; name another workspace"
        )
    if now:
        step.put(PoolBinding(id=command.pool, workspaces=tuple(sorted(now))))
    elif binding is not None:
        step.delete(binding)


def all_deleted(state: State, ids: Iterable[int]) -> bool:
    """Whether each of these workspaces is being deleted."""
    return all(need_workspace(state, id_).deletion is Deletion.DELETING for id_ in ids)


def may_use(state: State, pool: PoolName, workspace: int) -> bool:
    binding = state.get(PoolBinding, pool)
    return binding is None or workspace in binding.workspaces


def check_pool(state: State, pool: PoolName, workspace: Workspace, pools: Collection[PoolName]) -> None:
    """Raises `InvalidInput` when new work of the workspace may not go to the pool; `pools` are those that there are."""
    if may_use(state, pool, workspace.id):
        return
    usable = _listed(name for name in sorted(pools) if may_use(state, name, workspace.id)) or "none"
    raise InvalidInput(
        f"resources.resource_pool: pool '{pool}' is bound to other workspaces than '{workspace.name}', which may use {usable}; "
        "choose one of those, or ask an administrator for the pool"
    )
