"""The job queue: list, statistics, changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resolute.errors import InvalidInput, PermissionDenied, ResoluteError
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import JobState, JobType, OrderBy
from resolute.wire.rest.jobs import (
    GetJobQueueStatsResponse,
    GetJobsQuery,
    GetJobsResponse,
    GetJobsV2Response,
    QueueControl,
    RBACJob,
    RPQueueStat,
    UpdateJobQueueRequest,
)
from resolute.wire.rest.jobs import Job as WireJob
from resolute.wire.rest.paging import Pagination
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Also, Call, Route, nothing
from resolute_master.api.http.paging import page_of
from resolute_master.api.queue.orders import PoolQueue, QueueOrders, Row
from resolute_master.api.queue.positions import (
    moving_from,
    queue_stats,
    standing_while_moving,
    standing_without_pool,
    summary_of,
)
from resolute_master.api.queue.rights import allow_queue_change
from resolute_master.api.reading.finders import find_experiment, find_job, job_id_of
from resolute_master.api.resources.why import reason_to_hold, reason_to_idle, reason_without_pool
from resolute_master.decision.rehearsing import deciding
from resolute_master.domain.commands import UpdateJob
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, JobId, PoolName, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.user import User
from resolute_master.engine.pool_view import pool_view
from resolute_master.event_loop import yielding
from resolute_master.lifecycle.budget import hold_of_pool
from resolute_master.lifecycle.jobs import refuse_unqueued
from resolute_master.scheduler import job_states as scheduler
from resolute_master.scheduler.explain import reasons_of
from resolute_master.scheduler.job_states import JobOrder, JobStanding
from resolute_master.scheduler.rehearsal import Decides
from resolute_master.scheduler.snapshot import PoolSnapshot

DEFAULT_PAGE = 100


def _pool_names(api: ApiContext, asked: str | None) -> tuple[PoolName, ...]:
    if not asked:
        return tuple(sorted(api.engine.pools))
    return (PoolName(api.config.pool(asked, key="resourcePool").pool_name),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The state from which a list is made, at one moment. Another thread reads it, because the list examines every job."""

    snapshots: Mapping[PoolName, PoolSnapshot]
    jobs: Mapping[JobId, Job]
    all_pools: Mapping[PoolName, PoolSnapshot]
    experiments: Mapping[ExperimentId, Experiment]
    users: Mapping[UserId, User]
    holds: Mapping[PoolName, str]
    """The budget that stops all starts in the pool, by pool; "" for none."""
    decides: Decides
    """Computes the decision of a pool."""

    def experiment(self, job: Job) -> Experiment | None:
        return None if job.experiment_id is None else self.experiments.get(job.experiment_id)


async def page_of_queue(api: ApiContext, query: GetJobsQuery) -> tuple[tuple[WireJob, ...], Pagination]:
    """A page of jobs, sorted by jobs ahead, then id."""
    engine = api.engine
    if query.limit < 0:
        raise InvalidInput(f"limit: {query.limit} must not be negative; 0 means the default, {DEFAULT_PAGE}")
    pools = _pool_names(api, query.resource_pool)
    seen = _Seen(
        snapshots={pool: engine.snapshot(pool) for pool in pools},
        all_pools={pool: engine.snapshot(pool) for pool in engine.pools},
        jobs=engine.state.by_key(Job),
        experiments=engine.state.by_key(Experiment),
        users=engine.state.by_key(User),
        holds={pool: hold_of_pool(engine.state, pool) for pool in pools},
        decides=deciding(pool_view(engine.state, engine.snapshot(pool), ()) for pool in pools),
    )
    return await asyncio.to_thread(_page, seen, query, api.queue_orders)


def _page(seen: _Seen, query: GetJobsQuery, orders: QueueOrders) -> tuple[tuple[WireJob, ...], Pagination]:
    """A page of the sorted queues. The state of a job is determined for the page only, unless the query filters by state."""
    queues = {pool: orders.of(pool, snapshot) for pool, snapshot in seen.snapshots.items()}
    standing = _Standings(seen, {pool: queue.order for pool, queue in queues.items()})
    rows = _rows(seen, query, queues, standing)
    wanted = [state for state in query.states if state is not JobState.UNSPECIFIED]
    if wanted:
        rows = [row for row in yielding(rows) if summary_of(standing.of(row[2])).state in wanted]
    if query.order_by is OrderBy.DESC:
        rows.reverse()
    page, pages = page_of(rows, offset=query.offset, limit=query.limit or DEFAULT_PAGE)
    found = [(seen.jobs[id_], standing.of(id_)) for _, _, id_ in page]
    reasons = _reasons(seen, found) if query.reasons else {}
    shown = (_show(seen, job, at, reasons.get(job.id)) for job, at in yielding(found))
    return tuple(shown), pages


