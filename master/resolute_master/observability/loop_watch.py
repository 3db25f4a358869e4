"""How late the event loop is: one task runs at a time and delays all others. A coroutine sleeps repeatedly, and records how late
it wakes. A thread beside the loop watches it and, when a wake-up is overdue, records the position of the loop's thread: so a
stall is logged with the code that blocked the loop.

A loop is late because the master computes, or because the machine has no processor for it. Two times tell them apart: what the
whole process computed, for also a thread beside the loop holds it up as long as it holds the interpreter; and how long the loop's
thread was ready and had no processor. A stall that would have been none without that wait is the machine's, every other is ours.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from resolute.clock import Clock
from resolute_master.observability.run_queue import RunQueue

log = logging.getLogger(__name__)

PERIOD_S = 0.02
"""How often the loop is looked at: often enough for stalls of 50 ms, and a thousandth of a processor."""

STALL_S = 0.05
"""A wake-up that is later than this is a stall: it is counted and logged."""

FRAMES = 12
"""The innermost ones that are logged of what ran."""

NOTHING_RAN = "  none: the loop was waiting for events and got no processor in time"

LATENESS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class LoopWatch:
    """`await run()` as a task of the loop to watch."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Clock,
        *,
        period_s: float = PERIOD_S,
        stall_s: float = STALL_S,
        processor_s: Callable[[], float] = time.process_time,
        waited_s: Callable[[], float] | None = None,
    ) -> None:
        """`processor_s` returns the processor time of the process so far, `waited_s` the time for which the loop's thread has
        waited for a processor so far (None: the system's count)."""
        self._clock = clock
        self._processor_s = processor_s
        self._waited_s = waited_s
        self._period_s = period_s
        self._stall_s = stall_s
        self._due = 0.0
        self._used_s = 0.0
        """Processor time up to the wake-up before."""
        self._idle_s = 0.0
        """The wait for a processor up to then."""
        self._sample: tuple[float, tuple[str, ...]] | None = None
        """The wake-up that was overdue, and what ran then."""
        self._ended = threading.Event()
        self._collection_began = 0.0
        self._collected_s = 0.0
        self._late = Histogram(
            "resolute_event_loop_lag_seconds",
            "How late the event loop was with a wake-up",
            buckets=LATENESS,
            registry=registry,
        )
        self._stalls = Counter(
            "resolute_event_loop_stalls",
            f"Wake-ups that were late by more than {stall_s * 1000:.0f} ms",
            registry=registry,
        )
        self._computed = Counter(
            "resolute_event_loop_stalls_computed",
            f"Stalls in which the process computed for more than {stall_s * 1000:.0f} ms; in others it had no processor",
            registry=registry,
        )
        self._starved = Counter(
            "resolute_event_loop_stalls_starved",
            "Stalls that would have been none with a processor for the loop whenever it was ready: the machine is too busy",
            registry=registry,
        )
        self._worst = Gauge(
            "resolute_event_loop_lag_max_seconds", "The latest wake-up since the master started", registry=registry
        )
        self._worst_s = 0.0
        self._collections = Histogram(
            "resolute_gc_pause_seconds",
            "Time that Python's garbage collection stopped the process",
            ["generation"],
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.5),
            registry=registry,
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        with RunQueue() as queue:
            await self._watch(self._waited_s or queue.waited_s)

    async def _watch(self, waited_s: Callable[[], float]) -> None:
        loop_thread = threading.get_ident()
        self._due, self._used_s = self._clock.monotonic() + self._period_s, self._processor_s()
        self._idle_s = waited_s()
        watcher = threading.Thread(target=self._look, args=(loop_thread,), name="loop-watch", daemon=True)
        gc.callbacks.append(self._collecting)
        watcher.start()
        try:
            while True:
                await asyncio.sleep(self._period_s)
                self._woke(waited_s())
        finally:
            gc.callbacks.remove(self._collecting)
            self._ended.set()
            watcher.join()

    # -- in the loop -------------------------------------------------------------------------------------------

    def _woke(self, idle_s: float) -> None:
        now, used_s = self._clock.monotonic(), self._processor_s()
        late = max(0.0, now - self._due)
        computed, waited = min(late, used_s - self._used_s), min(late, idle_s - self._idle_s)
        self._used_s, self._idle_s = used_s, idle_s
        self._late.observe(late)
        if late > self._worst_s:
            self._worst_s = late
            self._worst.set(late)
        sample, collected = self._sample, self._collected_s
        due, self._due = self._due, now + self._period_s
        self._sample, self._collected_s = None, 0.0
        if late > self._stall_s:
            stack = sample[1] if sample is not None and sample[0] == due else ()
            self._tell(late, computed, waited, min(collected, late), stack)

    def _tell(
        self, late_s: float, computed_s: float, waited_s: float, collected_s: float, stack: tuple[str, ...]
    ) -> None:
        """`stack` is empty when the thread had no chance to look: what ran never let go of the interpreter."""
        self._stalls.inc()
        if computed_s > self._stall_s:
            self._computed.inc()
        if late_s - waited_s <= self._stall_s:
            self._starved.inc()
        collecting = f", {collected_s * 1000:.0f} of it garbage collection" if collected_s >= 0.001 else ""
        what = "what ran:\n" + "".join(stack) if stack else "what ran could not be seen"
        log.warning(
            "the event loop stalled for %.0f ms (%.0f ms computing%s, %.0f ms without a processor); %s",
            late_s * 1000,
            computed_s * 1000,
            collecting,
            waited_s * 1000,
            what.rstrip(),
        )

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        now = self._clock.monotonic()
        if phase == "start":
            self._collection_began = now
        else:
            took = now - self._collection_began
            self._collected_s += took
            self._collections.labels(str(info["generation"])).observe(took)

    # -- beside it ---------------------------------------------------------------------------------------------

    def _look(self, loop_thread: int) -> None:
        while not self._ended.wait(self._period_s):
            due = self._due
            overdue = self._clock.monotonic() - due > self._stall_s / 2  # before it is one: afterwards it is over
            if overdue and (self._sample is None or self._sample[0] != due):
                frame = sys._current_frames().get(loop_thread)
                if frame is not None and self._due == due:
                    self._sample = (due, _innermost(frame))


def _innermost(frame: FrameType) -> tuple[str, ...]:
    """From the callback that the loop runs on, as text."""
    if frame.f_code.co_filename == selectors.__file__:
        return (NOTHING_RAN,)
    found: list[str] = []
    # Without the text of the lines: to read files takes time, and the interpreter, while the loop is late.
    for at, line in traceback.walk_stack(frame):
        code = at.f_code
        if len(found) == FRAMES or code.co_filename == asyncio.events.__file__:
            break
        found.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n')
    return tuple(reversed(found))
