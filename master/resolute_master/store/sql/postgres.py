"""PostgreSQL as a `Database`: work continues over restarts of the server.

A lost connection is not an error of the writer. Writes wait until the server is back and are run again; reads wait
a little and are refused. What a write that was under way has become is for its author to find out: the engine's commit
reads the journal, the streams leave out what they find.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg
from sqlalchemy import text

from resolute.clock import Clock, SystemClock
from resolute.errors import FailedPrecondition, ResoluteError, Unavailable
from resolute_master.store.base import StoreBroken, keeping_values
from resolute_master.store.sql.background import LoopThread
from resolute_master.store.sql.database import Work
from resolute_master.store.sql.postgres_address import PostgresAddress, in_words, is_away, is_passing
from resolute_master.store.sql.postgres_session import Lane, Session
from resolute_master.store.sql.schema import migrate

T = TypeVar("T")

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
"""How long a master waits at its start for a server that is not up yet."""

READ_TIMEOUT_S = 10.0
"""How long a read waits for a server that is away: a restart takes a second in good order, after a crash a few more."""

PING_TIMEOUT_S = 2.0

LOG_AGAIN_S = 30.0
"""Interval of log messages while the server is unavailable."""

FIRST_RETRY_S = 0.05
LONGEST_RETRY_S = 1.0


class PostgresDatabase:
    """One database of a server, held by this process alone. Use `open`."""

    def __init__(self, address: PostgresAddress, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._thread = LoopThread("store-postgres")
        self._session: Session | None = None
        self._settled = asyncio.Event()
        """Set while there is a session, or will never be one again."""
        self._end: ResoluteError | None = None
        """Why there will never be one again."""
        self._away: str = ""
        self._away_since = 0.0
        self._reconnecting: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    @classmethod
    async def open(
        cls, address: PostgresAddress, *, clock: Clock | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> PostgresDatabase:
        """Takes the database and brings its tables up to date; waits `timeout_s` for a server that is away.

        Raises `FailedPrecondition` when another master has it or it is another program's, `StoreBroken` when it cannot
        be used as configured, `Unavailable` when the server did not come up.
        """
        database = cls(address, clock or SystemClock())
        try:
            database._begin(await database._connect(None, timeout_s))
            await database.write(lambda connection: migrate(connection, str(address), "db.name"))
        except BaseException:
            await database.close()
            raise
        return database

    # -- work --------------------------------------------------------------------------------------------------

    async def write(self, work: Work[T]) -> T:
        """Work that may be run again, and is when the connection was lost in it."""
        async with self._writing:
            with keeping_values():
                return await self._retried(lambda session: session.pooled(work, read_only=False), None)

    async def read(self, work: Work[T]) -> T:
        """Raises `Unavailable` when the server stays away."""
        return await self._retried(lambda session: session.pooled(work, read_only=True), READ_TIMEOUT_S)

    async def on_lane(self, lane: Lane, run: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """`run` on the lane's connection; again on the next one when that was lost."""
        with keeping_values():
            return await self._retried(lambda session: session.on_lane(lane, run), None)

    async def turn_of(self, lane: Lane) -> asyncio.Lock:
        """What writers of that lane hold, for one of another lane that must not be beside them."""
        return (await self._current(None)).lanes[lane].turn

    async def forget_replaced(self) -> None:
        """The server keeps replaced rows until a table is vacuumed; its archived logs are beyond our reach."""

        async def vacuum(connection: asyncpg.Connection) -> None:
            await connection.execute("VACUUM FULL settings")

        await self.on_lane(Lane.STATE, vacuum)

    async def ping(self) -> None:
        """Raises `Unavailable` at once while the server is away, and soon when it does not answer."""
        if self._session is None:
            raise self._end or Unavailable(self._away)
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self._session.pooled(lambda c: c.execute(text("SELECT 1")).scalar_one(), read_only=True)
        except Exception as error:
            raise in_words(self.address, error) or error from error

    async def watch(self) -> None:
        """Each call shows the state of the server."""
        await asyncio.Event().wait()

    def away_s(self) -> float:
        """Seconds since the connection was lost; 0 while there is one."""
        return 0.0 if self._session is not None else self._clock.monotonic() - self._away_since

    async def close(self) -> None:
        if self._end is None:
            self._end = FailedPrecondition(f"{self.address} is closed; open it again before using it")
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._reconnecting
        session, self._session = self._session, None
        self._settled.set()
        if session is not None:
            await session.close()
        await asyncio.to_thread(self._thread.close)

    # -- over a restart of the server ----------------------------------------------------------------------------

    async def _retried(self, attempt: Callable[[Session], Awaitable[T]], timeout_s: float | None) -> T:
        end = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            session = await self._current(end)
            try:
                return await attempt(session)
            except Exception as error:
                passing = is_passing(error)
                if not passing and not is_away(error):
                    raise in_words(self.address, error) or error from error
                if not passing:
                    self._lose(session, error)
                elif end is not None and self._clock.monotonic() >= end:
                    raise in_words(self.address, error) or error from error
                else:
                    log.warning("%s did not store a change; the master tries again: %s", self.address, error)
                    await asyncio.sleep(LONGEST_RETRY_S)

    async def _current(self, end: float | None) -> Session:
        while self._session is None or self._end is not None:
            if self._end is not None:
                raise self._end
            left = None if end is None else max(0.0, end - self._clock.monotonic())
            try:
                async with asyncio.timeout(left):
                    await self._settled.wait()
            except TimeoutError:
                raise Unavailable(self._away) from None
        return self._session

    def _begin(self, session: Session) -> None:
        self._session = session
        self._away = ""
        self._settled.set()
        session.when_lost(lambda: self._lose(session, ConnectionError("the server ended the connection")))

    def _lose(self, session: Session, error: BaseException) -> None:
        if self._session is not session or self._end is not None:
            return
        self._session = None
        self._settled.clear()
        self._away_since = self._clock.monotonic()
        self._away = str(in_words(self.address, error) or error)
        log.warning("%s is away, work waits for it: %s", self.address, error)
        self._reconnecting = asyncio.create_task(self._reconnect(session), name="store-reconnect")

    async def _reconnect(self, lost: Session) -> None:
        try:
            await lost.abandon()
            self._begin(await self._connect(lost, None))
            log.info("%s is available again; the master continues", self.address)
        except ResoluteError as error:
            log.error("%s cannot be used any more: %s", self.address, error)
            self._end = error
            self._settled.set()

    async def _connect(self, lost: Session | None, timeout_s: float | None) -> Session:
        """Tries until it works, until the time is up, or until trying again is no use."""
        began = logged = self._clock.monotonic()
        pause_s = FIRST_RETRY_S
        while True:
            try:
                return await Session.open(self.address, self._thread, self._clock, None if lost is None else lost.me)
            except Exception as error:
                if not (is_away(error) or is_passing(error)):
                    raise in_words(self.address, error) or StoreBroken(f"{self.address}: {error}") from error
                now = self._clock.monotonic()
                if timeout_s is not None and now - began >= timeout_s:
                    raise Unavailable(
                        f"db.host: {self.address} did not answer for {timeout_s:.0f} s ({error}); "
                        "start the server, or correct db.host and db.port"
                    ) from error
                if now - logged >= LOG_AGAIN_S or now == began or pause_s == FIRST_RETRY_S:
                    logged = now
                    log.warning("waiting for %s: %s", self.address, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)
