"""Log lines as tasks post them, decoded once a request and at one go: a task may write thousands a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec

from resolute.errors import InvalidInput
from resolute.wire.codec import from_wire
from resolute.wire.rest.enums import LogLevel
from resolute.wire.rest.logs import PostTaskLogsRequest, TaskLog
from resolute.wire.times import check_times, is_settled
from resolute_master.api.auth.authorise import TaskRef
from resolute_master.api.http.bodies import parse_json
from resolute_master.api.http.call import THREAD_ABOVE_BYTES, Call
from resolute_master.api.http.limits import MAX_LOG_LINES_PER_POST
from resolute_master.domain.ids import AllocationId, TaskId

STORED_LEVELS: Mapping[str | None, str] = {None: ""} | {
    spelled: "" if level is LogLevel.UNSPECIFIED else level.name
    for level in LogLevel
    for spelled in (level.value, level.name, level.name.lower())
}
"""Shippers of the contract write some levels without their prefix; a line is stored with the name alone."""


class Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, gc=False):
    """A `TaskLog` in the form that every shipper sends; what is in another form is decoded as one, slowly."""

    log: str
    task_id: str
    agent_id: str | None = None
    allocation_id: AllocationId | None = None
    container_id: str | None = None
    id: None = None
    level: str | None = None
    rank_id: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    source: str | None = None
    stdtype: str | None = None
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _Wrapped(msgspec.Struct, forbid_unknown_fields=True):
    logs: list[Line]


_bare = msgspec.json.Decoder(list[Line])
_wrapped = msgspec.json.Decoder(_Wrapped)


@dataclass(frozen=True, slots=True)
class PostedLines(TaskRef):
    """The one task that all lines belong to, and the lines; each level is a key of `STORED_LEVELS`."""

    lines: Sequence[Line | TaskLog]


async def bare_lines(call: Call) -> PostedLines:
    """A body that is a list of lines. Raises `InvalidInput`."""
    raw = await call.raw()
    lines = _at_one_go(_bare.decode, raw)
    return _of_one_task(await _carefully(_bare_lines, raw) if lines is None else lines)


async def wrapped_lines(call: Call) -> PostedLines:
    """A body `{"logs": [...]}`. Raises `InvalidInput`."""
    raw = await call.raw()
    lines = _at_one_go(lambda body: _wrapped.decode(body).logs, raw)
    return _of_one_task(await _carefully(lambda body: _task_logs(parse_json(body)), raw) if lines is None else lines)


def _at_one_go(decode: Callable[[bytes], list[Line]], raw: bytes) -> list[Line] | None:
    """None for a body that has to be looked at with more care."""
    try:
        lines = decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    known = {line.level for line in lines} <= STORED_LEVELS.keys()
    return lines if known and all(is_settled(line.timestamp) for line in lines) else None


async def _carefully(read: Any, raw: bytes) -> Sequence[TaskLog]:
    """By the general codec, which locates errors and accepts other forms of the same values."""
    lines: Sequence[TaskLog] = await asyncio.to_thread(read, raw) if len(raw) > THREAD_ABOVE_BYTES else read(raw)
    return lines


def _bare_lines(raw: bytes) -> Sequence[TaskLog]:
    body = parse_json(raw)
    if not isinstance(body, list):
        raise InvalidInput("the body must be a list of lines")
    return _task_logs({"logs": body})


def _task_logs(body: Any) -> Sequence[TaskLog]:
    lines = body.get("logs") if isinstance(body, dict) else None
    for line in lines if isinstance(lines, list) else ():
        level = line.get("level") if isinstance(line, dict) else None
        if isinstance(level, str) and level.upper() in LogLevel.__members__:
            line["level"] = LogLevel[level.upper()].value
    request = from_wire(PostTaskLogsRequest, body)
    check_times(request)
    found = request.logs
    if any(line.id is not None for line in found):
        raise InvalidInput("logs.id: the master assigns it; leave it out")
    return found


def _of_one_task(lines: Sequence[Line | TaskLog]) -> PostedLines:
    if not lines:
        raise InvalidInput("logs: send at least one line")
    if len(lines) > MAX_LOG_LINES_PER_POST:
        raise InvalidInput(
            f"logs: {len(lines)} lines are over the limit of {MAX_LOG_LINES_PER_POST}; send them in parts"
        )
    tasks = sorted({line.task_id for line in lines})
    if len(tasks) > 1:
        raise InvalidInput(f"logs: all lines must be of one task, and these are of {', '.join(tasks[:5])}")
    return PostedLines(TaskId(tasks[0]), lines)
