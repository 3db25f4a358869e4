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
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

YOUNG, MIDDLE = 2000, 1
"""The young objects are looked at when so many more were made than let go of, and at every second time those that survived the time
before, too. Each object costs a microsecond or two, with every thread at a stand: these are pauses of four and eight milliseconds.
With Python's own 700 and 10 they are one and forty."""

EVERYTHING_S = 6 * 3600.0
"""So often everything is looked at: one pause of some tenths of a second, against cycles that died late."""


@contextmanager
def survivors_set_aside() -> Iterator[None]:
    """Within it, of the whole process; collections begin with `begin`."""
    gc.disable()
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, MIDDLE, *before[2:])
    gc.callbacks.append(_collected)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.enable()
        gc.callbacks.remove(_collected)
        gc.unfreeze()


def begin() -> None:
    """The start is over: what is there now is set aside, and collections begin. Only where they were put off."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


LONGEST_PUT_OFF_S = 1.0
"""Whoever comes so late after the first does not put collections off any longer: else a busy master would never collect."""


class _PutOff:
    """How many put collections off, and since when; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._since = 0.0

    def take(self) -> bool:
        """False when it is not put off for this one: collections have not begun, or have been put off for long enough."""
        with self._lock:
            if not self._holders:
                if not gc.isenabled():
                    return False
                self._since = time.monotonic()
                gc.disable()
            elif time.monotonic() - self._since > LONGEST_PUT_OFF_S:
                return False
            self._holders += 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._holders -= 1
            if not self._holders:
                gc.enable()


_put_off = _PutOff()


@contextmanager
def put_off() -> Iterator[None]:
    """Within it nothing is collected, in any thread: for making many objects that are let go of together at the end. Collections
    look at all of them, again and again, and stop every thread meanwhile: two microseconds an object, for a list of ten thousand
    rows a tenth of a second."""
    taken = _put_off.take()
    try:
        yield
    finally:
        if taken:
            _put_off.give_back()


def _collected(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


async def look_at_everything(every_s: float = EVERYTHING_S) -> None:
    """Until it is cancelled: a full collection of everything, also of what was set aside."""
    while True:
        await asyncio.sleep(every_s)
        gc.unfreeze()
        gc.collect()
