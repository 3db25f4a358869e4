"""Requests of the API and messages of the agents' links."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import accumulate
from types import TracebackType

import prometheus_client as prometheus
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from resolute.wire.agent_link import AgentMessage, MasterMessage
from resolute_master.agents.session import Transport
from resolute_master.api.http.requests import Answered
from resolute_master.observability.tracing import Tracing

LATENCIES = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Bounds for what a caller waits for; long polls end at 60 s by themselves."""


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""A caller may send any other method, which must not become a label."""


class RequestMetrics:
    """A `RequestObserver` that counts, and lets `tracing` open a span.

    It counts in plain numbers, from the event loop alone, and builds series of them at a scrape: the library's counters take a
    lock and look up their labels each time, a tenth of the cost of a small request.
    """

    def __init__(self, registry: CollectorRegistry, tracing: Tracing) -> None:
        self._tracing = tracing
        self._answered: Counter[tuple[str, str, int]] = Counter()
        self._latencies: dict[tuple[str, str], _Latencies] = defaultdict(_Latencies)
        self._open: Counter[str] = Counter()
        registry.register(self)

    def serving(self, request: web.Request, method: str, route: str) -> AbstractContextManager[None]:
        return _Serving(self._open, route, self._tracing.request(request.headers, method, route))

    def answered(self, answered: Answered) -> None:
        method = answered.method if answered.method in METHODS else "other"
        self._answered[method, answered.route, answered.status] += 1
        if not answered.streamed:
            self._latencies[method, answered.route].add(answered.seconds)

    def collect(self) -> Iterator[Metric]:
        """For the registry, in whatever thread."""
        count = CounterMetricFamily(
            "resolute_api_requests", "Requests that were answered", labels=["method", "route", "status"]
        )
        for (method, route, status), number in self._answered.copy().items():
            count.add_metric((method, route, str(status)), number)
        yield count
        seconds = HistogramMetricFamily(
            "resolute_api_request_seconds",
            "From the request's head to the end of the answer; followed logs and agents' links are not in it",
            labels=["method", "route"],
        )
        for places, latencies in self._latencies.copy().items():
            seconds.add_metric(places, latencies.buckets(), latencies.sum_s)
        yield seconds
        open_ = GaugeMetricFamily(
            "resolute_api_requests_open",
            "Requests that are being served: followed logs, long polls and agents' links last",
            labels=["route"],
        )
        for route, number in self._open.copy().items():
            open_.add_metric([route], number)
        yield open_


class _Latencies:
    """How many requests took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (len(LATENCIES) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(LATENCIES, seconds)] += 1
        self.sum_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Each with all that is below its bound, as Prometheus has them."""
        bounds = [*map(floatToGoString, LATENCIES), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class _Serving:
    """One request that is being served. A class, for a generator costs three times as much each time."""

    __slots__ = ("_open", "_route", "_span")

    def __init__(self, open_: Counter[str], route: str, span: AbstractContextManager[None]) -> None:
        self._open = open_
        self._route = route
        self._span = span

    def __enter__(self) -> None:
        self._span.__enter__()
        self._open[self._route] += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open[self._route] -= 1
        self._span.__exit__(kind, error, traceback)


class LinkMetrics:
    """Messages between master and agents."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._messages = prometheus.Counter(
            "resolute_agent_link_messages", "Messages of the agents' links", ["direction", "type"], registry=registry
        )
        self._links = prometheus.Gauge("resolute_agent_links", "Agents' links that are open", registry=registry)

    def watched(self, transport: Transport) -> Transport:
        """The same transport, counted; closed once."""
        self._links.inc()
        return _Counted(transport, self._messages, self._links)


class _Counted:
    def __init__(self, transport: Transport, messages: prometheus.Counter, links: prometheus.Gauge) -> None:
        self._transport = transport
        self._messages = messages
        self._links: prometheus.Gauge | None = links

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
