"""The real master, with a meter beside it.

    python -m benchmarks.load_master CONFIG_FILE METER_FILE

The meter writes one line of JSON for each cycle of the engine, for each late tick of the event loop, for each full garbage
collection, and a few times per second for the memory. Times are those of CLOCK_MONOTONIC, so that another process can relate them
to its phases. The master's log contains the stack of a stall.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute_master import app, main
from resolute_master.engine.engine import CycleTimes, Engine
from resolute_master.observability.run_queue import RunQueue

TICK_S = 0.005
"""Interval of the ticks that measure the latency of the event loop."""
LATE_S = 0.025
"""A tick with a larger delay is recorded."""
MEMORY_S = 0.25


class Meter:
    """Collects records in memory; a thread writes them periodically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, Any]] = []
        self._ticked = time.monotonic()
        self._engine: Engine | None = None
        self._collecting = 0.0
        self._ticking: asyncio.Task[None] | None = None

    def watch(self, engine: Engine) -> None:
        """Starts with the engine, in its event loop."""
        self._engine = engine
        engine.on_cycle(self._cycled)
        self._ticking = asyncio.create_task(self._tick())

    def _cycled(self, times: CycleTimes) -> None:
        self._lines.append(
            {
                "at": time.monotonic(),
                "cycle": [times.commands, times.decide_s, times.commit_s, times.publish_s],
                "waiting": self._engine.waiting_commands if self._engine is not None else 0,
            }
        )

    async def _tick(self) -> None:
        """A stall is the delay of a tick. `computed_s` is the processor time of the process during the stall, and `own_s` that of
        this thread; `waited_s` is the time that this thread was runnable without a processor."""
        queue = RunQueue()
        while True:
            self._ticked, before, before_all = time.monotonic(), time.thread_time(), time.process_time()
            before_waited = queue.waited_s()
            await asyncio.sleep(TICK_S)
            late = time.monotonic() - self._ticked - TICK_S
            if late > LATE_S:
                own = min(late, time.thread_time() - before)
                computed = min(late, time.process_time() - before_all)
                waited = min(late, queue.waited_s() - before_waited)
                line = {"stall": late, "own_s": own, "computed_s": computed, "waited_s": waited}
                self._lines.append({"at": time.monotonic(), **line})

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collecting = time.monotonic()
        elif info["generation"] == 2:
            self._lines.append({"at": self._collecting, "gc": time.monotonic() - self._collecting})

    def start(self) -> None:
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._write, daemon=True).start()

    def _write(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        with self._path.open("a", buffering=1) as file:
            while True:
                time.sleep(MEMORY_S)
                lines, self._lines = self._lines, []
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                lines.append({"at": time.monotonic(), "rss": pages * page, "cpu_s": time.process_time()})
                file.write("".join(json.dumps(line) + "\n" for line in lines))


def _measured(meter: Meter) -> type[Engine]:
    class MeasuredEngine(Engine):
        async def start(self, **options: Any) -> None:
            meter.watch(self)
            await super().start(**options)

    return MeasuredEngine


if __name__ == "__main__":
    the_meter = Meter(Path(sys.argv[2]))
    the_meter.start()
    # The composition root creates the engine by this name; everything else equals production.
    setattr(app, "Engine", _measured(the_meter))  # noqa: B010 - it is not part of the module's interface
    sys.exit(main.main(["--config-file", sys.argv[1]]))
