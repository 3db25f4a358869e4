"""Limits of password attempts: failures are counted by user and address together, and by address.

A pair of user and address that fails often waits longer each time. An address that fails often, with whatever names, waits as
well, but for those users who have logged in from there before. Nothing is ever counted for a user alone in a way that refuses a
clean address: a stranger could lock the user out with it. An attempt counts as a failure from its beginning, so that a thousand
of them at once are no thousand guesses; names of users that do not exist count alike.

In memory, and bounded: what has not failed for longest is forgotten first.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from resolute.clock import Clock
from resolute.errors import LimitExceeded
from resolute_master.api.http.limits import (
    FAILED_LOGINS,
    FAILED_LOGINS_ATTACKED,
    FAILED_LOGINS_OF_ADDRESS,
    FAILED_LOGINS_OF_USER,
    FIRST_LOGIN_PAUSE_S,
    FORGET_FAILURES_S,
    LONGEST_LOGIN_PAUSE_S,
    REMEMBERED_LOGINS,
)

_NAME_LENGTH = 256


@dataclass(slots=True)
class _Failures:
    """Failed attempts of one key. `running`: attempts whose result is not known yet."""

    count: int = 0
    last: float = -math.inf
    running: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def forget_old(self, now: float) -> None:
        if now - self.last > FORGET_FAILURES_S:
            self.count = 0

    def wait_s(self, now: float, allowed: int) -> float:
        """Seconds until another attempt may be made."""
        self.forget_old(now)
        if self.count < allowed:
            return 0.0
        pause_s = min(LONGEST_LOGIN_PAUSE_S, FIRST_LOGIN_PAUSE_S * 2.0 ** min(self.count - allowed, 30))
        return max(0.0, self.last + pause_s - now)

    def failed(self, now: float) -> None:
        self.forget_old(now)
        self.count += 1
        self.last = now


class _Table:
    """The newest `REMEMBERED_LOGINS` of a kind of key."""

    def __init__(self) -> None:
        self._rows: OrderedDict[Hashable, _Failures] = OrderedDict()

    def row(self, key: Hashable) -> _Failures:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= REMEMBERED_LOGINS:
                self._rows.popitem(last=False)
            row = self._rows[key] = _Failures()
        else:
            self._rows.move_to_end(key)
        return row

    def drop(self, key: Hashable) -> None:
        self._rows.pop(key, None)

    def __len__(self) -> int:
        return len(self._rows)


class LoginAttempts:
    """The failed logins of one master. Times are the monotonic time of the given clock."""

    def __init__(self) -> None:
        self._pairs = _Table()
        self._users = _Table()
        self._addresses = _Table()
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def remembered(self) -> int:
        """Rows of the largest table."""
        return max(len(self._pairs), len(self._users), len(self._addresses), len(self._good))

    async def begin(self, username: str, address: str, clock: Clock) -> Attempt:
        """Begins an attempt before the password is checked. Raises `LimitExceeded` with the remaining delay; then nothing is
        counted."""
        name, now = username[:_NAME_LENGTH], clock.monotonic()
        pair, user, place = (
            self._pairs.row((name, address)),
            self._users.row(name),
            self._addresses.row(address),
        )
        user.forget_old(now)
        attacked = user.count >= FAILED_LOGINS_OF_USER and (name, address) not in self._good
        allowed = FAILED_LOGINS_ATTACKED if attacked else FAILED_LOGINS
        while pair.running and pair.count + pair.running >= allowed:
            pair.ended.clear()
            await pair.ended.wait()
            now = clock.monotonic()
        wait_s = pair.wait_s(now, allowed)
        if (name, address) not in self._good:
            wait_s = max(wait_s, place.wait_s(now, FAILED_LOGINS_OF_ADDRESS))
        if wait_s > 0:
            raise LimitExceeded(
                f"too many failed logins from your address; try again in {math.ceil(wait_s)} s", retry_after_s=wait_s
            )
        return Attempt(self, name, address, (pair, user, place))

    def succeeded(self, name: str, address: str) -> None:
        """Clears the failures of the pair, for `Attempt`. Failures of the address with other names stay."""
        self._pairs.drop((name, address))
        self._good[name, address] = None
        self._good.move_to_end((name, address))
        if len(self._good) > REMEMBERED_LOGINS:
            self._good.popitem(last=False)


class Attempt:
    """One attempt that may be made. The caller must call `end` whatever its result is."""

    def __init__(self, table: LoginAttempts, name: str, address: str, rows: tuple[_Failures, ...]) -> None:
        self._table = table
        self._name = name
        self._address = address
        self._rows = rows
        for row in rows:
            row.running += 1

    def end(self, *, right: bool | None, now: float) -> None:
        """Ends the attempt. `right` None: the check of the password was not completed."""
        for row in self._rows:
            row.running -= 1
            if right is False:
                row.failed(now)
        if right:
            self._table.succeeded(self._name, self._address)
        self._rows[0].ended.set()
