"""Finds the entity in the path of a request, or raises `NotFound`."""

from __future__ import annotations

from resolute.errors import NotFound
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import AllocationRef, TaskRef
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Finder, number_in
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, AllocationId, ExperimentId, JobId, TaskId, TrialId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Project
from resolute_master.lifecycle import workspaces
from resolute_master.store.base import TrialQuery


async def find_experiment(api: ApiContext, id_: int) -> Experiment:
    """The experiment by id: an active one from the committed state, an ended one from the store."""
    found = api.engine.state.get(Experiment, id_) or await api.store.experiment(ExperimentId(id_))
    if found is None or found.state is ExperimentState.DELETED:
        raise NotFound("experiment", id_)
    return found


async def job_id_of(api: ApiContext, name: str, text: str) -> JobId:
    """A reference to a job: its id, or the number of its experiment. Errors call it `name`."""
    if not text.isdecimal():
        return JobId(text)
    try:
        return (await find_experiment(api, number_in(name, text))).job_id
    except NotFound as error:
        raise NotFound("experiment", text, f"`{name}` takes the id of a job or the number of an experiment") from error


async def find_job(api: ApiContext, name: str, text: str) -> Job:
    """The job for a reference as in `job_id_of`. An ended job is in the store only."""
    id_ = await job_id_of(api, name, text)
    found = api.engine.state.get(Job, id_) or next(iter(await api.store.jobs([id_])), None)
    if found is None:
        raise NotFound("job", id_, "give the id of a job (`det job list`) or of an experiment (`det experiment list`)")
    return found


async def find_trial(api: ApiContext, id_: int) -> Trial:
    found = api.engine.state.get(Trial, id_) or await api.store.trial(TrialId(id_))
    if found is None:
        raise NotFound("trial", id_)
    return found


async def trials_of(api: ApiContext, experiment: Experiment) -> tuple[Trial, ...]:
    """All of them, by id."""
    if api.engine.state.get(Experiment, experiment.id) is not None:
        return api.engine.state.find(Trial, "trials_of_experiment", experiment.id)
    return (await api.store.page_trials(TrialQuery(experiment_id=experiment.id))).rows


async def find_allocation(api: ApiContext, id_: str) -> Allocation:
    found = api.engine.state.get(Allocation, id_) or await api.store.allocation(AllocationId(id_))
    if found is None:
        raise NotFound("allocation", id_)
    return found


async def find_checkpoint(api: ApiContext, uuid: str) -> Checkpoint:
    found = api.engine.state.get(Checkpoint, uuid) or await api.store.checkpoint(uuid)
    if found is None:
        raise NotFound("checkpoint", uuid)
    return found


def find_user(api: ApiContext, id_: int) -> User:
    found = api.engine.state.get(User, UserId(id_))
    if found is None:
        raise NotFound("user", id_)
    return found


def user_named(api: ApiContext, name: str) -> User | None:
    found = api.engine.state.find(User, "user_by_name", name)
    return found[0] if found else None


def find_agent(api: ApiContext, id_: str) -> Agent:
    found = api.engine.state.get(Agent, AgentId(id_))
    if found is None:
        raise NotFound("agent", id_)
    return found


# -------------------------------------------------------------------------------------------------- of a path's part


def experiment_at(part: str) -> Finder:
    async def find(call: Call) -> Experiment:
        return await find_experiment(call.api, call.number(part))

    return find


def trial_at(part: str) -> Finder:
    async def find(call: Call) -> Trial:
        return await find_trial(call.api, call.number(part))

    return find


def project_at(part: str) -> Finder:
    async def find(call: Call) -> Project:
        return workspaces.need_project(call.api.engine.state, call.number(part))

    return find


def allocation_at(part: str) -> Finder:
    async def find(call: Call) -> Allocation:
        return await find_allocation(call.api, call.text(part))

    return find


def allocation_ref_at(part: str) -> Finder:
    """A reference, for calls that answer for any allocation, whether it exists or not."""

    async def find(call: Call) -> AllocationRef:
        return AllocationRef(AllocationId(call.text(part)))

    return find


def checkpoint_at(part: str) -> Finder:
    async def find(call: Call) -> Checkpoint:
        return await find_checkpoint(call.api, call.text(part))

    return find


def user_at(part: str) -> Finder:
    async def find(call: Call) -> User:
        return find_user(call.api, call.number(part))

    return find


def agent_at(part: str) -> Finder:
    async def find(call: Call) -> Agent:
        return find_agent(call.api, call.text(part))

    return find


def task_at(part: str) -> Finder:
    async def find(call: Call) -> TaskRef:
        return TaskRef(TaskId(call.text(part)))

    return find
