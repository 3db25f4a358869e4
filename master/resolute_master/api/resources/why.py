"""Why jobs wait, which changes would start them, and the snapshot of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Set

import msgspec
from aiohttp import web

from resolute.config.errors import suggestion
from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.why import ExplainJobResponse, GetPoolStartsQuery, GetPoolStartsResponse, JobStart, PoolStart
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.queue.orders import QueueOrders
from resolute_master.api.queue.positions import UNKNOWN, Moving, moving_from
from resolute_master.api.queue.starts import Foreseen
from resolute_master.api.reading.finders import find_job, trials_of
from resolute_master.decision.markets import sentences
from resolute_master.decision.rehearsing import deciding
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.engine.pool_view import pool_view
from resolute_master.forecast.estimate import Estimate
from resolute_master.lifecycle.budget import check_priced, hold_in, hold_of_pool
from resolute_master.lifecycle.failures import end_of_experiment, last_failed
from resolute_master.lifecycle.workspaces import may_use
from resolute_master.scheduler.explain import explain
from resolute_master.scheduler.explain_message import explain_message
from resolute_master.scheduler.job_states import JobState
from resolute_master.scheduler.rehearsal import Decides
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.snapshot_file import write_snapshot


async def _job(call: Call) -> Job:
    return await find_job(call.api, "jobId", call.text("jobId"))


def reason_to_idle(job: Job, experiment: Experiment | None, moving: Moving | None = None) -> str:
    """The reason why the job has no pending or running allocation in its pool."""
    if experiment is not None and experiment.unmanaged and not experiment.state.gone:
        return "Its trials run outside of the cluster: it is in no queue."
    if job.ended:
        return "It has ended."
    if experiment is not None and experiment.state is ExperimentState.PAUSED:
        return f"Its experiment is paused; `det experiment activate {experiment.id}` continues it."
    if experiment is not None and experiment.state is not ExperimentState.ACTIVE:
        return f"Its experiment is {experiment.state}: no further allocation of it starts."
    if moving is not None:
        return f"It was moved: its work in pool '{moving.pool}' is being preempted, and then requests slots here."
    return "It is between two runs: none of its allocations is pending or running."


def reason_without_pool(job: Job) -> str:
    """The reason for a job whose pool was removed from the configuration after its submission."""
    out = (
        "submit the task again in another pool"
        if job.experiment_id is None
        else f"move the job with `det job update {job.id} --resource-pool POOL`"
    )
    return f"Its pool '{job.pool}' is not configured any more: put it back, or {out}."


def reason_to_hold(hold: str) -> str:
    """The reason for a job that waits for a budget only."""
    return f"It waits for a budget: {hold}."


async def explain_job(call: Call, job: Job) -> ExplainJobResponse:
    """Why a job waits or runs, what would let it start, and when it is expected to."""
    engine = call.api.engine
    experiment = None if job.experiment_id is None else engine.state.get(Experiment, job.experiment_id)
    if job.ended:
        return await _explained_end(call, job, experiment)
    if job.pool not in engine.pools:
        return _explained_without_pool(job, experiment)
    snapshot, cycle = engine.snapshot(job.pool), engine.memory.sequence
    others = {name: engine.snapshot(name) for name in engine.pools if name != job.pool and _may_run_in(call, job, name)}
    markets = sentences(engine.view(job.pool, call.api.clock.now()), job.id)
    decides = deciding(pool_view(engine.state, each, ()) for each in (snapshot, *others.values()))
    explained = await asyncio.to_thread(_explained, snapshot, job, others, decides, cycle, call.api.queue_orders)
    explained = replace(explained, details=(*explained.details, *markets))
    if explained.state == JobState.IDLE:
        moving = moving_from({name: engine.snapshot(name) for name in engine.pools}, job)
        explained = replace(explained, reason=reason_to_idle(job, experiment, moving))
    if explained.allocation_id:
        explained = replace(explained, start=await _start(call, AllocationId(explained.allocation_id)))
    waiting = engine.state.get(Allocation, AllocationId(explained.allocation_id))
    hold = hold_of_pool(engine.state, job.pool) or job.hold_of(waiting.slots_needed if waiting is not None else 0)
    return _held(explained, hold) if hold and explained.allocation_id else explained


async def _explained_end(call: Call, job: Job, experiment: Experiment | None) -> ExplainJobResponse:
    """The reason why a job has ended. For a failed experiment it is the text of the experiment's log."""
    if experiment is None and job.experiment_id is not None:
        experiment = await call.api.store.experiment(job.experiment_id)
    answer = ExplainJobResponse(job_id=job.id, state=JobState.IDLE, reason=reason_to_idle(job, experiment))
    if experiment is None or experiment.state is not ExperimentState.ERROR:
        return answer
    trials = await trials_of(call.api, experiment)
    first, *lines = end_of_experiment(experiment, trials, last_failed(trials)).split("\n")
    return replace(answer, reason=f"{answer.reason} {first}", details=tuple(line.removeprefix("  ") for line in lines))