def _rows(seen: _Seen, query: GetJobsQuery, queues: Mapping[PoolName, PoolQueue], standing: _Standings) -> list[Row]:
    """The places of all listed jobs, by pool; jobs in no order come first."""
    others: dict[PoolName, list[Row]] = {}
    in_no_order = seen.jobs.keys() - frozenset[JobId]().union(*(queue.own for queue in queues.values()))
    for job in yielding(seen.jobs[id_] for id_ in in_no_order):
        if job.pool not in queues and query.resource_pool:
            continue
        if standing.is_listed(job):
            others.setdefault(job.pool, []).append((job.pool, summary_of(standing.of(job.id)).jobs_ahead, job.id))
    rows: list[Row] = []
    for pool in sorted({*others, *queues}):
        rows += sorted(others.get(pool, ()))
        if pool in queues:
            rows += queues[pool].rows
    return rows


class _Standings:
    """The states of jobs, computed on demand."""

    def __init__(self, seen: _Seen, order: Mapping[PoolName, JobOrder]) -> None:
        self._seen = seen
        self._order = order

    def of(self, id_: JobId) -> JobStanding | None:
        job = self._seen.jobs[id_]
        if job.pool not in self._order:
            return _without_pool(job, self._seen.experiment(job))
        standing = self._order[job.pool].standing(id_)
        if standing is None and not job.ended and (moving := moving_from(self._seen.all_pools, job)) is not None:
            return standing_while_moving(id_, moving.slots)
        return standing

    def is_listed(self, job: Job) -> bool:
        """Whether a job is listed. A job that is in no order is listed if its experiment is active: paused experiments are no
        part of the queue."""
        if job.ended:
            return False
        experiment = self._seen.experiment(job)
        active = experiment is not None and experiment.state is ExperimentState.ACTIVE
        return active or self.of(job.id) is not None


def _without_pool(job: Job, experiment: Experiment | None) -> JobStanding | None:
    """The standing of a job in no configured pool. Its pool was removed from the configuration."""
    active = experiment is None or experiment.state is ExperimentState.ACTIVE
    return standing_without_pool(job.id) if active else None


def _reasons(seen: _Seen, rows: Sequence[tuple[Job, JobStanding | None]]) -> dict[JobId, str]:
    """Reasons why jobs of these rows do not run, as in `explain`. It takes at most two decisions per pool."""
    reasons: dict[JobId, str] = {}
    waiting: dict[PoolName, list[JobId]] = {}
    for job, standing in rows:
        if standing is None or standing.state is scheduler.JobState.IDLE:
            reasons[job.id] = reason_to_idle(job, seen.experiment(job), moving_from(seen.all_pools, job))
        elif standing.state is scheduler.JobState.QUEUED:
            if job.pool not in seen.snapshots:
                reasons[job.id] = reason_without_pool(job)
            elif hold := seen.holds[job.pool] or job.hold_of(standing.requested_slots):
                reasons[job.id] = reason_to_hold(hold)
            else:
                waiting.setdefault(job.pool, []).append(job.id)
    for pool, jobs in waiting.items():
        reasons |= reasons_of(seen.snapshots[pool], jobs, walk=yielding, decides=seen.decides)
    return reasons


def _show(seen: _Seen, job: Job, standing: JobStanding | None, reason: str | None) -> WireJob:
    owner, experiment = seen.users.get(job.owner), seen.experiment(job)
    return WireJob(
        job_id=job.id,
        entity_id=str(job.experiment_id if job.experiment_id is not None else job.id),
        type=JobType[job.kind],
        name=job.name,
        username=owner.username if owner else "",
        user_id=job.owner,
        workspace_id=job.workspace_id,
        resource_pool=job.pool,
        priority=job.priority,
        weight=job.weight,
        progress=experiment.progress if experiment else 0.0,
        is_preemptible=experiment is not None,
        requested_slots=standing.requested_slots if standing else 0,
        allocated_slots=standing.allocated_slots if standing else 0,
        submission_time=job.submitted_at,
        reason=reason,
        summary=summary_of(standing),
    )


