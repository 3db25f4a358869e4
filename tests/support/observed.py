"""The API with metrics and optional traces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from resolute.clock import SystemClock
from resolute_master.api.app import ALL_ROUTES
from resolute_master.api.context import ApiContext
from resolute_master.api.http.application import build_application
from resolute_master.api.http.requests import Surroundings
from resolute_master.api.http.serving import Serving
from resolute_master.observability.observation import Observation
from resolute_master.observability.tracing import NoTracing, Tracing
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from support.api import World, an_api


class Samples:
    """The samples of an exposition: `samples("resolute_slots", pool="default", state="free")`."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))

    def __call__(self, name: str, **labels: str) -> float:
        """The one value with these labels, of which there may be more."""
        (value,) = self.all(name, **labels)
        return value

    def all(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    @property
    def names(self) -> set[str]:
        """Names of a family's series in queries: counters with `_total`, histograms with their three suffixes."""
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
        return {f"{family.name}{end}" for family in self.families for end in endings.get(family.type, ("",))}


@asynccontextmanager
async def an_observed_api(
    storage: Path, *, tracing: Tracing | None = None, store: Store | None = None, **options: Any
) -> AsyncIterator[tuple[World, Observation]]:
    """As `an_api`."""
    clock = options.get("clock") or SystemClock()
    observation = Observation(version="1.2.3", clock=clock, tracing=tracing or NoTracing())

    def application(context: ApiContext) -> web.Application:
        observation.watch(context.engine, context.store, context.reporting)
        surroundings = Surroundings(clock=context.clock, ids=context.ids, observer=observation.requests)
        serving = Serving(replace(context, exposition=observation.exposition))
        return build_application(serving, surroundings, ALL_ROUTES)

    given = observation.store(store or MemoryStore())
    async with an_api(storage, store=given, application=application, **options) as world:
        yield world, observation


async def samples(world: World) -> Samples:
    """The present exposition for Prometheus."""
    response = await world.send("GET", "/metrics")
    assert response.status == 200, await response.text()
    return Samples(await response.text())
