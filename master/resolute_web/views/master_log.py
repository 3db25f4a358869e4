"""The log of the master, as far as it is kept in memory: its end, which is followed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput, ResoluteError
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, nothing, number_in
from resolute_master.api.reading.log_ring import LogLine
from resolute_master.api.resources.master import wait_for_news
from resolute_web.page import HEADERS, Page
from resolute_web.views.administration import ADMIN, tabbed

TAIL = 1000
LEVELS: Mapping[str, Sequence[str]] = {
    "info": ("INFO", "WARNING", "ERROR", "CRITICAL"),
    "warning": ("WARNING", "ERROR", "CRITICAL"),
    "error": ("ERROR", "CRITICAL"),
}


class _Filter:
    """What an address asks for."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.text, self.level = query.get("q", "").strip(), query.get("level", "")
        if self.level and self.level not in LEVELS:
            raise InvalidInput(f"level: '{self.level[:80]}' is not known; use {', '.join(LEVELS)}")

    def fits(self, line: LogLine) -> bool:
        right_level = not self.level or line.level in LEVELS[self.level]
        return right_level and self.text.lower() in line.message.lower()


async def log(call: Call, _: None) -> web.Response:
    wanted, ring = _Filter(call.request.query), call.api.master_log
    lines = [_shown(line) for line in ring.after(0) if wanted.fits(line)][-TAIL:]
    return await tabbed(call, "logs", "admin_logs.html", lines=lines, last=ring.last, wanted=wanted, levels=LEVELS)


def _shown(line: LogLine) -> dict[str, Any]:
    return {
        "id": line.id,
        "at": line.at.isoformat(),
        "level": line.level.lower(),
        "rank": None,
        "text": line.message,
    }


async def follow(call: Call, _: None) -> web.StreamResponse:
    """Lines after the one that the page had last. A restarted master counts again: a number beyond its last one begins again."""
    wanted, ring = _Filter(call.request.query), call.api.master_log
    last = number_in("after", call.request.headers.get("Last-Event-ID") or call.request.query.get("after", "0"))
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(call.request)
    try:
        with ring.follow() as news:
            while not call.gone:
                call.admit_again()
                lines = ring.after(last if last <= ring.last else 0)
                for line in lines:
                    last = line.id
                    if wanted.fits(line):
                        data = msgspec.json.encode(_shown(line))
                        await response.write(b"event: line\nid: %d\ndata: %s\n\n" % (line.id, data))
                if not lines:
                    await response.write(b": still here\n\n")
                await wait_for_news(call, news)
    except (ConnectionResetError, ResoluteError):
        pass  # the tab is gone, or its session
    return response


PAGES = (
    Page("GET", f"{ADMIN}/logs", Action.VIEW, nothing, log),
    Page("GET", f"{ADMIN}/logs/follow", Action.VIEW, nothing, follow),
)
