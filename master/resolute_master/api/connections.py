"""The door below HTTP: how many connections there are, and which of them hold a place for nothing.

A connection that sends no head in time, or takes nothing of what is sent to it, is closed. Whatever is above sees plain
asyncio: it is wrapped, not changed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import resource
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from resolute_master.api.limits import (
    HEAD_S,
    IDLE_S,
    MAX_CONNECTIONS,
    MAX_HEADER_BYTES,
    MAX_REQUEST_LINE_BYTES,
    RETRY_AFTER_S,
    SPARE_FILES,
    SWEEP_S,
    UNREAD_S,
)
from resolute_master.api.porch import Porch
from resolute_master.turns import a_few_at_a_time

log = logging.getLogger(__name__)

_END_OF_HEAD = b"\r\n\r\n"

TAKEN_AT_ONCE = 4
"""Connections that are taken in one turn of the event loop. Each costs a part of a millisecond, and as much again for its first
request: after a restart, when thousands come in one moment, an agent's way in is a dozen turns."""

LOOKED_AT_AT_ONCE = 500
"""Connections whose patience is looked at in one turn: a millisecond. There may be ten for each machine."""


def allow_open_files() -> int:
    """Let this process open as many files as it may, and answer how many connections that leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, hard - SPARE_FILES)
    return max(1, most)


def runner_of(app: web.Application, *, stop_grace_s: float) -> web.AppRunner:
    """The application; open requests may take `stop_grace_s` at its end."""
    return web.AppRunner(app, shutdown_timeout=stop_grace_s)


class _Http(web.RequestHandler):
    """aiohttp's protocol, which leaves nothing behind for garbage collection when it could not read what was sent."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        try:
            return super().handle_error(request, status, exc, message)
        finally:
            if exc is not None:
                exc.__traceback__ = None  # it leads to the frame that handed the error on, and still has it


def protocol_of(runner: web.AppRunner) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol of each connection of a runner that has been set up, with the limits of heads and idle connections."""
    assert runner.server is not None
    unlogged: Any = None  # requests are logged by `resolute_master.api.requests`
    return partial(
        _Http,
        runner.server,
        loop=asyncio.get_running_loop(),
        access_log=unlogged,
        max_line_size=MAX_REQUEST_LINE_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        keepalive_timeout=IDLE_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a connection may hold its place without a head, and with an answer that it does not take."""

    head_s: float = HEAD_S
    unread_s: float = UNREAD_S
    sweep_s: float = SWEEP_S


