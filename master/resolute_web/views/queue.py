"""The queue of every pool in order: why each job waits, and when it is expected to start."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import JobState, JobType
from resolute.wire.rest.jobs import GetJobsQuery
from resolute.wire.rest.why import JobStart
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, nothing, number_in
from resolute_master.api.jobs import page_of_queue
from resolute_master.api.why import pool_starts
from resolute_master.domain.ids import PoolName
from resolute_web.page import Page, page, see

PER_PAGE = 100


async def queue(call: Call, _: None) -> web.Response:
    number = max(1, number_in("page", call.request.query.get("page", "1")))
    asked = GetJobsQuery(offset=(number - 1) * PER_PAGE, limit=PER_PAGE, reasons=True)
    try:
        jobs, pages = await page_of_queue(call.api, asked)
    except InvalidInput:
        if number == 1:
            raise
        return see("/det/queue")  # the queue has become shorter than this page's place in it
    waiting = {job.resource_pool for job in jobs if job.summary is not None and job.summary.state is JobState.QUEUED}
    return await page(
        call,
        "queue.html",
        title="Queue",
        section="Queue",
        topics=("queue",),
        jobs=jobs,
        total=pages.total,
        number=number,
        per_page=PER_PAGE,
        starts=await _starts(call, waiting),
        experiment=JobType.EXPERIMENT,
    )


async def _starts(call: Call, pools: set[str]) -> Mapping[str, JobStart]:
    """By job."""
    found: dict[str, JobStart] = {}
    for name in sorted(pools & set(call.api.engine.pools)):
        answer = await pool_starts(call, PoolName(name))
        found |= {each.job_id: each.start for each in answer.starts}
    return found


PAGES = (Page("GET", "/det/queue", Action.VIEW, nothing, queue),)
