"""`tracing` on the OpenTelemetry SDK (the extra `otel`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from resolute import __version__
from resolute.errors import ResoluteError
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change
from resolute_master.domain.commands import ActivateExperiment, CreateExperiment
from resolute_master.domain.effects import StartContainer
from resolute_master.domain.ids import ContainerId, ExperimentId
from resolute_master.domain.job import Job
from resolute_master.engine.engine import Carried, CycleTimes, Engine

MOST_REMEMBERED = 10_000
"""Experiments whose request is remembered, and containers whose start is; past that the oldest are forgotten."""

SEND_TIMEOUT_S = 3
"""Maximum time that a stopping master waits for a collector that does not answer."""

UNTRACED = frozenset(
    {"/metrics", "/prom/det-state-metrics", "/debug/prom/metrics", "/health", "/ready", "/agents/link"}
)
"""Probes, and what lasts as long as a machine."""

STARTED = frozenset({ContainerState.RUNNING, ContainerState.TERMINATED})

_propagator = TraceContextTextMapPropagator()


def otlp_spans(endpoint: str, *, service: str, instance: str) -> Spans:
    """Spans that are sent to a collector, in the background; while it is unavailable they are dropped, without delay for others."""
    resource = Resource.create(
        {"service.name": service, "service.version": __version__, "service.instance.id": instance}
    )
    provider = TracerProvider(resource=resource)
    secure = endpoint.startswith("https://")
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not secure, timeout=SEND_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Spans(provider)


class Spans:
    """`Tracing` that records. `provider` is the destination."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("resolute", __version__)
        self._engine: Engine | None = None
        self._origins: OrderedDict[ExperimentId, Context] = OrderedDict()
        self._starting: OrderedDict[ContainerId, tuple[Span, ContainerState]] = OrderedDict()
        """Containers that do not run yet, with the last state that their agent has reported."""

    @contextmanager
    def request(self, headers: Mapping[str, str], method: str, route: str) -> Iterator[None]:
        if route in UNTRACED:
            yield
            return
        above = _propagator.extract({name.lower(): value for name, value in headers.items()}, Context())
        attributes = {"http.request.method": method, "http.route": route}
        with self._tracer.start_as_current_span(
            f"{method} {route}", above, kind=SpanKind.SERVER, attributes=attributes, record_exception=False
        ):
            yield

    def watch(self, engine: Engine) -> None:
        self._engine = engine
        engine.on_cycle(self._cycle)

    def parent_of(self, container: ContainerId) -> str:
        starting = self._starting.get(container)
        if starting is None:
            return ""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(starting[0]))
        return carrier.get("traceparent", "")

    def close(self) -> None:
        self._provider.shutdown()

    # -- cycles ------------------------------------------------------------------------------------------------

    def _cycle(self, times: CycleTimes) -> None:
        for carried in times.carried:
            above = trace.set_span_in_context(carried.context.run(trace.get_current_span), Context())
            if trace.get_current_span(above).get_span_context().is_valid:
                self._command(carried, above, times)
        if times.change is not None:
            self._follow(times.change)

    def _command(self, carried: Carried, above: Context, times: CycleTimes) -> None:
        """A cycle carries out many commands at once: each trace shows it as its own."""
        command = carried.command
        begun, decided = times.begun_at, times.begun_at + timedelta(seconds=times.decide_s)
        committed = decided + timedelta(seconds=times.commit_s)
        attributes: dict[str, str | int] = {"resolute.cycle.commands": times.commands}
        if times.change is not None:
            attributes["resolute.cycle.sequence"] = times.change.journal.sequence
        span = self._tracer.start_span(
            f"command {type(command).__name__}", above, attributes=attributes, start_time=_ns(begun)
        )
        if isinstance(carried.reply, ResoluteError):
            span.set_status(Status(StatusCode.ERROR, str(carried.reply)))
        inside = trace.set_span_in_context(span, Context())
        self._tracer.start_span("decide", inside, start_time=_ns(begun)).end(_ns(decided))
        if times.change is not None:
            self._tracer.start_span("commit", inside, start_time=_ns(decided)).end(_ns(committed))
        span.end(_ns(committed + timedelta(seconds=times.publish_s)))
        if isinstance(command, CreateExperiment) and isinstance(carried.reply, int):
            self._remember(ExperimentId(carried.reply), above)
        elif isinstance(command, ActivateExperiment) and not isinstance(carried.reply, ResoluteError):
            self._remember(command.experiment, above)

    def _remember(self, experiment: ExperimentId, above: Context) -> None:
        self._origins[experiment] = above
        self._origins.move_to_end(experiment)
        if len(self._origins) > MOST_REMEMBERED:
            self._origins.popitem(last=False)

    # -- what became of it -------------------------------------------------------------------------------------

    def _follow(self, change: Change) -> None:
        written = {entity.id: entity for entity in change.upserts if isinstance(entity, Allocation)}
        for effect in change.outbox_added:
            if isinstance(effect, StartContainer) and effect.allocation in written:
                self._begin(effect, written[effect.allocation], change.journal.at)
        if self._starting:
            for allocation in written.values():
                self._go_on(allocation, change.journal.at)

    def _begin(self, effect: StartContainer, allocation: Allocation, at: datetime) -> None:
        job = self._engine.state.get(Job, allocation.job_id) if self._engine is not None else None
        above = self._origins.get(job.experiment_id) if job is not None and job.experiment_id is not None else None
        if above is None:
            return
        about = {
            "resolute.allocation": allocation.id,
            "resolute.pool": allocation.pool,
            "resolute.agent": effect.agent,
            "resolute.container": effect.container,
        }
        queue = self._tracer.start_span("queue", above, attributes=about, start_time=_ns(allocation.requested_at))
        queue.end(_ns(at))
        span = self._tracer.start_span("start container", above, attributes=about, start_time=_ns(at))
        self._starting[effect.container] = span, ContainerState.ASSIGNED
        if len(self._starting) > MOST_REMEMBERED:
            self._starting.popitem(last=False)[1][0].end(_ns(at))

    def _go_on(self, allocation: Allocation, at: datetime) -> None:
        """Reports of the agents: each state is an event of the span, and a running or ended container is its end."""
        for container in allocation.containers:
            span, told = self._starting.get(container.id, (None, container.state))
            if span is None or container.state is told:
                continue
            span.add_event(container.state.value, timestamp=_ns(at))
            self._starting[container.id] = span, container.state
            if container.state in STARTED:
                del self._starting[container.id]
                if container.exit is not None and container.exit.failure is not None:
                    span.set_status(Status(StatusCode.ERROR, container.exit.message or container.exit.failure.value))
                span.end(_ns(at))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
