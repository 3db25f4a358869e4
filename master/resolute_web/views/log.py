"""The log of a trial: its end, which is followed, or the lines around one of them; searched, and by rank and level."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput, ResoluteError
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, number_in
from resolute_master.api.http.limits import MAX_SEARCH_LENGTH
from resolute_master.api.resources.logs import lines_of
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.trial import Trial
from resolute_master.store.base import LogQuery
from resolute_web.page import HEADERS, Page, see
from resolute_web.views.trial import find, tabbed

TAIL = 1000
"""Lines that a page begins with."""

AROUND = 200
"""Lines that are shown before the one that was jumped to."""

LEVELS: Mapping[str, Sequence[str]] = {
    "warning": ("WARNING", "ERROR", "CRITICAL"),
    "error": ("ERROR", "CRITICAL"),
}
"""What "this level and worse" means."""

SIGNS_OF_ERRORS = r"(?i)\b(traceback|error|exception|fatal|killed)\b"
"""What programs write that say no level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an address asks for. `at` is the line that is jumped to; 0 for the end of the log."""

    text: str = ""
    level: str = ""
    rank: str = ""
    at: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Wanted:
        """Raises `InvalidInput` for what no log has."""
        text, level = query.get("q", "").strip(), query.get("level", "")
        if len(text) > MAX_SEARCH_LENGTH:
            raise InvalidInput(f"q: has more than {MAX_SEARCH_LENGTH} characters; shorten it")
        if level and level not in LEVELS:
            raise InvalidInput(f"level: '{level[:80]}' is not known; use {', '.join(LEVELS)}")
        rank = query.get("rank", "").strip()
        if rank:
            number_in("rank", rank)
        return cls(text=text, level=level, rank=rank, at=number_in("at", query.get("at", "0") or "0"))

    @property
    def filtered(self) -> bool:
        return bool(self.text or self.level or self.rank)

    def fields(self, **more: object) -> str:
        """The filters as a query, for the stream and for other places of the log."""
        values = {"q": self.text, "level": self.level, "rank": self.rank, **more}
        return urlencode({name: str(value) for name, value in values.items() if value not in ("", None)})

    def query(self, trial: Trial, **more: Any) -> LogQuery:
        return LogQuery(
            task_ids=(trial.task_id,),
            text=self.text,
            levels=tuple(LEVELS.get(self.level, ())),
            ranks=(int(self.rank),) if self.rank else (),
            **more,
        )


async def log(call: Call, trial: Trial) -> web.Response:
    wanted = Wanted.of(call.request.query)
    if call.request.query.get("first") == "error":
        return await _to_first_error(call, trial)
    found = await (_around(call, trial, wanted) if wanted.at else _tail(call, trial, wanted))
    return await tabbed(
        call,
        trial,
        "logs",
        "trial_logs.html",
        lines=[_shown(record) for record in found],
        last=found[-1].id if found else 0,
        full=not wanted.at and len(found) == TAIL,
        tail=TAIL,
        wanted=wanted,
        levels=LEVELS,
        no_error=call.request.query.get("none") == "error",
    )


async def _tail(call: Call, trial: Trial, wanted: Wanted) -> Sequence[LogRecord]:
    found = await call.api.store.logs(wanted.query(trial, limit=TAIL, descending=True))
    return tuple(reversed(found))


async def _around(call: Call, trial: Trial, wanted: Wanted) -> Sequence[LogRecord]:
    """The line, what was written before it, and what follows."""
    after = await call.api.store.logs(wanted.query(trial, after_id=wanted.at - 1, limit=TAIL))
    if not after:
        return await _tail(call, trial, wanted)
    before = await call.api.store.logs(wanted.query(trial, before=after[0].at, limit=AROUND, descending=True))
    return (*(record for record in reversed(before) if record.id < after[0].id), *after)


async def _to_first_error(call: Call, trial: Trial) -> web.Response:
    """By the levels that lines say; where none says an error, by what programs write."""
    path = f"/det/experiments/{trial.experiment_id}/trials/{trial.id}/logs"
    task = (trial.task_id,)
    for query in (
        LogQuery(task_ids=task, levels=tuple(LEVELS["error"]), limit=1),
        LogQuery(task_ids=task, text=SIGNS_OF_ERRORS, regex=True, limit=1),
    ):
        for record in await call.api.store.logs(query):
            return see(f"{path}?at={record.id}#line-{record.id}")
    return see(f"{path}?none=error")


def _shown(record: LogRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "at": record.at.isoformat(),
        "level": record.level.lower(),
        "rank": record.rank,
        "text": record.log.rstrip("\n"),
    }


# ------------------------------------------------------------------------------------------------------------- follow


async def follow(call: Call, trial: Trial) -> web.StreamResponse:
    """Lines after the one that the page or the browser had last, as server-sent events, until the trial is over."""
    after = call.request.headers.get("Last-Event-ID") or call.request.query.get("after", "0")
    query = Wanted.of(call.request.query).query(trial, after_id=number_in("after", after))
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(call.request)
    try:
        async with aclosing(lines_of(call, query, trial, _shown, follow=True)) as lines:
            await _send(call, response, lines)
        await response.write(b"event: end\ndata: end\n\n")
    except (ConnectionResetError, ResoluteError):
        pass  # the tab is closed, or its session has ended: its next request gets the error
    return response


async def _send(call: Call, response: web.StreamResponse, lines: AsyncGenerator[Any, None]) -> None:
    async for line in lines:
        call.admit_again()
        await response.write(b"event: line\nid: %d\ndata: %s\n\n" % (line["id"], msgspec.json.encode(line)))


_AT = "/det/experiments/{experimentId}/trials/{trialId}/logs"

PAGES = (
    Page("GET", _AT, Action.VIEW, find, log),
    Page("GET", f"{_AT}/follow", Action.VIEW, find, follow),
)
