"""The values by which a log can be filtered; as a stream, for a log that is followed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from aiohttp import web

from resolute.wire.rest.model_files import LogFieldsQuery, TaskLogsFieldsResponse, TrialLogsFieldsResponse
from resolute_master.api.auth.authorise import Action, TaskRef
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.streaming import stream
from resolute_master.api.reading.finders import task_at, trial_at
from resolute_master.api.resources.logs import first_of, is_over
from resolute_master.api.resources.tasks import find_task
from resolute_master.domain.ids import TaskId
from resolute_master.domain.trial import Trial
from resolute_master.store.base import LogFields

Item = Callable[[LogFields], object]


async def of_trial(call: Call, trial: Trial) -> web.StreamResponse:
    """Values of the fields by which the log of a trial can be filtered."""
    return await stream(call, _values(call, trial.task_id, trial, _of_trial, follow=call.query(LogFieldsQuery).follow))


async def of_task(call: Call, task: TaskRef) -> web.StreamResponse:
    """Values of the fields by which the log of a task can be filtered."""
    trial = await find_task(call.api, task.id)
    return await stream(call, _values(call, task.id, trial, _of_task, follow=call.query(LogFieldsQuery).follow))


def _of_trial(found: LogFields) -> TrialLogsFieldsResponse:
    return TrialLogsFieldsResponse(
        agent_ids=found.agent_ids,
        container_ids=found.container_ids,
        rank_ids=found.ranks,
        sources=found.sources,
        stdtypes=found.stdtypes,
    )


def _of_task(found: LogFields) -> TaskLogsFieldsResponse:
    return TaskLogsFieldsResponse(
        agent_ids=found.agent_ids,
        allocation_ids=found.allocation_ids,
        container_ids=found.container_ids,
        rank_ids=found.ranks,
        sources=found.sources,
        stdtypes=found.stdtypes,
    )


async def _values(call: Call, task: TaskId, trial: Trial, item: Item, *, follow: bool) -> AsyncGenerator[object, None]:
    """A message with the present values, then messages with new ones, until the trial ends or the reader disconnects."""
    with call.api.reporting.watch_logs((task,)) as news, call.api.engine.watch("trial", trial.id) as moves:
        known, begun, over = LogFields(), False, False
        while True:
            found = await call.api.store.log_fields(task, after_id=known.last_id)
            fresh = found.without(known)
            if fresh.some or not begun:
                yield item(fresh)
            begun, known = True, known.joined(found)
            if not follow or call.gone or (over and not found.some):
                return
            over = is_over(call, trial)
            await (news.changed(call.api.follow_grace_s) if over else first_of(news, moves))


ROUTES = (
    Route("GET", "/api/v1/trials/{trialId}/logs/fields", Action.VIEW, trial_at("trialId"), of_trial),
    Route("GET", "/api/v1/tasks/{taskId}/logs/fields", Action.VIEW, task_at("taskId"), of_task),
)
