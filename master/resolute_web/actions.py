"""Buttons: what a caller may do to a thing. One that cannot be used is shown with its reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.errors import FailedPrecondition, PermissionDenied
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, allow
from resolute_master.api.resources import experiments as api_experiments
from resolute_master.domain.experiment import Experiment
from resolute_master.lifecycle import workspaces

Do = Callable[[Call, Any], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """`path` takes a form; with `asks` it shows a question first. `reason` says why it cannot be used; empty when it can."""

    verb: str
    label: str
    icon: str
    path: str
    reason: str = ""
    asks: bool = False
    danger: bool = False


async def refusal_of(call: Call, action: Action, target: Any = None) -> str:
    """Why the caller may not; empty when they may."""
    try:
        await allow(call, action, target)
    except PermissionDenied as error:
        return str(error)
    return ""


# -------------------------------------------------------------------------------------------------------- experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something to do to an experiment. `unfit` says of a state why it makes no sense there; empty when it does."""

    name: str
    label: str
    icon: str
    action: Action
    do: Do
    unfit: Callable[[Experiment], str]
    question: str = ""
    """Asked first, where it cannot be undone."""
    done: str
    """What is said afterwards."""
    needs_open_place: bool = False
    """Whether it is refused in an archived project."""

    @property
    def danger(self) -> bool:
        return bool(self.question)


def _needs(wanted: Callable[[Experiment], bool], text: str) -> Callable[[Experiment], str]:
    return lambda experiment: "" if wanted(experiment) else text


_over = "The experiment is over."
_goes_on = _needs(lambda e: not e.state.gone and not e.state.stopping, _over)

VERBS: Sequence[Verb] = (
    Verb(
        name="activate",
        label="Activate",
        icon="play",
        action=Action.ACTIVATE,
        do=api_experiments.activate,
        unfit=_needs(lambda e: e.state is ExperimentState.PAUSED, "Only a paused experiment can be activated."),
        done="Activated: its trials request slots again.",
    ),
    Verb(
        name="pause",
        label="Pause",
        icon="pause",
        action=Action.PAUSE,
        do=api_experiments.pause,
        unfit=_needs(lambda e: e.state is ExperimentState.ACTIVE, "Only an active experiment can be paused."),
        done="Pausing: its trials save a checkpoint and end.",
    ),
    Verb(
        name="cancel",
        label="Cancel",
        icon="square",
        action=Action.CANCEL,
        do=api_experiments.cancel,
        unfit=_goes_on,
        question="Its trials save a checkpoint and end. It cannot be activated again.",
        done="Canceling: its trials save a checkpoint and end.",
    ),
    Verb(
        name="kill",
        label="Kill",
        icon="octagon-x",
        action=Action.KILL,
        do=api_experiments.kill,
        unfit=_needs(lambda e: not e.state.gone, _over),
        question="Its trials are ended at once, without a checkpoint. What they did since their last one is lost.",
        done="Killed.",
    ),
    Verb(
        name="archive",
        label="Archive",
        icon="archive",
        action=Action.ARCHIVE,
        do=api_experiments.archive,
        unfit=_needs(lambda e: e.state.gone and not e.archived, "Only an experiment that is over can be archived."),
        done="Archived: lists show it only with archived experiments.",
        needs_open_place=True,
    ),
    Verb(
        name="unarchive",
        label="Unarchive",
        icon="archive-restore",
        action=Action.ARCHIVE,
        do=api_experiments.unarchive,
        unfit=_needs(lambda e: e.archived, "It is not archived."),
        done="Unarchived.",
        needs_open_place=True,
    ),
    Verb(
        name="delete",
        label="Delete",
        icon="trash-2",
        action=Action.DELETE_EXPERIMENT,
        do=api_experiments.delete,
        unfit=_needs(lambda e: e.state.gone, "Only an experiment that is over can be deleted."),
        question="Its trials, metrics, logs and checkpoints are removed for good.",
        done="Deleting: its checkpoints are being removed from their storage.",
    ),
)

BY_NAME = {verb.name: verb for verb in VERBS}


def closed_place(call: Call, experiment: Experiment) -> str:
    """Why the experiment cannot be edited where it is; empty when it can."""
    state = call.api.engine.state
    try:
        workspaces.check_open(state, workspaces.need_project(state, experiment.project_id))
    except FailedPrecondition as error:
        return str(error)
    return ""


async def reason_of(call: Call, verb: Verb, experiment: Experiment) -> str:
    """Why the caller cannot do it; empty when they can."""
    closed = closed_place(call, experiment) if verb.needs_open_place else ""
    return verb.unfit(experiment) or closed or await refusal_of(call, verb.action, experiment)


async def buttons_of(call: Call, experiment: Experiment) -> tuple[Button, ...]:
    """Those that fit its state, or could soon; each with the reason for which it cannot be used."""
    shown = []
    for verb in VERBS:
        unfit = verb.unfit(experiment)
        if unfit and verb.name not in ("pause", "kill"):
            continue
        if unfit and experiment.state.gone:
            continue
        if verb.name == "pause" and experiment.state is ExperimentState.PAUSED:
            continue
        shown.append(
            Button(
                verb=verb.name,
                label=verb.label,
                icon=verb.icon,
                path=f"/det/experiments/{experiment.id}/{verb.name}",
                reason=await reason_of(call, verb, experiment),
                asks=bool(verb.question),
                danger=verb.danger,
            )
        )
    return tuple(shown)
