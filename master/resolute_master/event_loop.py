"""An event loop whose turns stay short when everybody speaks at once.

asyncio takes all sockets that are ready into one turn, and whoever becomes ready meanwhile, timers included, waits until all of
them have been served: after a moment in which nobody was, five hundred requests are a turn of a sixth of a second. Here a turn
takes a few, in the order in which they became ready.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque

SOCKETS_A_TURN = 16
"""What is read from one takes up to a third of a millisecond to serve, so a turn is about five, or twice that while another thread
computes."""


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
            ready = super().select(timeout)
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