def _explained_without_pool(job: Job, experiment: Experiment | None) -> ExplainJobResponse:
    """The reason why a job without a pool does not start. If the experiment is not active, that reason comes first."""
    reason = reason_without_pool(job)
    if experiment is None or experiment.state is ExperimentState.ACTIVE:
        return ExplainJobResponse(
            job_id=job.id, state=JobState.QUEUED, reason=reason, pool=job.pool, jobs_ahead=UNKNOWN
        )
    idle = reason_to_idle(job, experiment)
    return ExplainJobResponse(job_id=job.id, state=JobState.IDLE, reason=idle, pool=job.pool, details=(reason,))


def _held(explained: ExplainJobResponse, hold: str) -> ExplainJobResponse:
    return replace(explained, reason=reason_to_hold(hold), blockers=None, what_if=(), gave_up=(), start=None)


async def _start(call: Call, allocation: AllocationId) -> JobStart | None:
    """The estimated start; None if the allocation started or ended during the estimate."""
    api = call.api
    waiting = api.engine.state.get(Allocation, allocation)
    if waiting is None:
        return None
    found = await api.starts.of_one(api.engine, api.store, waiting, api.clock)
    return None if found is None else _shown(found)


def _shown(found: Estimate) -> JobStart:
    return JobStart(expected_at=found.expected_at, earliest=found.earliest, latest=found.latest, basis=found.basis)


def _may_run_in(call: Call, job: Job, pool: PoolName) -> bool:
    """Whether the job can be moved to the pool, and no budget would stop it there. Only an experiment can be moved, and only to a
    pool that is not bound to other workspaces."""
    state, policy = call.api.engine.state, call.api.engine.pools[pool]
    experiment = None if job.experiment_id is None else state.get(Experiment, job.experiment_id)
    if experiment is None or not may_use(state, pool, job.workspace_id):
        return False
    if experiment.max_cost is not None:
        try:
            check_priced(state, policy, pool)
        except InvalidInput:
            return False
    return not (hold_of_pool(state, pool) or hold_in(state, policy, job.workspace_id))


def _explained(
    snapshot: PoolSnapshot,
    job: Job,
    others: dict[PoolName, PoolSnapshot],
    decides: Decides,
    cycle: int,
    orders: QueueOrders,
) -> ExplainJobResponse:
    order = orders.of(job.pool, snapshot).order
    return explain_message(
        snapshot, job.id, explain(snapshot, job.id, others, decides=decides, order=order), cycle=cycle
    )


# -------------------------------------------------------------------------------------------------------- the snapshot


async def _pool(call: Call) -> PoolName:
    name = PoolName(call.text("poolName"))
    if name not in call.api.engine.pools:
        raise NotFound("resource pool", name, suggestion(name, call.api.engine.pools))
    return name


async def pool_snapshot(call: Call, pool: PoolName) -> web.Response:
    """The snapshot of a pool, as a file that `det job schedule` reads."""
    snapshot = call.api.engine.snapshot(pool)
    body = await asyncio.to_thread(lambda: msgspec.json.encode(write_snapshot(snapshot)))
    return web.Response(body=body, content_type="application/json")


async def pool_starts(call: Call, pool: PoolName) -> GetPoolStartsResponse:
    """Estimated starts of the jobs of a pool. The start of a job with several pending allocations is the earliest of them."""
    api, asked = call.api, set(call.query(GetPoolStartsQuery).job_ids)
    snapshot = api.engine.snapshot(pool)
    newest = await api.starts.of_all(api.engine, api.store, pool, api.clock)
    if newest is None:
        return GetPoolStartsResponse(starts=())
    return await asyncio.to_thread(_pool_starts, snapshot, newest, asked, hold_of_pool(api.engine.state, pool))


def _pool_starts(snapshot: PoolSnapshot, newest: Foreseen, asked: Set[str], closed: str) -> GetPoolStartsResponse:
    """The answer with the starts. `closed`: the budget that stops all starts in the pool, or ""."""
    found = newest.starts
    first: dict[JobId, AllocationId] = {}
    for id_ in sorted(found, key=lambda id_: (found[id_].expected_at is None, found[id_].expected_at, id_)):
        allocation = snapshot.allocations.get(id_)
        # What has started since then waits no more.
        if allocation is not None and waits(allocation) and (not asked or allocation.job_id in asked):
            first.setdefault(allocation.job_id, id_)
    return GetPoolStartsResponse(
        starts=tuple(
            PoolStart(
                job_id=job,
                allocation_id=id_,
                start=_unless_held(
                    found[id_], closed or snapshot.jobs[job].hold_of(snapshot.allocations[id_].slots_needed)
                ),
            )
            for job, id_ in sorted(first.items())
        ),
        computed_at=newest.at,
    )


def _unless_held(found: Estimate, hold: str) -> JobStart:
    return JobStart(basis=f"it waits for a budget: {hold}") if hold else _shown(found)


ROUTES = (
    Route("GET", "/api/v1/jobs/{jobId}/explain", Action.VIEW, _job, explain_job),
    Route("GET", "/api/v1/resource-pools/{poolName}/snapshot", Action.VIEW, _pool, pool_snapshot),
    Route("GET", "/api/v1/resource-pools/{poolName}/starts", Action.VIEW, _pool, pool_starts),
)
