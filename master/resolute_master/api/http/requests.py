"""Common processing of each request: its id, the fields of its log lines, the access log, metrics and traces, an outage of the
database, and errors as answers.

One middleware does all of it: each further one would cost every request two more coroutines. The id is the caller's `X-Request-ID`
if that is valid, else generated, and always returned in the same header.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

from aiohttp import web
from aiohttp.abc import AbstractMatchInfo
from aiohttp.typedefs import Middleware
from aiohttp.web_urldispatcher import SystemRoute

from resolute import logs
from resolute.clock import Clock
from resolute.ids import IdSource
from resolute_master.api.http.errors import answer_to
from resolute_master.api.http.outage import answered
from resolute_master.api.http.response_headers import ResponseHeaders
from resolute_master.api.http.serving import Serving

access = logging.getLogger("resolute_master.api.access")

REQUEST_ID_HEADER = "X-Request-ID"
_SENSIBLE_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)

ID_BITS = 64

UNKNOWN_ROUTE = "(none)"
"""The label of requests without a route, whose paths are arbitrary."""

CALLER_GONE = 499
"""Status that is counted if the caller left before the answer, as proxies do."""

SUBJECTS = {
    "experimentId": "experiment",
    "trialId": "trial",
    "taskId": "task",
    "allocationId": "allocation",
    "agentId": "agent",
    "jobId": "job",
    "checkpointUuid": "checkpoint",
}
"""Parts of a path that become fields of the log."""


class Answered(NamedTuple):
    """One completed request. `route` is the template, never the path. A streamed answer (`streamed`) lasts as long as the caller
    reads it."""

    method: str
    route: str
    status: int
    seconds: float
    streamed: bool


class RequestObserver(Protocol):
    """Called for each request; must not block."""

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        """Context that is entered around the handler."""
        ...

    def answered(self, answered: Answered) -> None: ...


class Unobserved:
    """An observer that keeps no metrics."""

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        return nullcontext()

    def answered(self, answered: Answered) -> None:
        pass


PROBES = frozenset({"/health", "/ready"})
"""Paths of probes, which are called every few seconds. An answer that the master is not ready is no fault."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Surroundings:
    """The only middleware of an application, which handles every request, and the steps that run when a response begins."""

    def __init__(
        self, *, clock: Clock, ids: IdSource, observer: RequestObserver, headers: ResponseHeaders | None = None
    ) -> None:
        self._clock = clock
        self._headers = headers or ResponseHeaders()
        self._observer = observer
        self._numbers = itertools.count(ids.bits(ID_BITS))
        """Generated ids, which count up from a random number, because a random number per request would cost a system call."""
        self._routes: dict[web.AbstractResource, str] = {}

    def middleware(self, serving: Serving) -> Middleware:
        @web.middleware
        def surround(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
            return self._serve(request, handler, serving)

        return surround

    async def begin(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds headers, for `on_response_prepare`: a stream sends its headers long before its handler ends."""
        self._headers.add(request, response)
        if isinstance(response, web.Response):  # the middleware has seen it
            if isinstance(response, web.HTTPException):
                _untie(response)
            return
        known = logs.fields().get("request_id")
        if isinstance(known, str):
            response.headers[REQUEST_ID_HEADER] = known

    async def _serve(self, request: web.Request, handler: Handler, serving: Serving) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID_HEADER)
        known = given if given is not None and _SENSIBLE_ID.fullmatch(given) else self._new_id()
        found = request.match_info
        method, route, begun = request.method, self._route_of(found), self._clock.monotonic()
        status, streamed = CALLER_GONE, False
        with logs.about(request_id=known, **_subjects(found)):
            try:
                with self._observer.serving(request, method, route):
                    response = await _answered(request, handler, serving)
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
                self._observer.answered(Answered(method, route, status, seconds, streamed))
                _log(request, route, status, seconds)  # inside, for the fields

    def _new_id(self) -> str:
        return f"{next(self._numbers) % (1 << ID_BITS):0{ID_BITS // 4}x}"

    def _route_of(self, found: AbstractMatchInfo) -> str:
        """The template of the path; never longer than the table of routes."""
        resource = found.route.resource if isinstance(found, web.UrlMappingMatchInfo) else None
        if resource is None:
            return UNKNOWN_ROUTE
        known = self._routes.get(resource)
        if known is None:
            known = self._routes[resource] = resource.canonical.rstrip("/") or UNKNOWN_ROUTE
        return known


async def _answered(request: web.Request, handler: Handler, serving: Serving) -> web.StreamResponse:
    """The answer of the handler, or the answer to its error."""
    try:
        return await answered(request, handler, serving.context)
    except Exception as error:
        response = _without_caller(request, error) or answer_to(request, error)
        if response is None:
            raise
        _untie(error)
        _untie_route(request)
        return response


def _without_caller(request: web.Request, error: Exception) -> web.Response | None:
    """The caller closed the connection while its request was read or answered: not a fault, and no answer is read."""
    gone = request.transport is None or request.transport.is_closing()
    return web.Response(status=CALLER_GONE) if gone and isinstance(error, ConnectionResetError) else None


def _untie(error: BaseException) -> None:
    """Breaks a reference cycle that only garbage collection would free: aiohttp keeps an error that it raised in the request, or
    in a frame of the error's traceback. The error has been answered, so its origin is not needed."""
    error.__traceback__ = None


def _untie_route(request: web.Request) -> None:
    """Breaks the reference cycle of the route that aiohttp creates for each request without one: it refers to itself by a bound
    method."""
    if isinstance(request.match_info.route, SystemRoute):
        setattr(request.match_info.route, "_handler", None)  # noqa: B010 - not ours, and not in its type


def _subjects(parts: Mapping[str, str]) -> dict[str, str]:
    return {SUBJECTS[name]: value for name, value in parts.items() if name in SUBJECTS}


def _log(request: web.Request, route: str, status: int, seconds: float) -> None:
    """Level of the access log: INFO for changes by users; DEBUG for reads and for reports of tasks, which are frequent; WARNING
    for faults."""
    by_task = "allocation" in logs.fields() or route == "/task-logs"
    changes = request.method not in ("GET", "HEAD", "OPTIONS") and not by_task
    fault = status >= 500 and route not in PROBES
    level = logging.WARNING if fault else logging.INFO if changes else logging.DEBUG
    if access.isEnabledFor(level):
        # The path without its query: a query may hold secrets.
        access.log(level, "%s %s %d in %.0f ms", request.method, request.path[:300], status, seconds * 1000)
