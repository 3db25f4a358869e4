"""Changes of projects: their texts, and their move to another workspace."""

from __future__ import annotations

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute_master.domain import administration as c
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import MoveExperiments
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.job import Job
from resolute_master.domain.workspace import Project
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.step import Step

MAX_PROJECT_NOTES = 100
"""Notes of one project; every start of a master reads them with the project."""

MAX_PROJECT_NOTES_CHARACTERS = 262_144
"""Maximum length of all names and contents of the notes together."""


def patch(step: Step, command: c.PatchProject) -> None:
    project = _need_changeable(step, command.project, "changed")
    if command.name is not None and command.name != project.name:
        workspace = workspaces.need_workspace(step, project.workspace_id)
        workspaces.check_new_project_name(step, workspace, command.name)
        project = replace(project, name=command.name)
    if command.description is not None:
        project = replace(project, description=command.description)
    if command.key is not None and command.key.upper() != project.key:
        project = replace(project, key=workspaces.checked_key(step, command.key))
    step.put(project)


def set_notes(step: Step, command: c.SetProjectNotes) -> None:
    """Stores the notes of a project. Raises `InvalidInput` above the limits."""
    project = _need_changeable(step, command.project, "given notes")
    notes = (*project.notes, *command.notes) if command.append else command.notes
    size = sum(len(note.name) + len(note.contents) for note in notes)
    if len(notes) > MAX_PROJECT_NOTES or size > MAX_PROJECT_NOTES_CHARACTERS:
        raise InvalidInput(
            f"notes: would be {len(notes)} of {size} characters, over the limit of {MAX_PROJECT_NOTES} of "
            f"{MAX_PROJECT_NOTES_CHARACTERS} characters; remove or shorten some"
        )
    step.put(replace(project, notes=notes))


def _need_changeable(step: Step, id_: int, verb: str) -> Project:
    project = workspaces.need_project(step, id_)
    if project.immutable:
        raise FailedPrecondition(f"project '{project.name}' cannot be {verb}; create another one")
    workspaces.check_open(step, project)
    return project


# ---------------------------------------------------------------------------------------------------------------- moves


def move(step: Step, command: c.MoveProject) -> None:
    """Moves a project with its experiments: active ones at once, ended ones one by one after that.

    Raises `InvalidInput` when work that has not ended could not use its pool there.
    """
    project = _need_changeable(step, command.project, "moved")
    workspace = workspaces.need_workspace(step, command.workspace)
    if workspace.id == project.workspace_id:
        return
    if workspace.immutable:
        raise FailedPrecondition(
            f"workspace '{workspace.name}' has one project and allows no other; name another workspace"
        )
    workspaces.check_workspace_open(workspace)
    workspaces.check_new_project_name(step, workspace, project.name)
    moved = replace(project, workspace_id=workspace.id)
    step.put(moved)
    for experiment in step.all(Experiment):
        if experiment.project_id == project.id:
            job = step.need(Job, experiment.job_id)
            if not job.ended:
                workspaces.check_pool(step, job.pool, workspace, step.pools)
            workspaces.put_into(step, experiment, moved)
    step.emit([MoveExperiments(project=project.id)])


def follow(step: Step, command: c.FollowProject) -> None:
    experiment = step.get(Experiment, command.experiment)
    if experiment is None:
        raise NotFound("experiment", command.experiment)
    project = workspaces.need_project(step, experiment.project_id)
    if experiment.workspace_id != project.workspace_id:
        workspaces.put_into(step, experiment, project)


def moved(step: Step, command: c.RecordProjectMoved) -> None:
    """Completes the move, unless the project was moved again meanwhile."""
    project = workspaces.need_project(step, command.project)
    if project.workspace_id == command.workspace:
        step.done(MoveExperiments(project=project.id).key)
