"""Archiving of workspaces and projects: an archived one is kept and shown, and accepts no new work and no changes."""

from __future__ import annotations

from resolute.errors import FailedPrecondition
from resolute_master.domain import administration as c
from resolute_master.domain.copies import replace
from resolute_master.domain.workspace import Deletion
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.step import Step


def archive_workspace(step: Step, command: c.ArchiveWorkspace) -> None:
    """Archives or unarchives a workspace. While it is archived, its projects count as archived."""
    workspace = workspaces.need_workspace(step, command.workspace)
    if workspace.immutable:
        raise FailedPrecondition(f"workspace '{workspace.name}' always exists: it cannot be archived or unarchived")
    if workspace.deletion is Deletion.DELETING:
        workspaces.check_workspace_open(workspace)
    step.put(replace(workspace, archived=command.archived))


def archive_project(step: Step, command: c.ArchiveProject) -> None:
    """Archives or unarchives a project. It is refused within an archived workspace, because the project counts as archived
    already."""
    project = workspaces.need_project(step, command.project)
    if project.immutable:
        raise FailedPrecondition(f"project '{project.name}' always exists: it cannot be archived or unarchived")
    workspaces.check_open(step, replace(project, archived=False))
    step.put(replace(project, archived=command.archived))
