"""Deletion of workspaces and projects.

A project that is to be deleted is DELETING at once: from then on nothing can be added to it. `DeleteExperiments` has its
experiments deleted, each as `DeleteExperiment` does it, and the row of the project goes when none is left. A workspace goes with
the last of its projects. An experiment that may not be deleted ends the deletion: the project is DELETE_FAILED with the reason,
keeps what is left, and can be deleted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resolute.errors import FailedPrecondition
from resolute.wire.states import ExperimentState
from resolute_master.domain import administration as c
from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import DeleteExperiments, MoveExperiments
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.template import Template
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Deletion, PoolBinding, Project, Workspace
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.step import Step

SHOWN = 5
"""Experiments that a refusal names."""


def delete_project(step: Step, command: c.DeleteProject) -> None:
    project = workspaces.need_project(step, command.project)
    if project.immutable:
        raise FailedPrecondition(f"project '{project.name}' always exists: it cannot be deleted")
    _check_nothing_runs(step, workspaces.named(step, project), (project,))
    _begin(step, project)


def delete_workspace(step: Step, command: c.DeleteWorkspace) -> bool:
    workspace = workspaces.need_workspace(step, command.workspace)
    if workspace.immutable:
        raise FailedPrecondition(f"workspace '{workspace.name}' always exists: it cannot be deleted")
    found = workspaces.projects(step, workspace.id)
    _check_nothing_runs(step, f"workspace '{workspace.name}'", found)
    _check_no_pool_becomes_public(step, workspace)
    workspace = replace(workspace, deletion=Deletion.DELETING, deletion_error="")
    step.put(workspace)
    for project in found:
        _begin(step, project)
    return _forget_workspace_if_empty(step, workspace)


def _begin(step: Step, project: Project) -> None:
    step.put(replace(project, deletion=Deletion.DELETING, deletion_error=""))
    step.emit([DeleteExperiments(project=project.id)])


def runs(experiment: Experiment) -> bool:
    """Whether the experiment prevents a deletion. An unmanaged one that has not started does not."""
    return not (experiment.state.gone or (experiment.unmanaged and experiment.state is ExperimentState.PAUSED))


def _check_nothing_runs(step: Step, called: str, places: Collection[Project]) -> None:
    ids = {project.id for project in places}
    found = [one for one in step.all(Experiment) if one.project_id in ids and runs(one)]
    if not found:
        return
    found.sort(key=lambda one: one.id)
    more = len(found) - SHOWN
    commands = _listed(f"det experiment kill {one.id}" for one in found[:SHOWN]) + (
        f"; {more} more" if more > 0 else ""
    )
    has = "1 experiment that has" if len(found) == 1 else f"{len(found)} experiments that have"
    raise FailedPrecondition(f"{called} holds {has} not ended; end them first ({commands})")


def _listed(commands: Iterable[str]) -> str:
    return "; ".join(commands)


def _check_no_pool_becomes_public(step: Step, workspace: Workspace) -> None:
    """Raises `FailedPrecondition` if a pool is bound to this workspace only: without it, the pool would accept the work of every
    workspace."""
    alone = [
        each.id
        for each in step.all(PoolBinding)
        if workspace.id in each.workspaces
        and each.id in step.pools
        and workspaces.all_deleted(step, (id_ for id_ in each.workspaces if id_ != workspace.id))
    ]
    if alone:
        raise FailedPrecondition(
            f"workspace '{workspace.name}' is the only one that pool '{alone[0]}' is bound to, and without it the pool would "
            f"accept the work of all; bind the pool to another workspace first, or remove the binding "
            f"(det resource-pool bindings remove)"
        )


def forget_project(step: Step, command: c.ForgetProject) -> None:
    project = step.get(Project, command.project)
    if project is None or project.deletion is not Deletion.DELETING:
        step.done(DeleteExperiments(project=command.project).key)
        return
    if any(one.project_id == project.id for one in step.all(Experiment)):
        return  # one is still being deleted
    step.delete(project)
    for done in (DeleteExperiments(project=project.id), MoveExperiments(project=project.id)):
        step.done(done.key)
    workspace = step.get(Workspace, project.workspace_id)
    if workspace is not None:
        _forget_workspace_if_empty(step, workspace)


def fail(step: Step, command: c.FailProjectDeletion) -> None:
    """Records the failure of a project's deletion. The deletion of the workspace's other projects continues."""
    step.done(DeleteExperiments(project=command.project).key)
    project = step.get(Project, command.project)
    if project is None or project.deletion is not Deletion.DELETING:
        return
    step.put(replace(project, deletion=Deletion.FAILED, deletion_error=command.problem))
    workspace = step.get(Workspace, project.workspace_id)
    if workspace is not None and workspace.deletion is Deletion.DELETING:
        problem = f"project '{project.name}': {command.problem}"
        step.put(replace(workspace, deletion=Deletion.FAILED, deletion_error=problem))


def _forget_workspace_if_empty(step: Step, workspace: Workspace) -> bool:
    """Removes a workspace without projects, with its templates, bindings, budget and pins. The cost of its work stays in the
    ledger."""
    if workspace.deletion is not Deletion.DELETING or workspaces.projects(step, workspace.id):
        return False
    for template in step.all(Template):
        if template.workspace_id == workspace.id:
            step.delete(template)
    for binding in step.all(PoolBinding):
        if workspace.id in binding.workspaces:
            left = tuple(id_ for id_ in binding.workspaces if id_ != workspace.id)
            step.put(replace(binding, workspaces=left)) if left else step.delete(binding)
    for user in step.all(User):
        pins = tuple(pin for pin in user.pins if pin.workspace_id != workspace.id)
        if pins != user.pins:
            step.put(replace(user, pins=pins))
    account = step.get(Account, account_id(Owner.WORKSPACE, workspace.id))
    if account is not None:
        step.delete(account)
    step.delete(workspace)
    return True
