"""Python's garbage collection without long pauses.

Left to itself, Python collects whenever so many objects were made more than let go of: in the middle of a turn of the event loop,
or in a thread that makes a list of everything, with every thread at a stand. And a full collection looks at every container in the
process: with ten thousand jobs that are millions, and the master stands still for half a second.

What the master keeps and what a request needs, it lets go of by itself: neither has cycles, so the count of references frees it.
What is left are a few cycles of libraries. So the master collects at moments of its own, as one thing among those that the event
loop does, and looks at few objects at once: whatever has survived a look, and whatever came in such a number that a look would take
long, is set aside and not looked at again (`gc.freeze`).

What was set aside and is part of a dead cycle, then or later, is lost until everything is looked at. That is done rarely, but also
as soon as the process has grown much since the last time, so what is lost is bounded, whoever makes the cycles: between two looks
at everything the process grows by `LEAST_GROWTH` blocks of memory, or by half when that is more, and by what comes until it is
asked again, `ASKED_AFTER` objects and those of one moment. No dead object takes less than a block.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_S = 0.02
"""Interval between checks whether a collection is due."""

YOUNG, MANY_YOUNG = 500, 4_000
"""The young objects are looked at when so many more were made than let go of, and set aside unseen when they are so many: each
takes some microseconds. Many at once are a list of everything, which goes as it came, or work that begins, which stays."""

EVERYTHING_S = 6 * 3600.0
"""Interval between full collections: one pause of some tenths of a second, for cycles that were released late."""

LEAST_GROWTH = 5_000_000
"""Blocks of memory, about 500 MiB. A full collection runs when this number, plus half of what the last one left, was
allocated since. Objects that are loaded at start count; ten thousand jobs are less."""

ASKED_AFTER = 100_000
"""Objects that are frozen before the blocks are counted again, which takes two milliseconds in a large process."""


@contextmanager
def survivors_set_aside() -> Iterator[None]:
    """Within it nothing is collected, but by `collecting`."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


async def collecting(
    *,
    look_s: float = LOOK_S,
    young: int = YOUNG,
    many: int = MANY_YOUNG,
    everything_s: float = EVERYTHING_S,
    least_growth: int = LEAST_GROWTH,
    asked_after: int = ASKED_AFTER,
) -> None:
    """Until it is cancelled; inside of `survivors_set_aside`."""
    next_everything, left, set_aside = time.monotonic() + everything_s, sys.getallocatedblocks(), 0
    while True:
        await asyncio.sleep(look_s)
        found = gc.get_count()[0]
        grown = False
        if set_aside >= asked_after:
            set_aside, grown = 0, sys.getallocatedblocks() - left >= max(least_growth, left // 2)
        if grown or time.monotonic() >= next_everything:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            next_everything, left, set_aside = time.monotonic() + everything_s, sys.getallocatedblocks(), 0
        elif found >= young:
            if found <= many:
                gc.collect(0)
            gc.freeze()
            set_aside += found
