"""Python's garbage collection without long pauses.

By default, Python collects when the allocated objects exceed the freed ones by a threshold: in the middle of a turn of the event
loop, or in a thread that builds a large list, while all threads wait. A full collection visits every container of the process:
with ten thousand jobs these are millions, and the master is blocked for half a second.

The data of the master and of requests has no cycles, so reference counting frees it. A few cycles of libraries remain. So the
master collects at times of its own choice, as one task of the event loop, and visits few objects at once: objects that survive a
collection, and objects in such numbers that a collection would take long, are frozen and not visited again (`gc.freeze`).

Frozen objects in an unreachable cycle leak until the next full collection. That runs rarely, but also as soon as the process
has grown much since the last one, so the leak is bounded: between two full collections the process grows by `LEAST_GROWTH`
blocks of memory, or by half if that is more, plus the allocations until the next check, `ASKED_AFTER` objects and those of one
turn. No unreachable object takes less than a block.
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
"""From `YOUNG` objects made and not freed, the young generation is collected; above `MANY_YOUNG` it is frozen unseen, for a visit
takes some microseconds. Such a number is a list of everything, which reference counting frees, or work that begins and stays."""

EVERYTHING_S = 6 * 3600.0
"""Interval between full collections: one pause of some tenths of a second, for cycles that were released late."""

LEAST_GROWTH = 5_000_000
"""Blocks of memory, about 500 MiB. A full collection runs when this number, plus half of what the last one left, was
allocated since. Objects that are loaded at start count; ten thousand jobs are less."""

ASKED_AFTER = 100_000
"""Objects that are frozen before the blocks are counted again, which takes two milliseconds in a large process."""


@contextmanager
def survivors_frozen() -> Iterator[None]:
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
    """Until it is cancelled; inside of `survivors_frozen`."""
    next_everything, left, frozen = time.monotonic() + everything_s, sys.getallocatedblocks(), 0
    while True:
        await asyncio.sleep(look_s)
        found = gc.get_count()[0]
        grown = False
        if frozen >= asked_after:
            frozen, grown = 0, sys.getallocatedblocks() - left >= max(least_growth, left // 2)
        if grown or time.monotonic() >= next_everything:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            next_everything, left, frozen = time.monotonic() + everything_s, sys.getallocatedblocks(), 0
        elif found >= young:
            if found <= many:
                gc.collect(0)
            gc.freeze()
            frozen += found
