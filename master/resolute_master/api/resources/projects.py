"""Projects after their creation: changed, archived, moved, deleted, and their notes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from resolute.errors import InvalidInput
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.workspaces import (
    AddProjectNoteResponse,
    DeleteProjectResponse,
    MoveProjectRequest,
    PatchProject,
    PatchProjectResponse,
    PutProjectNotesRequest,
    PutProjectNotesResponse,
)
from resolute.wire.rest.workspaces import Note as WireNote
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Also, Call, Route, allow
from resolute_master.api.http.limits import MAX_NAME_LENGTH, MAX_NOTES_LENGTH
from resolute_master.api.reading.finders import project_at
from resolute_master.api.resources.workspaces import show_project, shown_notes
from resolute_master.api.submission.experiment_limits import check_texts
from resolute_master.domain.administration import ArchiveProject, DeleteProject, MoveProject, SetProjectNotes
from resolute_master.domain.administration import PatchProject as ChangeProject
from resolute_master.domain.workspace import Note, Project
from resolute_master.lifecycle import workspaces


async def patch(call: Call, project: Project) -> PatchProjectResponse:
    """Changes the name, description or key of a project."""
    wanted = await call.body(PatchProject)
    check_texts(description=wanted.description)
    command = ChangeProject(
        project=project.id, name=wanted.name, description=wanted.description, key=wanted.key or None
    )
    await call.api.engine.submit(command)
    return PatchProjectResponse(project=await show_project(call, _now(call, project)))


def _archive(archived: bool) -> Callable[[Call, Project], Awaitable[Empty]]:
    async def handle(call: Call, project: Project) -> Empty:
        await call.api.engine.submit(ArchiveProject(project=project.id, archived=archived))
        return Empty()

    handle.__doc__ = "Archives a project." if archived else "Unarchives a project."
    return handle


archive, unarchive = _archive(True), _archive(False)


async def delete(call: Call, project: Project) -> DeleteProjectResponse:
    """Deletes a project. It is removed when its last experiment is deleted; until then its state shows the progress."""
    await call.api.engine.submit(DeleteProject(project=project.id))
    return DeleteProjectResponse(completed=call.api.engine.state.get(Project, project.id) is None)


async def move(call: Call, project: Project) -> Empty:
    """Moves the project of the path. A project in the body has no effect."""
    wanted = await call.body(MoveProjectRequest)
    workspace = workspaces.need_workspace(call.api.engine.state, wanted.destination_workspace_id)
    await allow(call, Action.CREATE_PROJECT, workspace)
    await call.api.engine.submit(MoveProject(project=project.id, workspace=workspace.id))
    return Empty()


# -------------------------------------------------------------------------------------------------------------- notes


async def put_notes(call: Call, project: Project) -> PutProjectNotesResponse:
    """Replaces the notes of the project of the path. A project in the body has no effect."""
    wanted = await call.body(PutProjectNotesRequest)
    await call.api.engine.submit(SetProjectNotes(project=project.id, notes=_checked(wanted.notes)))
    return PutProjectNotesResponse(notes=shown_notes(_now(call, project)))


async def add_note(call: Call, project: Project) -> AddProjectNoteResponse:
    """Adds a note to a project; returns all its notes."""
    wanted = await call.body(WireNote)
    await call.api.engine.submit(SetProjectNotes(project=project.id, notes=_checked([wanted]), append=True))
    return AddProjectNoteResponse(notes=shown_notes(_now(call, project)))


def _checked(notes: Iterable[WireNote]) -> tuple[Note, ...]:
    found = []
    for note in notes:
        for key, text, limit in (("name", note.name, MAX_NAME_LENGTH), ("contents", note.contents, MAX_NOTES_LENGTH)):
            if len(text) > limit:
                raise InvalidInput(f"notes.{key}: has {len(text)} characters, over the limit of {limit}; shorten it")
        found.append(Note(name=note.name, contents=note.contents))
    return tuple(found)


def _now(call: Call, project: Project) -> Project:
    return workspaces.need_project(call.api.engine.state, project.id)


_ONE = "/api/v1/projects/{id}"
_by_id, _by_project_id = project_at("id"), project_at("projectId")

ROUTES = (
    Route("PATCH", _ONE, Action.EDIT_PROJECT, _by_id, patch),
    Route("DELETE", _ONE, Action.DELETE_PROJECT, _by_id, delete),
    Route("POST", f"{_ONE}/archive", Action.EDIT_PROJECT, _by_id, archive),
    Route("POST", f"{_ONE}/unarchive", Action.EDIT_PROJECT, _by_id, unarchive),
    Route("PUT", "/api/v1/projects/{projectId}/notes", Action.WRITE_NOTES, _by_project_id, put_notes),
    Route("POST", "/api/v1/projects/{projectId}/notes", Action.WRITE_NOTES, _by_project_id, add_note),
    Route(
        "POST",
        "/api/v1/projects/{projectId}/move",
        Action.MOVE_PROJECT,
        _by_project_id,
        move,
        also=(Also(Action.CREATE_PROJECT),),
    ),
)
