"""A loop that stands still is seen from beside it, with what held it up."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from resolute.clock import SystemClock
from resolute_master.observability.loop_watch import STALL_S, LoopWatch
from resolute_master.observability.run_queue import RunQueue

BLOCKED_S = 6 * STALL_S


@asynccontextmanager
async def watched(
    processor_s: Callable[[], float] = time.process_time, waited_s: Callable[[], float] | None = None
) -> AsyncIterator[CollectorRegistry]:
    registry = CollectorRegistry()
    watch = LoopWatch(registry, SystemClock(), processor_s=processor_s, waited_s=waited_s)
    task = asyncio.create_task(watch.run())
    try:
        yield registry
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_counted(registry: CollectorRegistry, name: str, least: float) -> None:
    async with asyncio.timeout(30):
        while (registry.get_sample_value(name) or 0.0) < least:  # noqa: ASYNC110  # a counter tells nobody
            await asyncio.sleep(0.01)


def hold_everybody_up() -> None:
    time.sleep(BLOCKED_S)


async def test_a_stall_is_counted_and_logged_with_what_ran(caplog: pytest.LogCaptureFixture) -> None:
    async with watched() as registry:
        await until_counted(registry, "resolute_event_loop_lag_seconds_count", 2)
        hold_everybody_up()
        await until_counted(registry, "resolute_event_loop_stalls_total", 1)
        assert (registry.get_sample_value("resolute_event_loop_lag_max_seconds") or 0.0) > STALL_S
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("hold_everybody_up" in line and "the event loop stalled for" in line for line in lines)


@pytest.mark.parametrize("computing", [True, False])
async def test_a_stall_without_a_processor_is_told_from_one_that_was_computed(
    computing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # A clock of the processor that goes as the time goes, or stands still: a machine that is free, or busy with others.
    async with watched(time.monotonic if computing else lambda: 1.0) as registry:
        await until_counted(registry, "resolute_event_loop_lag_seconds_count", 2)
        hold_everybody_up()
        await until_counted(registry, "resolute_event_loop_stalls_total", 1)
        stalls = registry.get_sample_value("resolute_event_loop_stalls_total")
        computed = registry.get_sample_value("resolute_event_loop_stalls_computed_total")
    assert computed == (stalls if computing else 0.0)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any("(0 ms computing" in line for line in lines) is not computing


@pytest.mark.parametrize("starved", [True, False])
async def test_a_stall_for_want_of_a_processor_is_the_machines(starved: bool, caplog: pytest.LogCaptureFixture) -> None:
    # The wait for a processor goes as the time goes, or there is none.
    async with watched(waited_s=time.monotonic if starved else lambda: 0.0) as registry:
        await until_counted(registry, "resolute_event_loop_lag_seconds_count", 2)
        hold_everybody_up()
        await until_counted(registry, "resolute_event_loop_stalls_total", 1)
        stalls = registry.get_sample_value("resolute_event_loop_stalls_total")
        assert registry.get_sample_value("resolute_event_loop_stalls_starved_total") == (stalls if starved else 0.0)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any(", 0 ms without a processor" in line for line in lines) is not starved


def test_a_thread_hears_of_its_own_wait_for_a_processor_only() -> None:
    with RunQueue() as queue:
        before = queue.waited_s()
        time.sleep(2 * STALL_S)  # asleep it asks for none
        after = queue.waited_s()
    assert 0.0 <= before <= after
    assert queue.waited_s() == 0.0, "closed, it tells nothing"


async def test_garbage_collection_is_timed_and_the_watch_leaves_nothing_behind() -> None:
    callbacks = len(gc.callbacks)
    async with watched() as registry:
        await until_counted(registry, "resolute_event_loop_lag_seconds_count", 1)
        gc.collect()
        pauses = registry.get_sample_value("resolute_gc_pause_seconds_count", {"generation": "2"})
        assert pauses is not None and pauses >= 1
    assert len(gc.callbacks) == callbacks