class Connections:
    """A factory of protocols for `loop.create_server`. `sweep` runs beside it."""

    def __init__(self, inner: Callable[[], asyncio.Protocol], *, limit: int, patience: Patience | None = None) -> None:
        self._inner = inner
        self._limit = limit
        self._patience = patience or Patience()
        self._open: set[_Connection] = set()
        self._refused = 0

    def __call__(self) -> asyncio.Protocol:
        if len(self._open) >= self._limit:
            if not self._refused:
                log.warning("%d connections are open, as many as may be; further ones are refused", self._limit)
            self._refused += 1
            return _Refusing()
        return _Connection(self._inner(), self._open)

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def sweep(self) -> None:
        """Until cancelled: close what holds a place for nothing."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._patience.sweep_s)
            now = loop.time()
            await a_few_at_a_time(tuple(self._open), partial(self._look, now), at_once=LOOKED_AT_AT_ONCE)
            if self._refused:
                log.warning("%d connections were refused in the last %.0f s", self._refused, self._patience.sweep_s)
                self._refused = 0

    def _look(self, now: float, connection: _Connection) -> None:
        connection.look(now, self._patience)


class _Connection(asyncio.Protocol):
    """One connection, handed on to the protocol inside."""

    def __init__(self, inner: asyncio.Protocol, open_: set[_Connection]) -> None:
        self._inner = inner
        self._open = open_
        self._transport: asyncio.Transport | None = None
        self._tail: bytes | None = b""
        self._since = asyncio.get_running_loop().time()
        self._unread = 0
        self._taken = False
        open_.add(self)  # counted from here on: many may come before the first is made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        transport, self._transport = self._transport, None
        self._inner.connection_lost(exc)
        if hasattr(transport, "_read_ready_cb"):
            # asyncio's transport refers to itself by a bound method. Untied, its last reference frees it: garbage collection
            # does not look at what is old (`resolute_master.garbage`), and each connection of a cluster grows old.
            setattr(transport, "_read_ready_cb", None)  # noqa: B010 - not ours, and not in its type

    def data_received(self, data: bytes) -> None:
        if self._tail is not None:
            seen = self._tail + data
            self._tail = None if _END_OF_HEAD in seen else seen[-len(_END_OF_HEAD) + 1 :]
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._taken = True
        self._inner.resume_writing()

    def look(self, now: float, patience: Patience) -> None:
        """Close the connection when its other end has stood still for too long."""
        if self._transport is None:
            return
        if self._tail is not None:
            if now - self._since > patience.head_s:
                self._transport.abort()
            return
        before, self._unread = self._unread, self._transport.get_write_buffer_size()
        if not self._unread or not before or self._unread < before or self._taken:
            self._since, self._taken = now, False
        elif now - self._since > patience.unread_s:
            log.info("a caller has taken nothing of its answer for %.0f s and is cut off", now - self._since)
            self._transport.abort()


class _Refusing(asyncio.Protocol):
    """Says 503 and closes: cheaper than to let it wait, and a balancer knows what it means."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        text = "this master has as many connections as it may; try again in a moment"
        body = msgspec.json.encode({"message": text, "error": {"code": 14, "reason": "Unavailable", "error": text}})
        head = (
            "HTTP/1.1 503 Service Unavailable",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Retry-After: {math.ceil(RETRY_AFTER_S)}",
            "Connection: close",
        )
        transport.write("\r\n".join(head).encode() + _END_OF_HEAD + body)
        transport.close()


class Listening:
    """The runner's server behind `Connections`, on one socket: from a porch while the master starts, then as fast as it can."""

    def __init__(
        self, runner: web.AppRunner, *, limit: int, first: Sequence[str] = (), patience: Patience | None = None
    ) -> None:
        """`runner` has been set up. `first` are beginnings of the paths that are served while the master starts."""
        self.connections = Connections(protocol_of(runner), limit=limit, patience=patience)
        self._limit = limit
        self._first = first
        self._server: asyncio.Server | None = None
        self._porch: Porch | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, listener: socket.socket, *, queue: int = 100) -> None:
        """Let in those whose path is among the first. `queue` connections wait in the kernel until they are taken."""
        listener.setblocking(False)
        listener.listen(queue)
        self._porch = Porch(listener, self.connections, first=self._first, room=self._room)
        work = {
            "way in of connections": self._receive(self._porch, listener, queue),
            "sweep of connections": self.connections.sweep(),
        }
        self._tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]

    @property
    def services(self) -> Sequence[asyncio.Task[None]]:
        """None of them ends before `end`: without the first, nobody can come in any more."""
        return tuple(self._tasks)

    def open_to_first(self) -> None:
        """Let those whose path is among the first in as fast as they come."""
        assert self._porch is not None
        self._porch.open_to_first()

    def open(self) -> None:
        """Let everybody in: first those on the porch, then every connection as it comes."""
        assert self._porch is not None
        self._porch.open()

    def _room(self) -> int:
        return max(0, self._limit - self.connections.count)

    async def _receive(self, porch: Porch, listener: socket.socket, queue: int) -> None:
        await porch.run()
        loop = asyncio.get_running_loop()
        # For asyncio, `backlog` is also how many connections it takes in one turn.
        self._server = await loop.create_server(self.connections, sock=listener, backlog=TAKEN_AT_ONCE)
        listener.listen(queue)
        await loop.create_future()  # until it is cancelled

    async def end(self) -> None:
        """Take no further connection; those that are open are the runner's to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
