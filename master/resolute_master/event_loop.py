"""An event loop with short turns.

asyncio serves all ready sockets in one turn, and timers and new sockets wait until the turn ends: 400 requests after a pause were
one turn of 130 ms, during which no heartbeat and no request was answered. Here a turn serves a few sockets, in the order in which
they became ready.

A thread that computes takes half of the interpreter's time from a turn, whatever Python's switch interval is: 30 ms of the loop
took 75 ms while a user listed all experiments. Such a thread therefore works in pieces (`yielding`) and resumes while the loop
waits for events. The figures are those of `docs/benchmarks.md`, "Load".
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

SOCKETS_A_TURN = 16
"""One socket takes up to a third of a millisecond to serve, so that a turn takes about 5 ms, or 10 ms while a thread computes."""

LONGEST_WAIT_S = 0.005
PIECE_S = 0.001
"""A thread that yields computes for `PIECE_S` after each wait of at most `LONGEST_WAIT_S`: a sixth of the time while the loop
never waits, so that its work always ends."""

loop_idle = threading.Event()
"""The process's event loop waits for events, or there is none."""
loop_idle.set()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner`."""
    return asyncio.SelectorEventLoop(BatchSelector())


class BatchSelector(selectors.DefaultSelector):
    """Returns at most `SOCKETS_A_TURN` events; the rest at the next calls, before the system is queried again."""

    def __init__(self) -> None:
        super().__init__()
        self._left: deque[tuple[selectors.SelectorKey, int]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._left:
            ready = self._asked(timeout)
            if len(ready) <= SOCKETS_A_TURN:
                return ready
            self._left.extend(ready)
        taken: list[tuple[selectors.SelectorKey, int]] = []
        while self._left and len(taken) < SOCKETS_A_TURN:
            key, events = self._left.popleft()
            # A socket that was closed or registered again meanwhile is left to the system, which reports it again.
            if self.get_map().get(key.fileobj) == key:
                taken.append((key, events))
        return taken

    def _asked(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            loop_idle.set()
        try:
            return super().select(timeout)
        finally:
            loop_idle.clear()

    def close(self) -> None:
        super().close()
        loop_idle.set()


def yielding(items: Iterable[Item], *, idle: threading.Event = loop_idle, piece_s: float = PIECE_S) -> Iterator[Item]:
    """The same items, for a thread beside the event loop: each is a piece of work, of some tens of microseconds."""
    until = time.monotonic() + piece_s
    for item in items:
        yield item
        if not idle.is_set() and time.monotonic() >= until:
            idle.wait(LONGEST_WAIT_S)
            until = time.monotonic() + piece_s
