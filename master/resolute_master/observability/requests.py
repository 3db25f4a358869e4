"""Requests of the API and messages of the agents' links."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from types import TracebackType

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from resolute.wire.agent_link import AgentMessage, MasterMessage
from resolute_master.agents.session import Transport
from resolute_master.api.requests import Answered
from resolute_master.observability.tracing import Tracing

LATENCIES = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Bounds for what a caller waits for; long polls end at 60 s by themselves."""


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Anybody may send any other word, and it must not become a label."""


class RequestMetrics:
    """A `RequestObserver` that counts, and lets `tracing` open a span."""

    def __init__(self, registry: CollectorRegistry, tracing: Tracing) -> None:
        self._tracing = tracing
        self._count = Counter(
            "resolute_api_requests", "Requests that were answered", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "resolute_api_request_seconds",
            "From the request's head to the end of the answer; followed logs and agents' links are not in it",
            ["method", "route"],
            buckets=LATENCIES,
            registry=registry,
        )
        self._open = Gauge(
            "resolute_api_requests_open",
            "Requests that are being served: followed logs, long polls and agents' links last",
            ["route"],
            registry=registry,
        )
        # Series found once: finding one by its labels costs more than counting in it.
        self._open_of = cache(self._open.labels)
        self._count_of = cache(self._count.labels)
        self._seconds_of = cache(self._seconds.labels)

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        return _Serving(self._open_of(route), self._tracing.request(request.headers, method, route))

    def answered(self, answered: Answered) -> None:
        method = answered.method if answered.method in METHODS else "other"
        self._count_of(method, answered.route, answered.status).inc()
        if not answered.streamed:
            self._seconds_of(method, answered.route).observe(answered.seconds)


class _Serving:
    """One request that is being served. A class, for a generator costs three times as much each time."""

    __slots__ = ("_open", "_span")

    def __init__(self, open_: Gauge, span: AbstractContextManager[None]) -> None:
        self._open = open_
        self._span = span

    def __enter__(self) -> None:
        self._span.__enter__()
        self._open.inc()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.dec()
        self._span.__exit__(kind, error, traceback)


class LinkMetrics:
    """Messages between master and agents."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._messages = Counter(
            "resolute_agent_link_messages", "Messages of the agents' links", ["direction", "type"], registry=registry
        )
        self._links = Gauge("resolute_agent_links", "Agents' links that are open", registry=registry)

    def watched(self, transport: Transport) -> Transport:
        """The same transport, counted; closed once."""
        self._links.inc()
        return _Counted(transport, self._messages, self._links)


class _Counted:
    def __init__(self, transport: Transport, messages: Counter, links: Gauge) -> None:
        self._transport = transport
        self._messages = messages
        self._links: Gauge | None = links

    async def receive(self) -> AgentMessage:
        message = await self._transport.receive()
        self._messages.labels("in", type(message).__name__).inc()
        return message

    async def send(self, message: MasterMessage) -> None:
        await self._transport.send(message)
        self._messages.labels("out", type(message).__name__).inc()

    async def close(self) -> None:
        links, self._links = self._links, None
        if links is not None:
            links.dec()
        await self._transport.close()
