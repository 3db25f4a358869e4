"""Python's garbage collection without long pauses.

Left to itself, Python collects whenever so many objects were made more than let go of: in the middle of a turn of the event loop,
or in a thread that makes a list of everything, with every thread at a stand. And a full collection looks at every container in the
process: with ten thousand jobs that are millions, and the master stands still for half a second.

What the master keeps and what a request needs, it lets go of by itself: neither has cycles, so the count of references frees it.
What is left are a few cycles of errors and libraries. So the master collects at moments of its own, as one thing among those that
the event loop does, and looks at few objects at once: whatever has survived a look, and whatever came in such a number that a look
would take long, is set aside and not looked at again (`gc.freeze`).

What was set aside and becomes part of a dead cycle later is lost until everything is looked at, which is done rarely.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOK_S = 0.05
"""So often it is asked whether there is something to look at."""

YOUNG, MANY_YOUNG = 500, 1500
"""The young objects are looked at when so many more were made than let go of, and set aside unseen when they are so many: each
takes some microseconds. Many at once are a list of everything, which goes as it came, or work that begins, which stays."""

EVERYTHING_S = 6 * 3600.0
"""So often everything is looked at: one pause of some tenths of a second, against cycles that died late."""


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
    *, look_s: float = LOOK_S, young: int = YOUNG, many: int = MANY_YOUNG, everything_s: float = EVERYTHING_S
) -> None:
    """Until it is cancelled; inside of `survivors_set_aside`."""
    next_everything = time.monotonic() + everything_s
    while True:
        await asyncio.sleep(look_s)
        found = gc.get_count()[0]
        if time.monotonic() >= next_everything:
            next_everything = time.monotonic() + everything_s
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif found > many:
            gc.freeze()
        elif found >= young:
            gc.collect(0)
            gc.freeze()
