"""Barriers of gangs, in memory: a restart of the master breaks the connections, and the members reconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from resolute.errors import Conflict, InvalidInput, Unavailable
from resolute_master.domain.ids import AllocationId

BARRIER_LIMIT_S = 600.0
"""Time after which an incomplete barrier fails."""

Data = Mapping[str, Any]


@dataclass(slots=True)
class _Barrier:
    peers: int
    waiting: dict[str, tuple[Data, asyncio.Future[tuple[Data, ...]]]] = field(default_factory=dict)


class Barriers:
    """The barriers. `await gather(...)` returns when all peers of the allocation have called it, with the data of each."""

    def __init__(self, limit_s: float = BARRIER_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._barriers: dict[AllocationId, _Barrier] = {}

    async def gather(self, allocation: AllocationId, member: str, peers: int, data: Data) -> tuple[Data, ...]:
        """Waits for all peers. A second call of the same member replaces its first, which then raises `Conflict`.

        Raises `InvalidInput` when members disagree about their number and `Unavailable` when the time is over.
        """
        if peers < 1:
            raise InvalidInput(f"numPeers: {peers} must be at least 1")
        barrier = self._barriers.setdefault(allocation, _Barrier(peers))
        if barrier.peers != peers:
            raise InvalidInput(f"numPeers: {peers} differs from the {barrier.peers} that another member waits for")
        future: asyncio.Future[tuple[Data, ...]] = asyncio.get_running_loop().create_future()
        before = barrier.waiting.get(member)
        barrier.waiting[member] = (data, future)
        if before is not None and not before[1].done():
            before[1].set_exception(Conflict(f"member '{member}' connected again; this call has ended"))
        if len(barrier.waiting) == peers:
            self._complete(allocation, barrier)
        try:
            async with asyncio.timeout(self._limit_s):
                return await future
        except TimeoutError:
            missing = peers - len(barrier.waiting)
            raise Unavailable(f"{missing} of {peers} members did not arrive within {self._limit_s:.0f} s") from None
        finally:
            self._leave(allocation, barrier, member, future)

    def _complete(self, allocation: AllocationId, barrier: _Barrier) -> None:
        del self._barriers[allocation]
        everything = tuple(barrier.waiting[member][0] for member in sorted(barrier.waiting))
        for _, future in barrier.waiting.values():
            if not future.done():
                future.set_result(everything)

    def _leave(
        self, allocation: AllocationId, barrier: _Barrier, member: str, future: asyncio.Future[tuple[Data, ...]]
    ) -> None:
        """Removes the member, and the barrier if no member waits."""
        entry = barrier.waiting.get(member)
        if entry is not None and entry[1] is future:
            del barrier.waiting[member]
        if not barrier.waiting and self._barriers.get(allocation) is barrier:
            del self._barriers[allocation]
