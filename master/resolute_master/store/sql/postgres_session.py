"""The connections that a master has to PostgreSQL while it is the one master of its database.

The connection of the engine's commits holds an advisory lock. Its holder is the master: a second one is refused, and when
the lock is had again after a lost connection, the lost one has ended on the server too, so that what it did is decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from resolute.clock import Clock
from resolute.errors import FailedPrecondition
from resolute_master.store.base import StoreBroken
from resolute_master.store.sql.background import LoopThread
from resolute_master.store.sql.postgres_address import APPLICATION, PostgresAddress

T = TypeVar("T")

log = logging.getLogger(__name__)

OLDEST_SERVER = 14
"""The oldest release that its makers still mend."""

MASTER_LOCK = 0x5265736F6C757465
"""The key of the advisory lock: a number of ours in the database that is ours."""

LOCK_TIMEOUT_S = 5.0
"""A master that was just killed keeps its lock until the server has seen its socket close."""

LOCK_RETRY_S = 0.1

POOLED = 5
"""Connections for reads and for writes outside the lanes."""

END_TIMEOUT_MS = 5000
"""Time to wait for the end of another session."""


BUSY = "another operation is in progress"
"""asyncpg's error for a connection whose operation has not ended."""


class Lane(Enum):
    """Streams of writes with a connection each: a burst of log lines does not hold up a commit."""

    STATE = "state"
    METRICS = "metrics"
    LOGS = "logs"


@dataclass(slots=True)
class LaneConnection:
    """One writer at a time."""

    connection: asyncpg.Connection
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True, slots=True)
class Backend:
    """A session, as identified by the server."""

    pid: int
    since: datetime


class Session:
    """All connections of a master. One that breaks breaks all: then a new session is made."""

    def __init__(self, lanes: dict[Lane, LaneConnection], pool: AsyncEngine, thread: LoopThread, me: Backend) -> None:
        self.lanes = lanes
        self.me = me
        self._pool = pool
        self._reading = pool.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._thread = thread
        self._watched: Callable[[Any], None] | None = None

    @classmethod
    async def open(
        cls, address: PostgresAddress, thread: LoopThread, clock: Clock, previous: Backend | None = None
    ) -> Session:
        """Raises `FailedPrecondition` when another master has the database, `StoreBroken` when it is too old a server.

        `previous` is this master's earlier session, whose end the server may not have detected.
        """
        opened: list[asyncpg.Connection] = []
        pool = create_async_engine(
            address.url(), pool_size=POOLED, max_overflow=0, connect_args=address.connect_arguments()
        )
        try:
            state = await address.connect()
            opened.append(state)
            await _check_server(state, address)
            await _lock(state, address, clock, previous)
            # The previous master has no statement in progress once this one holds the lock.
            await state.fetch(_END_OTHERS, APPLICATION, END_TIMEOUT_MS)
            me = await state.fetchrow("SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()")
            for _ in range(len(Lane) - 1):
                opened.append(await address.connect())
        except BaseException:
            for connection in opened:
                connection.terminate()
            await thread.run(pool.dispose())
            raise
        assert me is not None
        lanes = {lane: LaneConnection(connection) for lane, connection in zip(Lane, opened, strict=True)}
        return cls(lanes, pool, thread, Backend(me["pid"], me["backend_start"]))

    def when_lost(self, tell: Callable[[], None]) -> None:
        """`tell` is called when the connection with the lock ends, even while it is unused."""
        self._watched = lambda _connection: tell()
        self.lanes[Lane.STATE].connection.add_termination_listener(self._watched)

    async def on_lane(self, lane: Lane, run: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        at = self.lanes[lane]
        async with at.turn:
            try:
                return await run(at.connection)
            except AttributeError as error:
                if not at.connection.is_closed():
                    raise
                # asyncpg lets go of its protocol when the server ends the connection, also between two steps of one call.
                raise ConnectionResetError("the connection ended in the middle of a call") from error
            except asyncpg.InterfaceError as error:
                if BUSY not in str(error):
                    raise
                # This lane has one writer at a time: the operation that asyncpg still sees is one that the end of the connection
                # has interrupted, and whose transaction was being rolled back before asyncpg noticed the end.
                raise ConnectionResetError("the connection ended in the middle of a call") from error

    async def pooled(self, work: Callable[[Connection], T], *, read_only: bool) -> T:
        """In one transaction, off the main loop."""
        return await self._thread.run(_transaction(self._reading if read_only else self._pool, work))

    async def close(self) -> None:
        """Waits for writes that have begun."""
        self._unwatch()
        for at in self.lanes.values():
            async with at.turn:
                with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):
                    await at.connection.close(timeout=LOCK_TIMEOUT_S)
        await self._thread.run(self._pool.dispose())

    async def abandon(self) -> None:
        """Releases everything without a message to a server that does not answer."""
        self._unwatch()
        for at in self.lanes.values():
            at.connection.terminate()
        await self._thread.run(self._pool.dispose())

    def _unwatch(self) -> None:
        if self._watched is not None:
            self.lanes[Lane.STATE].connection.remove_termination_listener(self._watched)
            self._watched = None


async def _transaction(pool: AsyncEngine, work: Callable[[Connection], T]) -> T:
    async with pool.begin() as connection:
        return await connection.run_sync(work)


async def _check_server(connection: asyncpg.Connection, address: PostgresAddress) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise StoreBroken(
            f"db.host: {address} is PostgreSQL {version.major}.{version.minor}; "
            f"version {OLDEST_SERVER} or newer is needed: upgrade the server"
        )
    encoding = await connection.fetchval("SHOW server_encoding")
    if encoding != "UTF8":
        raise StoreBroken(
            f"db.name: {address} is encoded as {encoding} and cannot hold every text; "
            f"create it with: createdb --encoding UTF8 --template template0 {address.name}"
        )
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise ConnectionError("the server is a standby, or still recovering: it accepts no writes")


async def _lock(
    connection: asyncpg.Connection, address: PostgresAddress, clock: Clock, previous: Backend | None
) -> None:
    if previous is not None:
        await connection.fetch(_END_ONE, previous.pid, previous.since, END_TIMEOUT_MS)
    end = clock.monotonic() + LOCK_TIMEOUT_S
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", MASTER_LOCK):
        if clock.monotonic() >= end:
            holder = await connection.fetchrow(_HOLDER, MASTER_LOCK >> 32, MASTER_LOCK & 0xFFFFFFFF)
            who = "unknown" if holder is None else f"{holder['client']}, connected since {holder['since']}"
            raise FailedPrecondition(
                f"{address} is in use by another master ({who}); "
                "stop that one, or give this one its own database (db.name)"
            )
        await asyncio.sleep(LOCK_RETRY_S)


_END_ONE = """
SELECT pg_terminate_backend(pid, $3) FROM pg_stat_activity
WHERE pid = $1 AND backend_start = $2 AND usename = current_user
"""

_END_OTHERS = """
SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity
WHERE application_name = $1 AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
"""

_HOLDER = """
SELECT coalesce(host(a.client_addr), 'a local socket') AS client, a.backend_start AS since
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_database d ON d.oid = l.database
WHERE l.locktype = 'advisory' AND l.granted AND d.datname = current_database()
AND l.classid::bigint = $1 AND l.objid::bigint = $2
"""
