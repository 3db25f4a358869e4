"""What a caller may do to a workspace or a project, as buttons. One that cannot be used is shown with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.resources import projects as api_projects
from resolute_master.api.resources import workspaces as api_workspaces
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.workspace import Deletion, Project, Workspace
from resolute_master.lifecycle import place_deletion, workspaces
from resolute_master.lifecycle.cluster import ClusterState
from resolute_web.actions import Button, Do, refusal_of

Place = Workspace | Project

FIXED = "It always exists, and does not change."
BEING_DELETED = "It is being deleted."


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What decides about every place. `running` counts the experiments that have not ended, by project."""

    state: ClusterState
    running: Mapping[int, int]


def situation(call: Call) -> Situation:
    """As it is now."""
    state = call.api.engine.state
    running = Counter(one.project_id for one in state.listed(Experiment) if place_deletion.runs(one))
    return Situation(state=state, running=running)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceVerb:
    """Something to do to a workspace or a project. `fits` says whether it is shown, `unfit` why it cannot be done now."""

    name: str
    label: str
    icon: str
    action: Action
    do: Do
    fits: Callable[[Any], bool] = lambda _: True
    unfit: Callable[[Situation, Any], str] = lambda now, place: ""
    question: str = ""
    """Asked first, where it cannot be undone."""


def unfit_to_change(state: ClusterState, place: Place) -> str:
    """Why its settings cannot be changed."""
    return _unfit_to_archive(state, place) or ("It is archived: unarchive it first." if place.archived else "")


def _unfit_to_archive(state: ClusterState, place: Place) -> str:
    within = "Its workspace is archived: unarchive that first." if _within_archived(state, place) else ""
    return _settled(place) or within


def _settled(place: Place) -> str:
    """Why nothing can be done to it, whatever its workspace is."""
    if place.immutable:
        return FIXED
    return BEING_DELETED if place.deletion is Deletion.DELETING else ""


def _unfit_to_delete(now: Situation, place: Place) -> str:
    if settled := _settled(place):
        return settled
    projects = workspaces.projects(now.state, place.id) if isinstance(place, Workspace) else (place,)
    count = sum(now.running.get(project.id, 0) for project in projects)
    if not count:
        return ""
    return (
        f"{count} experiment{' has' if count == 1 else 's have'} not ended: end {'it' if count == 1 else 'them'} first."
    )


def _within_archived(state: ClusterState, place: Place) -> bool:
    return isinstance(place, Project) and workspaces.need_workspace(state, place.workspace_id).archived


def pinned(call: Call, place: Workspace) -> bool:
    return place.id in api_workspaces.pins_of(call)


def _archiving(action: Action, archive: Do, unarchive: Do) -> tuple[PlaceVerb, PlaceVerb]:
    return (
        PlaceVerb(
            name="archive",
            label="Archive",
            icon="archive",
            action=action,
            do=archive,
            fits=lambda place: not place.archived,
            unfit=lambda now, place: _unfit_to_archive(now.state, place),
        ),
        PlaceVerb(
            name="unarchive",
            label="Unarchive",
            icon="archive-restore",
            action=action,
            do=unarchive,
            fits=lambda place: place.archived,
            unfit=lambda now, place: _unfit_to_archive(now.state, place),
        ),
    )


WORKSPACE_VERBS: Sequence[PlaceVerb] = (
    PlaceVerb(name="pin", label="Pin", icon="tag", action=Action.PIN_WORKSPACE, do=api_workspaces.pin),
    PlaceVerb(name="unpin", label="Unpin", icon="tag", action=Action.PIN_WORKSPACE, do=api_workspaces.unpin),
    *_archiving(Action.EDIT_WORKSPACE, api_workspaces.archive, api_workspaces.unarchive),
    PlaceVerb(
        name="delete",
        label="Delete",
        icon="trash-2",
        action=Action.DELETE_WORKSPACE,
        do=api_workspaces.delete,
        unfit=_unfit_to_delete,
        question="Its projects, their experiments with checkpoints, metrics and logs, and its templates are removed for good.",
    ),
)

PROJECT_VERBS: Sequence[PlaceVerb] = (
    *_archiving(Action.EDIT_PROJECT, api_projects.archive, api_projects.unarchive),
    PlaceVerb(
        name="delete",
        label="Delete",
        icon="trash-2",
        action=Action.DELETE_PROJECT,
        do=api_projects.delete,
        unfit=_unfit_to_delete,
        question="Its experiments with checkpoints, metrics and logs, and its notes are removed for good.",
    ),
)


async def reason_of(call: Call, now: Situation, verb: PlaceVerb, place: Place) -> str:
    """Why the caller cannot do it; empty when they can."""
    return verb.unfit(now, place) or await refusal_of(call, verb.action, place)


async def buttons_of(call: Call, now: Situation, place: Place, at: str) -> tuple[Button, ...]:
    """Those that fit it; `at` is the path of the place."""
    hidden = {"pin" if isinstance(place, Workspace) and pinned(call, place) else "unpin"}
    verbs = WORKSPACE_VERBS if isinstance(place, Workspace) else PROJECT_VERBS
    return tuple(
        [
            Button(
                verb=verb.name,
                label=verb.label,
                icon=verb.icon,
                path=f"{at}/{verb.name}",
                reason=await reason_of(call, now, verb, place),
                asks=bool(verb.question),
                danger=bool(verb.question),
            )
            for verb in verbs
            if verb.fits(place) and verb.name not in hidden
        ]
    )
