"""Requests of the API and messages of the agents' links."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def serving(self, request: web.Request, method: str, route: str) -> Iterator[None]:
        with self._open.labels(route).track_inprogress(), self._tracing.request(request.headers, method, route):
            yield

    def answered(self, answered: Answered) -> None:
        method = answered.method if answered.method in METHODS else "other"
        self._count.labels(method, answered.route, str(answered.status)).inc()
        if not answered.streamed:
            self._seconds.labels(method, answered.route).observe(answered.seconds)


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
