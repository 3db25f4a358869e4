"""Limits of connections, below HTTP.

Without them, a client with a few hundred idle connections would lock users out. A connection is closed that sends no request
head in time or does not read its answer. At the limit of connections, a new one displaces the oldest unauthenticated connection
of the address that has the most of them. Protocols above see plain asyncio transports. With TLS the wrapper is on both sides: it
counts a connection from its acceptance, before the handshake, and passes on the decrypted data.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import resource
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from resolute_master.api.http.addresses import UNKNOWN, counted
from resolute_master.api.http.limits import (
    HANDSHAKE_S,
    HEAD_S,
    IDLE_S,
    MAX_CONNECTIONS,
    MAX_HEADER_BYTES,
    MAX_REQUEST_LINE_BYTES,
    RETRY_AFTER_S,
    SPARE_FILES,
    SWEEP_S,
    TLS_SHUTDOWN_S,
    UNREAD_S,
)
from resolute_master.api.http.protocol import HttpProtocol
from resolute_master.api.http.response_headers import HEADERS
from resolute_master.batches import in_batches

log = logging.getLogger(__name__)

_END_OF_HEAD = b"\r\n\r\n"

ACCEPTED_AT_ONCE = 16
"""Connections that are accepted in one turn of the event loop. After a restart thousands connect at once; to accept
all of them in one turn would stop every request for a second."""

LOOKED_AT_AT_ONCE = 500
"""Connections that are checked in one turn, which takes a millisecond. There may be ten for each machine."""


def allow_open_files() -> int:
    """Raise the limit of open files of this process as far as possible, and return the number of connections that it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, hard - SPARE_FILES)
    return max(1, most)


def runner_of(app: web.Application, *, stop_grace_s: float) -> web.AppRunner:
    """The application; open requests may take `stop_grace_s` at its end."""
    return web.AppRunner(app, shutdown_timeout=stop_grace_s)


def protocol_of(runner: web.AppRunner, *, idle_s: float = IDLE_S) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol of each connection of a runner that has been set up, with the limits of heads and idle connections."""
    assert runner.server is not None
    unlogged: Any = None  # requests are logged by `resolute_master.api.http.requests`
    return partial(
        HttpProtocol,
        runner.server,
        loop=asyncio.get_running_loop(),
        access_log=unlogged,
        max_line_size=MAX_REQUEST_LINE_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        keepalive_timeout=idle_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Time for which a connection may be open without a head, and with an answer that the peer does not read."""

    handshake_s: float = HANDSHAKE_S
    head_s: float = HEAD_S
    idle_s: float = IDLE_S
    unread_s: float = UNREAD_S
    sweep_s: float = SWEEP_S


class Connections:
    """A factory of protocols for `loop.create_server`. `sweep` runs beside it."""

    def __init__(
        self,
        inner: Callable[[], asyncio.Protocol],
        *,
        limit: int,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        is_proxy: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`is_proxy` detects peers that many callers share: their connections are never displaced."""
        self._inner = inner
        self._limit = limit
        self._timeouts = timeouts or Timeouts()
        self._tls = tls
        self._is_proxy = is_proxy
        self._open: set[_Connection] = set()
        self._crowds: dict[str, OrderedDict[_Connection, None]] = {}
        """By address, the oldest first."""
        self._refused = self._displaced = 0

    def __call__(self) -> asyncio.Protocol:
        return _Connection(self, self._inner, self._tls)

    @property
    def handshake_s(self) -> float:
        """Maximum time of a TLS handshake."""
        return self._timeouts.handshake_s

    def enter(self, connection: _Connection, peer: str) -> bool:
        """Counts a connection from now on, for `_Connection`. False if there is no place."""
        if len(self._open) >= self._limit and not self._displace():
            if not self._refused:
                log.warning("%d connections are open, as many as may be; further ones are refused", self._limit)
            self._refused += 1
            return False
        self._open.add(connection)
        if not self._is_proxy(peer):
            connection.crowd = counted(peer)
            self._crowds.setdefault(connection.crowd, OrderedDict())[connection] = None
        return True

    def leave(self, connection: _Connection) -> None:
        """Ends the count of a connection, for `_Connection`. Repeated calls are harmless."""
        self._open.discard(connection)
        crowd = self._crowds.get(connection.crowd)
        if crowd is not None and connection in crowd:
            del crowd[connection]
            if not crowd:
                del self._crowds[connection.crowd]

    def _displace(self) -> bool:
        """Cut off the oldest connection of no known caller, of the address that has the most. False when all are of known ones."""
        for crowd in sorted(self._crowds.values(), key=len, reverse=True)[:LOOKED_AT_AT_ONCE]:
            for connection in tuple(itertools.islice(crowd, LOOKED_AT_AT_ONCE)):
                if connection.proven:
                    crowd.move_to_end(connection)  # so that the next look finds others
                    continue
                self.leave(connection)
                connection.cut_off()
                self._displaced += 1
                return True
        return False

    @property
    def count(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def sweep(self) -> None:
        """Closes connections that occupy places without use, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._timeouts.sweep_s)
            now = loop.time()
            await in_batches(tuple(self._open), partial(self._look, now), at_once=LOOKED_AT_AT_ONCE)
            if self._refused:
                log.warning("%d connections were refused in the last %.0f s", self._refused, self._timeouts.sweep_s)
                self._refused = 0
            if self._displaced:
                log.warning("%d connections without an identified caller were closed to admit others", self._displaced)
                self._displaced = 0

    def _look(self, now: float, connection: _Connection) -> None:
        connection.look(now, self._timeouts)


