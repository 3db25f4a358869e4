"""Who may have how many requests open, and how many bytes of bodies are held: counted here, nowhere else.

In memory and for this process alone. A caller over a limit is refused before its body is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable

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

    def request(self, caller: Caller | None) -> _Place:
        """To be entered at once, for the length of one request. Raises `LimitExceeded` when the caller has too many."""
        key, limit = self._share(caller)
        if self._open[key] >= limit:
            raise LimitExceeded(
                f"{_who(caller)} has {limit} requests open, as many as one may; end some, or try again in a moment",
                retry_after_s=RETRY_AFTER_S,
            )
        return _Place(self._open, key)

    def _share(self, caller: Caller | None) -> tuple[Hashable, int]:
        """Whose requests are counted together, and how many they may be."""
        if caller is None:
            return "public", self._public
        if caller.allocation is not None:
            return caller.allocation.id, self._per_container * max(1, len(caller.allocation.containers))
        return caller.user.id, self._per_user

    @property
    def requests(self) -> int:
        """How many are open."""
        return self._open.total()


def _who(caller: Caller | None) -> str:
    if caller is None:
        return "everybody without a token, together,"
    if caller.allocation is not None:
        return f"task {caller.allocation.task_id}"
    return f"user '{caller.user.username}'"


class _Place:
    """One open request. A class, for a generator costs three times as much each time."""

    __slots__ = ("_key", "_open")

    def __init__(self, open_: Counter[Hashable], key: Hashable) -> None:
        self._open = open_
        self._key = key

    def __enter__(self) -> None:
        self._open[self._key] += 1

    def __exit__(self, *_: object) -> None:
        self._open[self._key] -= 1
        if not self._open[self._key]:
            del self._open[self._key]


class _Held:
    """Bytes of one body."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget = budget
        self._size = size

    async def __aenter__(self) -> None:
        if self._size:
            await self._budget.take(self._size)

    async def __aexit__(self, *_: object) -> None:
        if self._size:
            self._budget.give_back(self._size)


class ByteBudget:
    """So many bytes at once. Who does not fit waits in line; the line is first come, first served."""

    def __init__(self, total: int, *, wait_s: float = BODY_WAIT_S) -> None:
        self._free = total
        self._total = total
        self._wait_s = wait_s
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    def held(self, size: int) -> _Held:
        """Entered for a body of `size` bytes; a small one need not wait. Raises `Unavailable` after too long in the line."""
        return _Held(self, min(size, self._total) if size > LARGE_BODY_BYTES else 0)

    async def take(self, size: int) -> None:
        """For `held`. Raises `Unavailable` after too long in the line."""
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

    def give_back(self, size: int) -> None:
        """What was taken."""
        self._free += size
        self._let_in()

    def _let_in(self) -> None:
        while self._line and self._line[0][0] <= self._free:
            size, turn = self._line.popleft()
            self._free -= size
            turn.set_result(None)
