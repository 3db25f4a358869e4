"""The right to change a job's place: its owner may, but not ahead of the work of others."""

from __future__ import annotations

from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, allow
from resolute_master.api.reading.finders import find_job
from resolute_master.domain.commands import UpdateJob
from resolute_master.domain.pool import SchedulerKind
from resolute_master.lifecycle.overtaking import overtaken


async def allow_queue_change(call: Call, change: UpdateJob) -> None:
    """Raises `PermissionDenied`. To put a job ahead of another, a caller needs the right to move both."""
    job = await find_job(call.api, "jobId", change.job)
    await allow(call, Action.CONTROL_QUEUE, job)
    policy = call.api.engine.pools.get(job.pool)
    if policy is None or policy.scheduler is not SchedulerKind.FAIR_SHARE:
        await allow(call, Action.OVERTAKE, overtaken(call.api.engine.state, change))
