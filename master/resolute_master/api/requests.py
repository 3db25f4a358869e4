"""What surrounds each request: its id, the fields of its log lines, the access log, and whoever counts and traces it.

The id is taken from `X-Request-ID` if the caller sent a sensible one, else drawn, and always returned in the same header.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from resolute import logs
from resolute.clock import Clock
from resolute.ids import IdSource

access = logging.getLogger("resolute_master.api.access")

REQUEST_ID_HEADER = "X-Request-ID"
_SENSIBLE_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)

UNKNOWN_ROUTE = "(none)"
"""What requests of no route are counted under: their paths are anybody's."""

CALLER_GONE = 499
"""Counted when the caller left before it was answered, as proxies do."""

SUBJECTS = {
    "experimentId": "experiment",
    "trialId": "trial",
    "taskId": "task",
    "allocationId": "allocation",
    "agentId": "agent",
    "jobId": "job",
    "checkpointUuid": "checkpoint",
}
"""Parts of a path that are worth a field in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One request that is over. `route` is the template, never the path; `streamed` answers last as long as somebody listens."""

    method: str
    route: str
    status: int
    seconds: float
    streamed: bool


class RequestObserver(Protocol):
    """Told of each request; must not block."""

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        """Entered around the handler."""
        ...

    def answered(self, answered: Answered) -> None: ...


class Unobserved:
    """Nobody looks."""

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        return nullcontext()

    def answered(self, answered: Answered) -> None:
        pass


PROBES = frozenset({"/health", "/ready"})
"""They are asked every few seconds, and saying that the master is not ready is no fault."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Surroundings:
    """The outermost middleware: `web.Application(middlewares=[Surroundings(...).middleware, ...])`."""

    def __init__(self, *, clock: Clock, ids: IdSource, observer: RequestObserver) -> None:
        self._clock = clock
        self._ids = ids
        self._observer = observer

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def surround(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._serve(request, handler)

        return surround

    def sent_header(self) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
        """For `on_response_prepare`: streams send their headers long before the handler is through."""

        async def set_header(request: web.Request, response: web.StreamResponse) -> None:
            known = logs.fields().get("request_id")
            if isinstance(known, str):
                response.headers[REQUEST_ID_HEADER] = known

        return set_header

    async def _serve(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID_HEADER, "")
        known = given if _SENSIBLE_ID.fullmatch(given) else f"{self._ids.bits(64):016x}"
        route, begun = route_of(request), self._clock.monotonic()
        status, streamed = CALLER_GONE, False
        with logs.about(request_id=known, **_subjects(request)):
            try:
                with self._observer.serving(request, request.method, route):
                    response = await handler(request)
                status, streamed = response.status, not isinstance(response, web.Response)
                if not response.prepared:
                    response.headers[REQUEST_ID_HEADER] = known
                return response
            except web.HTTPException as answer:
                status = answer.status
                answer.headers[REQUEST_ID_HEADER] = known
                raise
            finally:
                seconds = self._clock.monotonic() - begun
                self._observer.answered(
                    Answered(method=request.method, route=route, status=status, seconds=seconds, streamed=streamed)
                )
                _log(request, route, status, seconds)  # inside, for the fields


def route_of(request: web.Request) -> str:
    """The template of the path; never longer than the table of routes."""
    resource = request.match_info.route.resource
    return resource.canonical.rstrip("/") or "/" if resource is not None else UNKNOWN_ROUTE


def _subjects(request: web.Request) -> dict[str, str]:
    return {SUBJECTS[name]: value for name, value in request.match_info.items() if name in SUBJECTS}


def _log(request: web.Request, route: str, status: int, seconds: float) -> None:
    """Changes by people at INFO; reads, and what tasks report (many, of no interest one by one), at DEBUG; faults at WARNING."""
    by_task = "allocation" in logs.fields() or route == "/task-logs"
    changes = request.method not in ("GET", "HEAD", "OPTIONS") and not by_task
    fault = status >= 500 and route not in PROBES
    level = logging.WARNING if fault else logging.INFO if changes else logging.DEBUG
    if access.isEnabledFor(level):
        # The path without its query: a query may hold what nobody else should read.
        access.log(level, "%s %s %d in %.0f ms", request.method, request.path[:300], status, seconds * 1000)
