"""Owners of entities and references, as inputs of `authorise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resolute.errors import NotFound
from resolute_master.api.auth.authorise import AllocationRef, Target, TaskRef
from resolute_master.api.context import ApiContext
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ExperimentId, TaskId, TrialId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.template import Template
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import UNCATEGORIZED_ID, Project, Workspace
from resolute_master.lifecycle.workspaces import BUILT_IN_WORKSPACE, NO_OWNER
from resolute_master.store.base import TrialQuery

MOST_DIGITS = 19
"""Most digits of an experiment's number. A longer number exceeds the range of the database."""


def of_task(found: Any) -> Sequence[Target] | None:
    """The tasks of the entities, without a further read. They suffice to decide about a task's own token."""
    match found:
        case None:
            return None
        case tuple():
            return tuple(one for each in found for one in of_task(each) or (Target(name=""),))
        case Allocation() | AllocationRef():
            return (Target(name=f"allocation '{found.id}'", allocation=AllocationId(found.id)),)
        case TaskRef():
            return (Target(name=f"task '{found.id}'", task=found.id),)
        case Trial():
            return (Target(name=f"trial {found.id}", trial=found.id),)
        case Checkpoint():
            return (Target(name=f"checkpoint '{found.uuid}'", trial=found.trial_id),)
        case Experiment():
            return (Target(name=f"experiment {found.id}"),)
        case _:
            return (Target(name="this"),)


async def owned(api: ApiContext, found: Any) -> Sequence[Target] | None:
    """The targets with their owners and workspaces. Raises `NotFound` for a reference to nothing."""
    match found:
        case None:
            return None
        case tuple():
            return tuple([one for each in found for one in await owned(api, each) or ()])
        case Experiment():
            return (_work(api, f"experiment {found.id}", found),)
        case Trial():
            return (await _of_experiment(api, f"trial {found.id}", found.experiment_id),)
        case Checkpoint():
            return (await _of_experiment(api, f"checkpoint '{found.uuid}'", found.experiment_id),)
        case Job():
            of = "" if found.experiment_id is None else f" (experiment {found.experiment_id})"
            return (_work(api, f"job '{found.id}'{of}", found),)
        case Allocation() | AllocationRef():
            return (await _of_allocation(api, AllocationId(found.id)),)
        case TaskRef():
            return (await _of_task(api, found.id),)
        case Template():
            return (Target(name=f"template '{found.id}'", owner=_user(api, found.owner)),)
        case User():
            return (Target(name=f"user '{found.username}'", owner=found),)
        case Workspace():
            return (_target(api, f"workspace '{found.name}'", NO_OWNER, found),)
        case Project():
            place = _workspace(api, found.workspace_id)
            return (_target(api, f"project '{found.name}'", found.owner, place),)
        case _:
            return (Target(name="this"),)


def _work(api: ApiContext, name: str, of: Experiment | Job) -> Target:
    return _target(api, name, of.owner, _workspace(api, of.workspace_id))


def _target(api: ApiContext, name: str, owner: UserId, workspace: Workspace | None) -> Target:
    of_workspace = None if workspace is None else _user(api, workspace.owner)
    return Target(
        name=name,
        owner=_user(api, owner),
        workspace=workspace,
        workspace_owner="" if of_workspace is None else of_workspace.username,
    )


def _user(api: ApiContext, id_: UserId) -> User | None:
    return api.engine.state.get(User, id_)


def _workspace(api: ApiContext, id_: int) -> Workspace | None:
    return BUILT_IN_WORKSPACE if id_ == UNCATEGORIZED_ID else api.engine.state.get(Workspace, id_)


async def _of_experiment(api: ApiContext, name: str, id_: ExperimentId) -> Target:
    """The target for an experiment. A deleted one counts as well, because its parts still belong to its owner."""
    experiment = api.engine.state.get(Experiment, id_) or await api.store.experiment(id_)
    named = f"{name} (experiment {id_})"
    return Target(name=named) if experiment is None else _work(api, named, experiment)


async def _of_trial(api: ApiContext, name: str, id_: TrialId) -> Target:
    trial = api.engine.state.get(Trial, id_) or await api.store.trial(id_)
    return Target(name=name) if trial is None else await _of_experiment(api, name, trial.experiment_id)


async def _of_allocation(api: ApiContext, id_: AllocationId) -> Target:
    """An unmanaged trial has no allocations, and reports in the name of its task."""
    found = api.engine.state.get(Allocation, id_) or await api.store.allocation(id_)
    if found is None:
        if await find_trial_of(api, TaskId(id_)) is None:
            raise NotFound("allocation", id_)
        return await _of_task(api, TaskId(id_))
    name = f"allocation '{id_}'"
    return Target(name=name) if found.trial_id is None else await _of_trial(api, name, found.trial_id)


async def _of_task(api: ApiContext, id_: TaskId) -> Target:
    trial = await find_trial_of(api, id_)
    if trial is None:
        raise NotFound("task", id_)
    return await _of_experiment(api, f"task '{id_}'", trial.experiment_id)


async def find_trial_of(api: ApiContext, task: TaskId) -> Trial | None:
    """The trial whose runs are attempts at the task."""
    experiment, _, request = task.partition(".")
    for trial in api.engine.state.find(Trial, "trial_of_request", request):
        if trial.task_id == task:
            return trial
    for allocation in await api.store.allocations_of_task(task):
        if allocation.trial_id is not None:
            return await api.store.trial(allocation.trial_id)
    if (
        experiment.isdecimal()
        and len(experiment) < MOST_DIGITS
        and await api.store.experiment(ExperimentId(int(experiment)))
    ):
        page = await api.store.page_trials(TrialQuery(experiment_id=ExperimentId(int(experiment))))
        return next((t for t in page.rows if t.task_id == task), None)
    return None
