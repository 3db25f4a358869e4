"""The queue of every pool in order: why each job waits, when it is expected to start, and its place, which is changed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import JobState, JobType
from resolute.wire.rest.jobs import GetJobsQuery, QueueControl, UpdateJobQueueRequest
from resolute.wire.rest.jobs import Job as WireJob
from resolute.wire.rest.why import ExplainJobResponse, JobStart
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing, number_in
from resolute_master.api.reading.finders import find_job
from resolute_master.api.resources.jobs import page_of_queue, update
from resolute_master.api.resources.why import explain_job, pool_starts
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_web.actions import refusal_of
from resolute_web.forms import asking, read_form
from resolute_web.page import Page, page, see
from resolute_web.views.login import inside

PER_PAGE = 100
EXPLAINED = 3
"""Waiting jobs of which the page says what would start them: it is tried out with the scheduler, which takes its time. Each has a
page of its own that says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job. `before` and `after` are its neighbours in the queue of its pool, where it may be moved past them; `by_weight`: its
    pool shares by weights and knows no order."""

    job: WireJob
    refusal: str
    by_weight: bool
    before: str = ""
    after: str = ""
    change: str = ""
    """The smallest change that would start it."""


async def queue(call: Call, _: None) -> web.Response:
    number = max(1, number_in("page", call.request.query.get("page", "1")))
    asked = GetJobsQuery(offset=(number - 1) * PER_PAGE, limit=PER_PAGE, reasons=True)
    try:
        jobs, pages = await page_of_queue(call.api, asked)
    except InvalidInput:
        if number == 1:
            raise
        return see("/det/queue")  # the queue has become shorter than this page's place in it
    waiting = {job.resource_pool for job in jobs if waits(job)}
    return await page(
        call,
        "queue.html",
        title="Queue",
        section="Queue",
        topics=("queue",),
        rows=await _rows(call, jobs),
        total=pages.total,
        number=number,
        per_page=PER_PAGE,
        starts=await _starts(call, waiting),
        experiment=JobType.EXPERIMENT,
        waits=waits,
    )


def waits(job: WireJob) -> bool:
    return job.summary is not None and job.summary.state is JobState.QUEUED


async def _rows(call: Call, jobs: Sequence[WireJob]) -> Sequence[Row]:
    explained = [job.job_id for job in jobs if waits(job)][:EXPLAINED]
    order: dict[str, list[str]] = {}
    for job in jobs:
        order.setdefault(job.resource_pool, []).append(job.job_id)
    found = []
    for job in jobs:
        own = order[job.resource_pool]
        place, weighted = own.index(job.job_id), _by_weight(call, job.resource_pool)
        found.append(
            Row(
                job=job,
                refusal=await _refusal(call, job),
                by_weight=weighted,
                before=own[place - 1] if place and not weighted else "",
                after=own[place + 1] if place + 1 < len(own) and not weighted else "",
                change=await _change(call, job.job_id) if job.job_id in explained else "",
            )
        )
    return found


def _by_weight(call: Call, pool: str) -> bool:
    policy = call.api.engine.pools.get(PoolName(pool))
    return policy is not None and policy.scheduler is SchedulerKind.FAIR_SHARE


async def _refusal(call: Call, job: WireJob) -> str:
    known = call.api.engine.state.get(Job, JobId(job.job_id))
    return "It has ended." if known is None else await refusal_of(call, Action.CONTROL_QUEUE, known)


async def _change(call: Call, job: str) -> str:
    explained = await explain_job(call, await find_job(call.api, "jobId", job))
    return explained.what_if[0].text if explained.what_if else ""


async def _starts(call: Call, pools: set[str]) -> Mapping[str, JobStart]:
    """By job."""
    found: dict[str, JobStart] = {}
    for name in sorted(pools & set(call.api.engine.pools)):
        answer = await pool_starts(call, PoolName(name))
        found |= {each.job_id: each.start for each in answer.starts}
    return found


# ------------------------------------------------------------------------------------------------------------ one job


async def _find(call: Call) -> Job:
    return await find_job(call.api, "jobId", call.text("jobId"))


async def why(call: Call, job: Job) -> web.Response:
    """Everything that is known of why it waits, and each change that would start it."""
    explained: ExplainJobResponse = await explain_job(call, job)
    return await page(
        call,
        "job.html",
        title=f"Why job {job.experiment_id or job.id} waits" if explained.allocation_id else f"Job {job.id}",
        section="Queue",
        topics=("queue",),
        job=job,
        explained=explained,
    )


# ------------------------------------------------------------------------------------------------------------- change


async def change(call: Call, job: Job) -> web.Response:
    """By the call of the API, with one change."""
    form = await read_form(call)
    control = QueueControl(
        job_id=job.id,
        ahead_of=form.text("ahead_of") or None,
        behind_of=form.text("behind_of") or None,
        priority=number_in("priority", form.text("priority")) if form.text("priority") else None,
        weight=_weight(form.text("weight")),
    )
    await update(asking(call, UpdateJobQueueRequest(updates=(control,))), None)
    return see(inside(form.text("back") or "/det/queue"))


def _weight(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidInput(f"weight: '{text[:80]}' is no number; use one above 0") from None


PAGES = (
    Page("GET", "/det/queue", Action.VIEW, nothing, queue),
    Page("GET", "/det/queue/{jobId}", Action.VIEW, _find, why),
    Page("POST", "/det/queue/{jobId}", Action.USE_QUEUE, _find, change),
)