async def list_jobs(call: Call, _: None) -> GetJobsResponse:
    """One page of the job queue of a resource pool."""
    rows, pages = await page_of_queue(call.api, call.query(GetJobsQuery))
    return GetJobsResponse(jobs=rows, pagination=pages)


async def list_jobs_v2(call: Call, _: None) -> GetJobsV2Response:
    """One page of the job queue of a resource pool, in the second form of the contract."""
    rows, pages = await page_of_queue(call.api, call.query(GetJobsQuery))
    return GetJobsV2Response(jobs=tuple(RBACJob(full=job) for job in rows), pagination=pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatsQuery:
    resource_pools: tuple[str, ...] = ()


async def stats(call: Call, _: None) -> GetJobQueueStatsResponse:
    """Statistics of the queues of pools. A pool that does not exist has none."""
    asked = call.query(_StatsQuery).resource_pools
    names = [name for name in asked or sorted(call.api.engine.pools) if PoolName(name) in call.api.engine.pools]
    snapshots = [(name, call.api.engine.snapshot(PoolName(name))) for name in names]

    def count() -> tuple[RPQueueStat, ...]:
        return tuple(RPQueueStat(resource_pool=name, stats=queue_stats(snapshot)) for name, snapshot in snapshots)

    return GetJobQueueStatsResponse(results=await asyncio.to_thread(count))


# --------------------------------------------------------------------------------------------------------- changes


async def update(call: Call, _: None) -> Empty:
    """Makes each change separately. If some are refused, the others are made, and the error names each refused one."""
    request = await call.body(UpdateJobQueueRequest)
    refused: list[str] = []
    forbidden = 0
    for control in request.updates:
        try:
            command = await _command(call.api, control)
            await allow_queue_change(call, command)
            await call.api.engine.submit(command)
        except ResoluteError as error:
            forbidden += isinstance(error, PermissionDenied)
            job, text = f"job '{control.job_id}'", str(error)
            refused.append(text if text.startswith(job) or job in text else f"{job}: {text}")
    if refused:
        made = len(request.updates) - len(refused)
        others = f"; the other {made} of {len(request.updates)} changes were made" if made else ""
        kind = PermissionDenied if forbidden == len(refused) else InvalidInput
        raise kind("; ".join(refused) + others)
    return Empty()


async def _command(api: ApiContext, control: QueueControl) -> UpdateJob:
    """The command of a change. Empty texts count as absent, because some clients send them. Raises `ResoluteError`."""
    ahead_of, behind_of, pool = control.ahead_of or None, control.behind_of or None, control.resource_pool or None
    if sum(v is not None for v in (control.priority, control.weight, pool, ahead_of, behind_of)) != 1:
        raise InvalidInput("set exactly one of priority, weight, resourcePool, aheadOf, behindOf")
    job = await find_job(api, "jobId", control.job_id)
    refuse_unqueued(job)
    return UpdateJob(
        job=job.id,
        priority=control.priority,
        weight=control.weight,
        pool=None if pool is None else await _keeping_pool(api, job, pool),
        ahead_of=None if ahead_of is None else await job_id_of(api, "aheadOf", ahead_of),
        behind_of=None if behind_of is None else await job_id_of(api, "behindOf", behind_of),
    )


async def _keeping_pool(api: ApiContext, job: Job, name: str) -> PoolName:
    """The pool, which must keep the checkpoints of the job, as at its submission."""
    pool = PoolName(api.config.pool(name, key="resourcePool").pool_name)
    if job.experiment_id is not None:
        storage = (await find_experiment(api, job.experiment_id)).config.get("checkpoint_storage") or {}
        if why := api.config.pool_loses_files(pool, storage.get("type")):
            raise InvalidInput(f"checkpoint_storage.type: {why}")
    return pool


_CHANGES = (Also(Action.CONTROL_QUEUE), Also(Action.OVERTAKE, "ahead of others' work"))

ROUTES = (
    Route("GET", "/api/v1/job-queues", Action.VIEW, nothing, list_jobs),
    Route("GET", "/api/v1/job-queues-v2", Action.VIEW, nothing, list_jobs_v2),
    Route("GET", "/api/v1/job-queues/stats", Action.VIEW, nothing, stats),
    Route("POST", "/api/v1/job-queues", Action.USE_QUEUE, nothing, update, also=_CHANGES),
)
