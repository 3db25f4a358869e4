"""An event loop whose turns stay short when everybody speaks at once.

asyncio takes all sockets that are ready into one turn, and whoever becomes ready meanwhile, timers included, waits until all of
them have been served: after a moment in which nobody was, five hundred requests are a turn of a sixth of a second. Here a turn
takes a few, in the order in which they became ready.

And a thread beside the loop that computes takes half of the interpreter's time from a turn, whatever Python's switch interval is:
what takes the loop 25 ms alone is a stall of 50 then. So whoever computes for long in a thread does it in pieces, and gives way
between them: it goes on while the loop waits for events.
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
"""What is read from one takes up to a third of a millisecond to serve, so a turn is about five, or twice that while another thread
computes."""

LONGEST_WAIT_S = 0.005
PIECE_S = 0.001
"""A thread that gives way computes for so long after it has waited for so long, also while the loop never rests: a sixth of the
time, for a list of everything is to come to its end."""

resting = threading.Event()
"""The process's event loop waits for events, or there is none."""
resting.set()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner`."""
    return asyncio.SelectorEventLoop(FewAtATime())


class FewAtATime(selectors.DefaultSelector):
    """Answers at most `SOCKETS_A_TURN` events; the rest at the next calls, before the system is asked again."""

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
            # What was closed or asked for something else meanwhile is left to the system, which tells of it again.
            if self.get_map().get(key.fileobj) == key:
                taken.append((key, events))
        return taken

    def _asked(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            resting.set()
        try:
            return super().select(timeout)
        finally:
            resting.clear()

    def close(self) -> None:
        super().close()
        resting.set()


def giving_way(
    items: Iterable[Item], *, loop_rests: threading.Event = resting, piece_s: float = PIECE_S
) -> Iterator[Item]:
    """The same items, for a thread beside the event loop: each is a piece of work, of some tens of microseconds."""
    until = time.monotonic() + piece_s
    for item in items:
        yield item
        if not loop_rests.is_set() and time.monotonic() >= until:
            loop_rests.wait(LONGEST_WAIT_S)
            until = time.monotonic() + piece_s
