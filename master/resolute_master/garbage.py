"""Python's garbage collection without long pauses.

A full collection looks at every container in the process: with ten thousand jobs that are millions, and the master stands still
for half a second. What the master keeps, it lets go of by itself: its state is without cycles, so the count of references frees
it. So whatever has survived a collection of the middle generation, as cycles of a request or an error do not, is set aside and
not looked at again (`gc.freeze`): pauses are a few milliseconds. While the master starts nothing is collected at all: what it
loads stays, and collections among it would make the start a quarter longer.

What was set aside and becomes part of a dead cycle later is lost until everything is looked at, which is done rarely.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

EVERYTHING_S = 6 * 3600.0
"""So often everything is looked at: one pause of some tenths of a second, against cycles that died late."""


@contextmanager
def survivors_set_aside() -> Iterator[None]:
    """Within it, of the whole process; collections begin with `begin`."""
    gc.disable()
    gc.callbacks.append(_collected)
    try:
        yield
    finally:
        gc.enable()
        gc.callbacks.remove(_collected)
        gc.unfreeze()


def begin() -> None:
    """The start is over: what is there now is set aside, and collections begin. Only where they were put off."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _collected(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


async def look_at_everything(every_s: float = EVERYTHING_S) -> None:
    """Until it is cancelled: a full collection of everything, also of what was set aside."""
    while True:
        await asyncio.sleep(every_s)
        gc.unfreeze()
        gc.collect()
