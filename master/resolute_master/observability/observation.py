"""All observers of a master, built in one place and passed to the parts that report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute_master.agents.session import Transport
from resolute_master.api.http.requests import RequestObserver
from resolute_master.domain.ids import ContainerId
from resolute_master.engine.engine import Engine
from resolute_master.engine.reporting import Reporting
from resolute_master.observability.engine import CycleMetrics, WorkMetrics
from resolute_master.observability.ledger import LedgerMetrics
from resolute_master.observability.loop_watch import LoopWatch
from resolute_master.observability.requests import LinkMetrics, RequestMetrics
from resolute_master.observability.spending import SpendingMetrics
from resolute_master.observability.state import StateMetrics
from resolute_master.observability.store import StoreMetrics, observed
from resolute_master.observability.tracing import Tracing, tracing_of
from resolute_master.store.base import Store


class Observation:
    """Metrics and traces of one master. The parts are connected as they are built: `store`, then `watch`; `services` run beside
    them."""

    def __init__(self, *, version: str, clock: Clock, tracing: Tracing) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the moments of the first counts: a series each, of no use here
        self._clock = clock
        self._registry = registry = CollectorRegistry()
        self._tracing = tracing
        Info("resolute", "What serves this", registry=registry).info({"version": version})
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._loop = LoopWatch(registry, clock)
        self._requests = RequestMetrics(registry, tracing)
        self._links = LinkMetrics(registry)
        self._store = StoreMetrics(registry, clock)
        self._state: StateMetrics | None = None
        self._ledger: LedgerMetrics | None = None

    @classmethod
    def of(cls, config: MasterConfig, *, version: str, clock: Clock) -> Observation:
        """As configured. Raises `InvalidInput` for traces that cannot be sent."""
        tracing = tracing_of(config.telemetry, instance=config.cluster_name or f"{config.host}:{config.port}")
        return cls(version=version, clock=clock, tracing=tracing)

    # -- for the parts -----------------------------------------------------------------------------------------

    @property
    def requests(self) -> RequestObserver:
        return self._requests

    @property
    def link(self) -> Callable[[Transport], Transport]:
        return self._links.watched

    def store(self, store: Store) -> Store:
        """The same store, timed."""
        return observed(store, self._store)

    @property
    def trace_of(self) -> Callable[[ContainerId], str]:
        """The trace that a container's start belongs to."""
        return self._tracing.parent_of

    def watch(self, engine: Engine, store: Store, reporting: Reporting) -> None:
        """Once, after the engine has started."""
        CycleMetrics(self._registry, engine)
        WorkMetrics(self._registry, engine)
        self._state = StateMetrics(self._registry, engine, self._clock)
        SpendingMetrics(self._registry, engine, self._clock)
        self._store.watch_writers(reporting)
        self._ledger = LedgerMetrics(self._registry, engine, store, self._clock)
        self._tracing.watch(engine)

    # -- its own -----------------------------------------------------------------------------------------------

    def services(self) -> list[asyncio.Task[None]]:
        """What runs as long as the master does."""
        tasks = [asyncio.create_task(self._loop.run(), name="loop watch")]
        if self._ledger is not None:
            tasks.append(asyncio.create_task(self._ledger.run(), name="ledger metrics"))
        return tasks

    async def exposition(self) -> bytes:
        """The metrics as text. What is counted is of one moment; counting and writing let others go first."""
        if self._state is not None:
            self._state.look()
        return await asyncio.to_thread(generate_latest, self._registry)

    def close(self) -> None:
        self._tracing.close()
