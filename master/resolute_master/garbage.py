"""Python's garbage collection without long pauses.

A full collection looks at every container in the process: with ten thousand jobs that are millions, and the master stands still
for half a second. What the master keeps, it lets go of by itself: its state is without cycles, so the count of references frees
it. So whatever has survived one full collection is set aside and not looked at again (`gc.freeze`); a collection then costs what
came since the one before, and a start with much to load is quicker too.

What was set aside and becomes part of a dead cycle later is lost until everything is looked at, which is done rarely. Such
cycles are the transports of connections that lived long: two kilobytes each.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FULL_AFTER = 3
"""Middle collections between two full ones; Python's 10 would let a hundred thousand objects come together under load, and to look
at them takes the better part of 100 ms."""

EVERYTHING_S = 6 * 3600.0
"""So often everything is looked at: one pause of some tenths of a second, against cycles that died late."""


@contextmanager
def survivors_set_aside() -> Iterator[None]:
    """Within it, of the whole process."""
    young, middle, full = gc.get_threshold()
    gc.set_threshold(young, middle, min(full, FULL_AFTER))
    gc.callbacks.append(_collected)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, full)
        gc.callbacks.remove(_collected)
        gc.unfreeze()


def _collected(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


async def look_at_everything(every_s: float = EVERYTHING_S) -> None:
    """Until it is cancelled: a full collection of everything, also of what was set aside."""
    while True:
        await asyncio.sleep(every_s)
        gc.unfreeze()
        gc.collect()
