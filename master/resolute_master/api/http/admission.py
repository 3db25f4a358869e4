"""Limits of open requests and of bytes of bodies in memory: counted here, nowhere else.

In memory and for this process alone. A caller over a limit is refused before its body is read. Callers without a token count by
address, and occupy a place among the public requests only after their bodies have been read: a body that never ends
occupies a connection and some KiB, and nothing that another caller needs.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from resolute.errors import LimitExceeded, Unavailable
from resolute_master.api.auth.authenticate import Caller
from resolute_master.api.http.limits import (
    BODY_WAIT_S,
    LARGE_BODY_BYTES,
    MAX_BODIES_BYTES,
    MAX_BODIES_BYTES_PER_CALLER,
    MAX_FIRST_PUBLIC_REQUESTS,
    MAX_PUBLIC_REQUESTS,
    MAX_PUBLIC_REQUESTS_PER_ADDRESS,
    MAX_REQUESTS_PER_CONTAINER,
    MAX_REQUESTS_PER_USER,
    MAX_UNREAD_PUBLIC_BODIES,
    RETRY_AFTER_S,
)


class Admission:
    """Requests that are open now, by caller."""

    def __init__(
        self,
        *,
        per_user: int = MAX_REQUESTS_PER_USER,
        per_container: int = MAX_REQUESTS_PER_CONTAINER,
        public: int = MAX_PUBLIC_REQUESTS,
        public_per_address: int = MAX_PUBLIC_REQUESTS_PER_ADDRESS,
        bodies_bytes: int = MAX_BODIES_BYTES,
        unread: int = MAX_UNREAD_PUBLIC_BODIES,
    ) -> None:
        self._per_user = per_user
        self._per_container = per_container
        self._public = public
        self._public_per_address = public_per_address
        self._open: Counter[Hashable] = Counter()
        self._public_open: Counter[Hashable] = Counter()
        self.bodies = ByteBudget(bodies_bytes)
        self.unread = UnreadBodies(unread)

    def request(self, caller: Caller | None, address: str = "") -> _Place | _PublicPlace:
        """To be entered at once, for the length of one request. Raises `LimitExceeded` when the caller has too many. `address`
        is what a caller without a token is known by."""
        if caller is None:
            return self._public_request(address)
        key, limit = self._share(caller)
        if self._open[key] >= limit:
            raise LimitExceeded(
                f"{_who(caller)} has {limit} open requests, which is the maximum; end some, or try again in a moment",
                retry_after_s=RETRY_AFTER_S,
            )
        return _Place(self._open, key)

    def _public_request(self, address: str) -> _PublicPlace:
        own, together = self._public_open[address], self._public_open.total()
        limit = self._public if own else self._public + MAX_FIRST_PUBLIC_REQUESTS
        if own >= self._public_per_address:
            text = f"callers without a token at your address have {own} open requests, the maximum for an address"
        elif together >= limit:
            text = f"callers without a token, together, have {together} open requests, the maximum"
        else:
            return _PublicPlace(self._public_open, address)
        raise LimitExceeded(f"{text}; log in, or try again in a moment", retry_after_s=RETRY_AFTER_S)

    def _share(self, caller: Caller) -> tuple[Hashable, int]:
        """Whose requests are counted together, and how many they may be."""
        if caller.allocation is not None:
            return caller.allocation.id, self._per_container * max(1, len(caller.allocation.containers))
        return caller.user.id, self._per_user

    @property
    def requests(self) -> int:
        """How many are open."""
        return self._open.total() + self._public_open.total()


def identity(caller: Caller) -> Hashable:
    """Whose bodies are counted together."""
    return caller.allocation.id if caller.allocation is not None else caller.user.id


def _who(caller: Caller) -> str:
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


class _PublicPlace(_Place):
    """One open request without a token."""

    __slots__ = ()


class UnreadBodies:
    """Incomplete bodies of calls without a token: their number is limited, and the address with the most loses its oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_address: dict[str, OrderedDict[asyncio.Timeout, None]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    @asynccontextmanager
    async def waiting(self, address: str) -> AsyncIterator[None]:
        """Around the reading of one. Raises `LimitExceeded` in whichever has lost its place meanwhile."""
        if self._count >= self._limit:
            self._cut_off()
        cut = asyncio.timeout(None)
        own = self._by_address.setdefault(address, OrderedDict())
        own[cut] = None
        self._count += 1
        try:
            async with cut:
                yield
        except TimeoutError:
            if not cut.expired():
                raise
            text = "too many requests are sent and not finished, most of them from your address; try again in a moment"
            raise LimitExceeded(text, retry_after_s=RETRY_AFTER_S) from None
        finally:
            self._forget(address, cut)

    def _cut_off(self) -> None:
        address, crowd = max(self._by_address.items(), key=lambda each: len(each[1]))
        oldest = next(iter(crowd))
        self._forget(address, oldest)
        oldest.reschedule(asyncio.get_running_loop().time())

    def _forget(self, address: str, cut: asyncio.Timeout) -> None:
        own = self._by_address.get(address)
        if own is not None and cut in own:
            del own[cut]
            self._count -= 1
            if not own:
                del self._by_address[address]


@dataclass(slots=True, eq=False)
class _InLine:
    """One waiting body. `key` is its caller; None is not counted."""

    size: int
    key: Hashable
    turn: asyncio.Future[None]


class _Held:
    """Bytes of one body."""

    __slots__ = ("_budget", "_key", "_size")

    def __init__(self, budget: ByteBudget, size: int, key: Hashable) -> None:
        self._budget = budget
        self._size = size
        self._key = key

    async def __aenter__(self) -> None:
        if self._size:
            await self._budget.take(self._size, self._key)

    async def __aexit__(self, *_: object) -> None:
        if self._size:
            self._budget.give_back(self._size, self._key)


class ByteBudget:
    """A limited number of bytes at once. Bodies that do not fit wait in order of arrival; those of callers at their own limit are
    overtaken by others."""

    def __init__(
        self, total: int, *, per_caller: int = MAX_BODIES_BYTES_PER_CALLER, wait_s: float = BODY_WAIT_S
    ) -> None:
        self._free = total
        self._total = total
        self._per_caller = per_caller
        self._wait_s = wait_s
        self._line: deque[_InLine] = deque()
        self._held: Counter[Hashable] = Counter()

    def held(self, size: int, key: Hashable = None) -> _Held:
        """Entered for a body of `size` bytes; a small one need not wait. Raises `Unavailable` after too long in the line."""
        return _Held(self, min(size, self._total) if size > LARGE_BODY_BYTES else 0, key)

    async def take(self, size: int, key: Hashable = None) -> None:
        """For `held`. Raises `Unavailable` after too long in the line."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = _InLine(size, key, turn)
        self._line.append(place)
        self._let_in()
        try:
            async with asyncio.timeout(self._wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back(size, key)
            else:
                self._line.remove(place)
                self._let_in()
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"the master has been reading other uploads for {self._wait_s:.0f} s; try again in a moment"
                ) from None
            raise

    def give_back(self, size: int, key: Hashable = None) -> None:
        """What was taken."""
        self._free += size
        if key is not None:
            self._held[key] -= size
            if not self._held[key]:
                del self._held[key]
        self._let_in()

    def _let_in(self) -> None:
        for place in tuple(self._line):
            if self._has_its_share(place):
                continue
            if place.size > self._free:
                return
            self._line.remove(place)
            self._free -= place.size
            if place.key is not None:
                self._held[place.key] += place.size
            place.turn.set_result(None)

    def _has_its_share(self, place: _InLine) -> bool:
        held = 0 if place.key is None else self._held[place.key]
        return bool(held) and held + place.size > self._per_caller
