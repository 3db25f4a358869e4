"""Who comes while the master starts stands on the porch, as a bare socket; who is waited for goes in past the others.

After a restart every task of the cluster is at the door, thousands of them, and the links of the agents stand anywhere in their
line. Nothing can be scheduled until agents are back, and to serve a request takes twenty times as long as to look at its first
line. So the first line is looked at, without taking it from the socket, and those whose path is among `first` go in at once; the
others wait until the master has started, and then come in one by one between them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

LOOKED_AT_AT_ONCE = 64
"""Callers that are looked at in one turn of the event loop: to accept one and to look takes some ten microseconds."""

FIRST_AT_ONCE = 4
"""Of those who go first, so many are let in in a turn. Each costs a part of a millisecond, and as much again for its request."""

OTHERS_AT_ONCE = 1
"""Of the others, in the same turn: some, so that they come in at last whoever else comes."""

PAUSE_S = 0.004
"""Between two looks while the master starts: the state is loaded faster when little is done meanwhile."""

FAILED_PAUSE_S = 0.5

WAIT_S = 10.0
"""Who has waited here for so long is let in at the same slow pace, to be told there what the start is at."""

_TLS = b"\x16\x03"
"""How a TLS handshake begins."""

_LINE_BYTES = 64
"""Of the first line so much is looked at: more than the longest path of those who go first."""


class Porch:
    """`run` until the master has started, which `open` tells, and everybody who came meanwhile is in."""

    def __init__(
        self,
        listener: socket.socket,
        enter: Callable[[], asyncio.Protocol],
        *,
        first: Sequence[str],
        room: Callable[[], int],
        wait_s: float = WAIT_S,
    ) -> None:
        """`listener` does not block. `enter` makes the protocol of a caller who is let in; `first` are beginnings of paths. `room`
        is how many callers may stand here; the others wait in the kernel's queue."""
        self._listener = listener
        self._enter = enter
        self._first_paths = tuple(path.encode() for path in first)
        self._room = room
        self._wait_s = wait_s
        self._open_to_first = self._open = False
        self._first: deque[socket.socket] = deque()
        self._others: deque[tuple[float, socket.socket]] = deque()
        """With the moment at which each came."""
        self._again_at = 0.0
        """Until then nobody is taken: it has failed."""

    def open_to_first(self) -> None:
        """Who goes first is served from now on."""
        self._open_to_first = True

    def open(self) -> None:
        """The master has started: everybody is served from now on."""
        self._open_to_first = self._open = True

    async def run(self) -> None:
        """Ends by itself; when it is cancelled, who still waits is sent away."""
        try:
            while True:
                came = self._look()
                if self._open and not (came or self._first or self._others or self._again_at):
                    return
                await self._let_in()
                busy = (self._open_to_first and (came or self._first)) or (self._open and self._others)
                await asyncio.sleep(0 if busy else PAUSE_S)
        finally:
            for caller in (*self._first, *(caller for _, caller in self._others)):
                caller.close()

    def _look(self) -> int:
        """Sort those who have come; answers how many. When nobody can be taken, those who stand here go in all the same."""
        now = asyncio.get_running_loop().time()
        if now < self._again_at:
            return 0
        self._again_at = 0.0
        most = min(LOOKED_AT_AT_ONCE, self._room() - len(self._first) - len(self._others))
        for number in range(most):
            try:
                caller, _ = self._listener.accept()
            except BlockingIOError:
                return number  # nobody is there
            except OSError as error:  # no file descriptor is left, or who called has gone already
                log.warning("a connection cannot be taken: %s", error)
                self._again_at = now + FAILED_PAUSE_S
                return number
            caller.setblocking(False)
            if self._goes_first(caller):
                self._first.append(caller)
            else:
                self._others.append((now, caller))
        return most

    def _goes_first(self, caller: socket.socket) -> bool:
        """Also who has said nothing yet, or has gone: whoever is inside knows what to do with such. What is said over TLS cannot
        be looked at: who comes so goes in, and waits inside."""
        try:
            said = caller.recv(_LINE_BYTES, socket.MSG_PEEK)
        except OSError:
            return True
        if said.startswith(_TLS):
            return True
        _, _, path = said.partition(b" ")
        return not path or path.startswith(self._first_paths)

    async def _let_in(self) -> None:
        loop = asyncio.get_running_loop()
        first = FIRST_AT_ONCE if self._open_to_first else 1
        late = bool(self._others) and self._others[0][0] + self._wait_s < loop.time()
        others = OTHERS_AT_ONCE if self._open or late else 0
        entering = [self._first.popleft() for _ in range(min(first, len(self._first)))]
        entering += [self._others.popleft()[1] for _ in range(min(others, len(self._others)))]
        try:
            await asyncio.gather(*(loop.connect_accepted_socket(self._enter, caller) for caller in entering))
        except OSError as error:  # of one of them; the others are in
            log.warning("a connection cannot be let in: %s", error)
