"""A limited number at once, in turn by key: the queue of one key never delays another key by more than one turn."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """A semaphore with a queue for each key, served round robin."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Context that is entered when the oldest request of this key has its turn."""
        await self._enter(key)
        try:
            yield
        finally:
            self._free += 1
            self._next()

    async def _enter(self, key: str) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, deque()).append(place)
        self._next()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._free += 1
                self._next()
            else:
                self._leave(key, place)
            raise

    def _leave(self, key: str, place: asyncio.Future[None]) -> None:
        queue = self._queues.get(key)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[key]

    def _next(self) -> None:
        while self._free and self._queues:
            key, queue = self._queues.popitem(last=False)
            place = queue.popleft()
            if queue:
                self._queues[key] = queue  # behind the other keys
            if not place.done():
                self._free -= 1
                place.set_result(None)
