"""Spans from a request to the start of a container, for OpenTelemetry; empty unless enabled.

    POST /api/v1/experiments
      command CreateExperiment
        decide
        commit
      queue                       from the request for slots to their assignment
      start container             until the agent reports that it runs; each state that it reports is an event

The engine is not held up: its spans are made after the commit, from the times that it reports. Agents need no collector: what they
report becomes events of the span. A container is given its span as `TRACEPARENT`, and its code can continue from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from resolute.config.master_parts import Telemetry
from resolute.errors import InvalidInput
from resolute_master.domain.ids import ContainerId
from resolute_master.engine.engine import Engine

if TYPE_CHECKING:
    from resolute_master.observability.spans import Spans


class Tracing(Protocol):
    """Where spans come from."""

    def request(self, headers: Mapping[str, str], method: str, route: str) -> AbstractContextManager[None]:
        """A context in which a request is served; it continues the caller's trace."""
        ...

    def watch(self, engine: Engine) -> None:
        """Follow the engine's cycles."""
        ...

    def parent_of(self, container: ContainerId) -> str:
        """The parent span of a container's start, as a W3C `traceparent`; empty without a trace."""
        ...

    def close(self) -> None:
        """Send what is not sent yet."""
        ...


class NoTracing:
    """Nothing is traced."""

    def request(self, headers: Mapping[str, str], method: str, route: str) -> AbstractContextManager[None]:
        return nullcontext()

    def watch(self, engine: Engine) -> None:
        pass

    def parent_of(self, container: ContainerId) -> str:
        return ""

    def close(self) -> None:
        pass


def tracing_of(telemetry: Telemetry, *, instance: str) -> Tracing:
    """Tracing as configured. Raises `InvalidInput` if traces are configured and the extra that sends them is not installed."""
    if not telemetry.otel_enabled:
        return NoTracing()
    return _sending(telemetry.otel_endpoint, instance)


def _sending(endpoint: str, instance: str) -> Spans:
    try:
        from resolute_master.observability.spans import otlp_spans
    except ImportError as error:
        raise InvalidInput(
            f"telemetry.otel_enabled: OpenTelemetry is not installed ({error.name}); "
            "pip install 'resolute-ml[otel]', or remove the key"
        ) from error
    return otlp_spans(endpoint, service="resolute-master", instance=instance)
