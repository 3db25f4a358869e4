"""Tasks: their slots, their attempts, their code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import msgspec
from aiohttp import web

from resolute.errors import NotFound
from resolute.wire.rest.allocations import GetTaskContextDirectoryResponse
from resolute.wire.rest.tasks import GetTaskResponse, GetTasksResponse
from resolute_master.api.auth.authorise import Action, TaskRef
from resolute_master.api.auth.ownership import find_trial_of
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, large_response, nothing, rendered
from resolute_master.api.reading.finders import find_experiment, task_at
from resolute_master.api.render import allocations as render_allocations
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName, TaskId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.event_loop import yielding


async def list_tasks(call: Call, _: None) -> web.Response:
    """All allocations that are pending or hold slots."""
    state, pools = call.api.engine.state, call.api.engine.pools
    allocations, agents, jobs = state.listed(Allocation), state.listed(Agent), state.listed(Job)
    return await rendered(lambda: _tasks(allocations, agents, jobs, pools))


def _tasks(
    allocations: Sequence[Allocation],
    agents: Iterable[Agent],
    jobs: Iterable[Job],
    pools: Mapping[PoolName, PoolPolicy],
) -> GetTasksResponse:
    agent_of, job_of = {str(agent.id): agent for agent in agents}, {job.id: job for job in jobs}
    summaries = {}
    for allocation in yielding(sorted(allocations, key=lambda a: a.id)):
        if allocation.ended:
            continue
        job, policy = job_of.get(allocation.job_id), pools.get(allocation.pool)
        summaries[str(allocation.id)] = render_allocations.summary(
            allocation,
            name=job.name if job else "",
            priority=job.priority if job else None,
            scheduler=policy.scheduler.value if policy else "",
            agents=agent_of,
        )
    return GetTasksResponse(allocation_id_to_summary=summaries)


async def legacy_tasks(call: Call, _: None) -> web.Response:
    """The allocations by the original's older path, which scripts use: a map by allocation with the field names of its records."""
    state, pools = call.api.engine.state, call.api.engine.pools
    allocations, agents, jobs = state.listed(Allocation), state.listed(Agent), state.listed(Job)

    def encoded() -> bytes:
        found = _tasks(allocations, agents, jobs, pools).allocation_id_to_summary
        return msgspec.json.encode({id_: asdict(summary) for id_, summary in yielding(sorted(found.items()))})

    return web.Response(body=await asyncio.to_thread(encoded), content_type="application/json")


async def find_task(api: ApiContext, task: TaskId) -> Trial:
    """The trial of a task. Raises `NotFound` for an unknown task."""
    trial = await find_trial_of(api, task)
    if trial is None:
        raise NotFound("task", task)
    return trial


async def get_task(call: Call, task: TaskRef) -> GetTaskResponse:
    """A task and its allocations."""
    trial = await find_task(call.api, task.id)
    allocations = await call.api.store.allocations_of_task(task.id)
    return GetTaskResponse(task=render_allocations.task(trial, allocations))


async def context_directory(call: Call, task: TaskRef) -> web.Response:
    """The model definition for a task, as a tar.gz archive in base64."""
    trial = await find_task(call.api, task.id)
    experiment = await find_experiment(call.api, trial.experiment_id)
    archive = await call.api.store.get_context(experiment.context_hash) if experiment.context_hash else b""
    if archive is None:
        raise NotFound("context directory of task", task.id)
    return await large_response(GetTaskContextDirectoryResponse(b64_tgz=archive))


_one = task_at("taskId")

ROUTES = (
    Route("GET", "/api/v1/tasks", Action.VIEW, nothing, list_tasks),
    Route("GET", "/tasks", Action.VIEW, nothing, legacy_tasks),
    Route("GET", "/api/v1/tasks/{taskId}", Action.VIEW, _one, get_task),
    Route("GET", "/api/v1/tasks/{taskId}/context_directory", Action.VIEW, _one, context_directory),
)
