"""The store's calls, timed at its port: what the database takes, whichever one it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sized
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from resolute.clock import Clock
from resolute_master.engine.reporting import Reporting
from resolute_master.observability.engine import SHORT
from resolute_master.observability.ledger import SaveMetrics
from resolute_master.store.base import Store

STREAMS = {"append_metrics": "metrics", "append_logs": "logs", "append_step_marks": "step_marks"}
"""Calls that store a batch of rows, by the name of the stream."""

ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


class StoreMetrics:
    """Instruments of the store and of the batched writers before it."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._saves = SaveMetrics(registry)
        self._seconds = Histogram(
            "resolute_store_call_seconds", "Calls of the store", ["call"], buckets=SHORT, registry=registry
        )
        self._errors = Counter(
            "resolute_store_errors", "Calls of the store that failed, by error", ["call", "error"], registry=registry
        )
        self._rows = Counter(
            "resolute_ingest_rows",
            "Rows of metrics, logs and step marks that were stored",
            ["stream"],
            registry=registry,
        )
        self._batches = Histogram(
            "resolute_ingest_batch_rows", "Rows in one batch of a stream", ["stream"], buckets=ROWS, registry=registry
        )
        for stream in STREAMS.values():
            self._rows.labels(stream)

    def watch_writers(self, reporting: Reporting) -> None:
        """Show what the batched writers have taken and not yet stored."""
        unstored = Gauge(
            "resolute_ingest_unstored_rows",
            "Rows that were taken and are not stored yet",
            ["stream"],
            registry=self._registry,
        )
        for stream in reporting.unstored():
            unstored.labels(stream).set_function(functools.partial(_unstored, reporting, stream))

    async def timed(self, name: str, call: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        begun = self._clock.monotonic()
        try:
            answer = await call(*args, **kwargs)
        except Exception as error:
            self._errors.labels(name, type(error).__name__).inc()
            raise
        finally:
            self._seconds.labels(name).observe(self._clock.monotonic() - begun)
        stream = STREAMS.get(name)
        if stream is not None and args and isinstance(args[0], Sized):
            self._rows.labels(stream).inc(len(args[0]))
            self._batches.labels(stream).observe(len(args[0]))
        if name == "append_step_marks":
            self._saves.marked(args[0])
        return answer


def _unstored(reporting: Reporting, stream: str) -> int:
    return reporting.unstored()[stream]


class _Observed:
    """A proxy of a store that measures each of its coroutines."""

    def __init__(self, store: Store, metrics: StoreMetrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if not inspect.iscoroutinefunction(found):
            return found
        timed = functools.partial(_call, self._metrics, name, found)
        setattr(self, name, timed)  # looked up once
        return timed


async def _call(
    metrics: StoreMetrics, name: str, found: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    return await metrics.timed(name, found, args, kwargs)


def observed(store: Store, metrics: StoreMetrics) -> Store:
    """The same store, timed."""
    return cast(Store, _Observed(store, metrics))
