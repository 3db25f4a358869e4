"""Who may have how many requests open, and how many bytes of bodies are held: counted here, nowhere else.

In memory and for this process alone. A caller over a limit is refused before its body is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager

from resolute.errors import LimitExceeded, Unavailable
from resolute_master.api.auth import Caller
from resolute_master.api.limits import (
    BODY_WAIT_S,
    LARGE_BODY_BYTES,
    MAX_BODIES_BYTES,
    MAX_PUBLIC_REQUESTS,
    MAX_REQUESTS_PER_CONTAINER,
    MAX_REQUESTS_PER_USER,
    RETRY_AFTER_S,
)


class Admission:
    """Requests that are open now, by who has sent them."""

    def __init__(
        self,
        *,
        per_user: int = MAX_REQUESTS_PER_USER,
        per_container: int = MAX_REQUESTS_PER_CONTAINER,
        public: int = MAX_PUBLIC_REQUESTS,
        bodies_bytes: int = MAX_BODIES_BYTES,
    ) -> None:
        self._per_user = per_user
        self._per_container = per_container
        self._public = public
        self._open: Counter[Hashable] = Counter()
        self.bodies = ByteBudget(bodies_bytes)

    @contextmanager
    def request(self, caller: Caller | None) -> Iterator[None]:
        """Entered for the length of one request. Raises `LimitExceeded` when the caller has too many."""
        key, limit, who = self._share(caller)
        if self._open[key] >= limit:
            raise LimitExceeded(
                f"{who} has {limit} requests open, as many as one may; end some, or try again in a moment",
                retry_after_s=RETRY_AFTER_S,
            )
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def _share(self, caller: Caller | None) -> tuple[Hashable, int, str]:
        if caller is None:
            return "public", self._public, "everybody without a token, together,"
        if caller.allocation is not None:
            containers = max(1, len(caller.allocation.containers))
            return caller.allocation.id, self._per_container * containers, f"task {caller.allocation.task_id}"
        return caller.user.id, self._per_user, f"user '{caller.user.username}'"

    @property
    def requests(self) -> int:
        """How many are open."""
        return self._open.total()


class ByteBudget:
    """So many bytes at once. Who does not fit waits in line; the line is first come, first served."""

    def __init__(self, total: int, *, wait_s: float = BODY_WAIT_S) -> None:
        self._free = total
        self._total = total
        self._wait_s = wait_s
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """For a body of `size` bytes. Raises `Unavailable` after too long in the line."""
        if size <= LARGE_BODY_BYTES:
            yield
            return
        size = min(size, self._total)
        await self._take(size)
        try:
            yield
        finally:
            self._free += size
            self._let_in()

    async def _take(self, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        self._let_in()
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._free += size
            else:
                self._line.remove((size, turn))
            self._let_in()
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"the master has been reading other uploads for {self._wait_s:.0f} s; try again in a moment"
                ) from None
            raise

    def _let_in(self) -> None:
        while self._line and self._line[0][0] <= self._free:
            size, turn = self._line.popleft()
            self._free -= size
            turn.set_result(None)
