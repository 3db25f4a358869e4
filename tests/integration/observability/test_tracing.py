"""A trace from the request that creates an experiment to the start of its container."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from resolute.config.master_parts import Telemetry
from resolute.errors import InvalidInput
from resolute.wire.states import ContainerState
from resolute_master.domain.commands import SetAgentEnabled
from resolute_master.observability.spans import Spans
from resolute_master.observability.tracing import NoTracing, tracing_of
from support.api import a_config, settled
from support.observed import an_observed_api
from support.seeded_secrets import WORD

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def recording() -> tuple[Spans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider), exporter


def named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_from_the_request_to_the_start_of_the_container(tmp_path: Path) -> None:
    spans, exporter = recording()
    async with an_observed_api(tmp_path, tracing=spans) as (world, observation):
        agent = await world.agent()
        await world.engine.submit(SetAgentEnabled(agent=agent.id, enabled=False))
        await world.post(
            "/api/v1/experiments", {"config": json.dumps(a_config()), "activate": True}, headers={"traceparent": CALLER}
        )
        request = named(exporter, "POST /api/v1/experiments")
        assert f"{request.context.trace_id:032x}" == CALLER[3:35] and f"{parent(request):016x}" == CALLER[36:52]
        command = named(exporter, "command CreateExperiment")
        assert parent(command) == id_of(request)
        decide, commit = (
            next(s for s in exporter.get_finished_spans() if s.name == name and parent(s) == id_of(command))
            for name in ("decide", "commit")
        )
        assert decide.end_time == commit.start_time

        # The queue is left in a cycle that nobody has asked for in this trace.
        await world.engine.submit(SetAgentEnabled(agent=agent.id, enabled=True))
        await settled(world)
        (container,) = agent.containers()
        given = observation.trace_of(container.id)
        assert given.split("-")[1] == CALLER[3:35]
        for state in (ContainerState.PULLING, ContainerState.PULLING, ContainerState.STARTING, ContainerState.RUNNING):
            await agent.report(container, state)
        queue, start = named(exporter, "queue"), named(exporter, "start container")
        assert parent(queue) == parent(start) == id_of(request)
        assert f"{id_of(start):016x}" == given.split("-")[2]
        assert start.attributes is not None and start.attributes["resolute.agent"] == agent.id
        assert [event.name for event in start.events] == ["PULLING", "STARTING", "RUNNING"]
        assert observation.trace_of(container.id) == ""


async def test_a_refused_command_is_an_error_of_its_span(tmp_path: Path) -> None:
    spans, exporter = recording()
    async with an_observed_api(tmp_path, tracing=spans) as (world, _):
        await world.agent()
        experiment = await world.create(a_config())
        await world.error("POST", f"/api/v1/experiments/{experiment['id']}/archive", status=400)
        refused = named(exporter, "command ArchiveExperiment")
        assert not refused.status.is_ok and "only an ended experiment" in (refused.status.description or "")


async def test_no_span_has_a_secret(tmp_path: Path) -> None:
    """Spans of an accepted configuration, of a refused one, and of the call with the caller's token contain no secret."""
    spans, exporter = recording()
    async with an_observed_api(tmp_path, tracing=spans) as (world, _):
        agent = await world.agent()
        seeded = {"environment_variables": [f"A_TOKEN={WORD}"], "registry_auth": {"password": WORD}}
        await world.create(a_config(environment=seeded, data={"secrets": {"a": WORD}}))
        wrong = {"config": json.dumps(a_config(environment={"registry_auth": WORD}))}
        await world.error("POST", "/api/v1/experiments", wrong, status=400)
        await settled(world)
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        written = [span.to_json() for span in exporter.get_finished_spans()]
        assert len(written) > 5
        assert not [span for span in written if WORD in span or world.token in span]


async def test_probes_leave_no_spans(tmp_path: Path) -> None:
    spans, exporter = recording()
    async with an_observed_api(tmp_path, tracing=spans) as (world, _):
        exporter.clear()
        for path in ("/health", "/ready", "/metrics"):
            await world.send("GET", path)
        assert exporter.get_finished_spans() == ()


def test_nothing_is_traced_unless_asked_for() -> None:
    assert isinstance(tracing_of(Telemetry(), instance="m"), NoTracing)


def test_traces_that_cannot_be_sent_are_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return imported(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "resolute_master.observability.spans")
    with pytest.raises(InvalidInput, match=r"telemetry.otel_enabled: .* pip install 'resolute-ml\[otel\]'"):
        tracing_of(Telemetry(otel_enabled=True), instance="m")