class _Connection(asyncio.Protocol):
    """One connection, handed on to the protocol inside."""

    def __init__(
        self, owner: Connections, make: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None = None
    ) -> None:
        self._owner = owner
        self._make = make
        self._tls = tls
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None
        self._below: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._early = bytearray()
        self._tail: bytes | None = b""
        self._since = asyncio.get_running_loop().time()
        self._unread = 0
        self._taken = False
        self.crowd = UNKNOWN

    @property
    def proven(self) -> bool:
        """Whether a caller has authenticated on it."""
        return isinstance(self._inner, HttpProtocol) and self._inner.proven

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._below = transport
        name = transport.get_extra_info("peername")
        if not self._owner.enter(self, str(name[0]) if isinstance(name, tuple) else UNKNOWN):
            _refuse(transport, plain=self._tls is None)
        elif self._tls is None:
            self._begin(transport)
        else:
            self._opening = asyncio.create_task(self._begin_tls(transport, self._tls), name="TLS handshake")

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._inner = self._make()
        self._inner.connection_made(transport)

    async def _begin_tls(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        try:
            over = await loop.start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._owner.handshake_s,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except (OSError, ssl.SSLError) as error:
            log.debug("a TLS handshake has failed: %s", error)
            over = None
        finally:
            self._opening = None
        if over is None:  # the peer does not use TLS, or has disconnected
            transport.abort()
            self._owner.leave(self)
            return
        if self._below is None:
            return  # the caller has gone in the same moment
        self._since = loop.time()
        self._begin(over)
        early, self._early = bytes(self._early), bytearray()
        if early and self._inner is not None:
            self._inner.data_received(early)

    def cut_off(self) -> None:
        """Closes the connection at once, whatever is in progress."""
        if self._below is not None:
            self._below.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.leave(self)
        below, self._below, self._transport = self._below, None, None
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.connection_lost(exc)
        if hasattr(below, "_read_ready_cb"):
            # asyncio's transport refers to itself by a bound method. Untied, its last reference frees it: garbage collection
            # does not look at what is old (`resolute_master.garbage`), and each connection of a cluster grows old.
            setattr(below, "_read_ready_cb", None)  # noqa: B010 - not ours, and not in its type

    def data_received(self, data: bytes) -> None:
        if self._tail is not None:
            seen = self._tail + data
            self._tail = None if _END_OF_HEAD in seen else seen[-len(_END_OF_HEAD) + 1 :]
        if self._inner is not None:
            self._inner.data_received(data)
        else:
            self._early += data  # it came with the last message of the handshake

    def eof_received(self) -> bool | None:
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._taken = True
        if self._inner is not None:
            self._inner.resume_writing()

    def look(self, now: float, timeouts: Timeouts) -> None:
        """Closes the connection when its peer has been idle for too long."""
        if self._transport is None:
            return  # a handshake has a limit of its own
        if self._tail is not None:
            if now - self._since > timeouts.head_s:
                self._transport.abort()
            return
        before, self._unread = self._unread, self._transport.get_write_buffer_size()
        if not self._unread or not before or self._unread < before or self._taken:
            self._since, self._taken = now, False
        elif now - self._since > timeouts.unread_s:
            log.info("closed a connection: its client has read nothing of the answer for %.0f s", now - self._since)
            self._transport.abort()


def _refuse(transport: asyncio.Transport, *, plain: bool) -> None:
    """Send 503 and close: cheaper than waiting, and load balancers understand it. Before TLS nothing can be sent."""
    if not plain:
        transport.abort()
        return
    text = "this master has as many connections as it may; try again in a moment"
    body = msgspec.json.encode({"message": text, "error": {"code": 14, "reason": "Unavailable", "error": text}})
    head = (
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Retry-After: {math.ceil(RETRY_AFTER_S)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in HEADERS.items()),
    )
    transport.write("\r\n".join(head).encode() + _END_OF_HEAD + body)
    transport.close()


class Listening:
    """The runner's server behind `Connections`, on one socket."""

    def __init__(
        self,
        runner: web.AppRunner,
        *,
        limit: int,
        timeouts: Timeouts | None = None,
        tls: ssl.SSLContext | None = None,
        is_proxy: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`runner` has been set up."""
        protocol = protocol_of(runner, idle_s=(timeouts or Timeouts()).idle_s)
        self.connections = Connections(protocol, limit=limit, timeouts=timeouts, tls=tls, is_proxy=is_proxy)
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.Task[None] | None = None

    async def begin(self, listener: socket.socket, *, queue: int = 100) -> asyncio.Task[None]:
        """Listen on a bound socket; `queue` connections wait in the kernel until they are accepted. Answers the task that ends
        idle connections, which must not end before `end`. Raises `OSError` when another socket listens there."""
        # For asyncio, `backlog` is also how many connections it accepts in one turn.
        self._server = await asyncio.get_running_loop().create_server(
            self.connections, sock=listener, backlog=ACCEPTED_AT_ONCE
        )
        listener.listen(queue)
        self._sweep = asyncio.create_task(self.connections.sweep(), name="sweep of connections")
        return self._sweep

    async def end(self) -> None:
        """Accept no further connection; those that are open are the runner's to end."""
        if self._server is not None:
            self._server.close()
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.gather(self._sweep, return_exceptions=True)
