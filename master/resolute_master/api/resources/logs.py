"""Logs of trials and tasks: read, followed, and posted by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import LogLevel, OrderBy
from resolute.wire.rest.logs import LogsQuery, TaskLog
from resolute_master.api.auth.authorise import Action, TaskRef
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.limits import MAX_LINE_LENGTH, MAX_LOG_TAIL, MAX_SEARCH_LENGTH
from resolute_master.api.http.streaming import stream
from resolute_master.api.reading.finders import task_at, trial_at
from resolute_master.api.render.logs import task_line, trial_line
from resolute_master.api.resources.tasks import find_task
from resolute_master.api.submission.posted_lines import STORED_LEVELS, Line, PostedLines, bare_lines, wrapped_lines
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, TaskId
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Watch
from resolute_master.store.base import LogQuery
from resolute_master.store.listing import searcher

PAGE = 1000
"""Lines read at a time."""

LISTENER_CHECK_S = 10.0
"""Interval at which a stream without news checks its client."""

Item = Callable[[LogRecord], object]


# --------------------------------------------------------------------------------------------------------- reading


async def trial_logs(call: Call, trial: Trial) -> web.StreamResponse:
    """The log of a trial, as a stream of lines."""
    query = _query(call, trial.task_id)
    lines = lines_of(call, query, trial, lambda record: trial_line(record, trial.id), follow=_follows(call))
    return await stream(call, lines)


async def task_logs(call: Call, task: TaskRef) -> web.StreamResponse:
    """The log of a task, as a stream of lines."""
    trial = await find_task(call.api, task.id)
    return await stream(call, lines_of(call, _query(call, task.id), trial, task_line, follow=_follows(call)))


def _follows(call: Call) -> bool:
    return call.query(LogsQuery).follow


def _query(call: Call, task: TaskId) -> LogQuery:
    asked = call.query(LogsQuery)
    if asked.follow and asked.limit:
        raise InvalidInput("limit: cannot be combined with follow; send one of the two")
    if asked.limit < 0:
        raise InvalidInput(f"limit: {asked.limit} must not be negative; 0 means no limit")
    if asked.follow and asked.order_by is OrderBy.DESC:
        raise InvalidInput("orderBy: a log can only be followed forwards; leave it out")
    if asked.order_by is OrderBy.DESC and not 0 < asked.limit <= MAX_LOG_TAIL:
        raise InvalidInput(
            f"limit: {asked.limit} must be from 1 to {MAX_LOG_TAIL}, the most that is read from the end; read forwards for more"
        )
    if len(asked.search_text or "") > MAX_SEARCH_LENGTH:
        raise InvalidInput(f"searchText: has more than {MAX_SEARCH_LENGTH} characters; shorten it")
    if asked.enable_regex:
        searcher(asked.search_text or "")
    return LogQuery(
        task_ids=(task,),
        limit=asked.limit or None,
        descending=asked.order_by is OrderBy.DESC,
        allocation_ids=asked.allocation_ids,
        agent_ids=asked.agent_ids,
        container_ids=asked.container_ids,
        ranks=asked.rank_ids,
        stdtypes=asked.stdtypes,
        sources=asked.sources,
        levels=tuple("" if level is LogLevel.UNSPECIFIED else level.name for level in asked.levels),
        before=asked.timestamp_before,
        after=asked.timestamp_after,
        text=asked.search_text or "",
        regex=asked.enable_regex,
    )


async def lines_of(
    call: Call, query: LogQuery, trial: Trial, item: Item, *, follow: bool
) -> AsyncGenerator[object, None]:
    """The lines in the form of `item`. With `follow`, also later ones, until the trial ends or the reader disconnects."""
    if query.descending:
        for record in await call.api.store.logs(query):
            yield item(record)
        return
    with call.api.reporting.watch_logs(query.task_ids) as news, call.api.engine.watch("trial", trial.id) as moves:
        last, left, over = query.after_id, query.limit, False
        # What is there now: a task may write faster than it is read.
        end = None if follow else await _newest(call, query)
        while True:
            page = await call.api.store.logs(_page(query, last, left))
            for record in page:
                yield item(record)
            if page:
                last = page[-1].id
                left = None if left is None else left - len(page)
            if left == 0 or (end is not None and last >= end):
                return
            if len(page) == PAGE:
                continue
            if not follow or call.gone:
                return
            # After the end of the task, one quiet moment more: its last lines may still be on their way.
            if over and not page:
                return
            over = is_over(call, trial)
            await (news.changed(call.api.follow_grace_s) if over else first_of(news, moves))


async def _newest(call: Call, query: LogQuery) -> int:
    found = await call.api.store.logs(replace(query, limit=1, descending=True))
    return found[0].id if found else 0


def is_over(call: Call, trial: Trial) -> bool:
    """Whether no further run of the trial will start. The engine holds only trials that may continue in memory."""
    now = call.api.engine.state.get(Trial, trial.id)
    return now is None or now.state.gone


def _page(query: LogQuery, last: int, left: int | None) -> LogQuery:
    return replace(query, after_id=last, limit=PAGE if left is None else min(PAGE, left))


async def first_of(*watches: Watch) -> None:
    """Waits until one of the watches changes, or until the next check is due."""
    waiting = [asyncio.ensure_future(watch.changed()) for watch in watches]
    try:
        await asyncio.wait(waiting, timeout=LISTENER_CHECK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


# --------------------------------------------------------------------------------------------------------- posting


async def post_logs(call: Call, posted: PostedLines) -> Empty:
    """Stores lines of the log of a task."""
    await _store(call, posted)
    return Empty()


async def _store(call: Call, posted: PostedLines) -> None:
    await find_task(call.api, posted.id)
    now, post = call.api.clock.now(), call.api.ids.uuid()
    await call.api.reporting.logs(
        [
            LogRecord(
                key=f"{post}/{number}",
                task_id=posted.id,
                allocation_id=AllocationId(line.allocation_id) if line.allocation_id else None,
                agent_id=line.agent_id or "",
                container_id=line.container_id or "",
                rank=line.rank_id,
                at=line.timestamp or now,
                level=STORED_LEVELS[line.level],
                stdtype=line.stdtype or "stdout",
                source=line.source or "task",
                log=piece,
            )
            for number, (line, piece) in enumerate(_pieces(posted.lines))
        ]
    )


def _pieces(lines: Sequence[Line | TaskLog]) -> Iterable[tuple[Line | TaskLog, str]]:
    """The lines as they are stored. The rest of a line that is too long becomes the next line. An empty line stays one."""
    texts = [line.log for line in lines]
    return zip(lines, texts, strict=True) if max(map(len, texts)) <= MAX_LINE_LENGTH else _cut(lines)


def _cut(lines: Sequence[Line | TaskLog]) -> Iterator[tuple[Line | TaskLog, str]]:
    for line in lines:
        text = line.log
        while len(text) > MAX_LINE_LENGTH:
            yield line, text[:MAX_LINE_LENGTH] + "\n"
            text = text[MAX_LINE_LENGTH:]
        yield line, text


ROUTES = (
    Route("GET", "/api/v1/trials/{trialId}/logs", Action.VIEW, trial_at("trialId"), trial_logs),
    Route("GET", "/api/v1/tasks/{taskId}/logs", Action.VIEW, task_at("taskId"), task_logs),
    Route("POST", "/api/v1/task/logs", Action.REPORT, wrapped_lines, post_logs),
    Route("POST", "/task-logs", Action.REPORT, bare_lines, post_logs),
)
