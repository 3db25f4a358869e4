"""Connections and transactions: where work runs, and its errors as texts for users.

Work is a plain function of a `sqlalchemy.Connection`. For SQLite it runs in a thread of ours, whole: a commit costs one
hop to the thread and back, not one a statement.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.pool import QueuePool

from resolute.errors import FailedPrecondition, ResoluteError, Unavailable
from resolute_master.store.base import VALUE_ERRORS, StoreBroken, unstorable
from resolute_master.store.sql.schema import migrate
from resolute_master.store.sql.searching import add_search
from resolute_master.store.sql.sqlite_file import (
    CHECK_S,
    OpenFile,
    check_before_opening,
    keep_private,
    leave_open,
    mark,
)

T = TypeVar("T")
Work = Callable[[Connection], T]

READERS = 2
"""Reads that run at once beside the one writer: enough that a long listing does not hold up a short look-up."""

BUSY_TIMEOUT_S = 30.0
"""How long SQLite waits for another process (a backup, a user's shell) to release the file."""

SYNCHRONOUS = "FULL"
"""What is committed is on the disk, not only in the operating system's memory."""


class Database(Protocol):
    """Runs work, each piece in one transaction: all of it is stored, or the call raises and nothing is."""

    async def write(self, work: Work[T]) -> T:
        """One at a time, in the order of the calls; durable when it returns."""
        ...

    async def read(self, work: Work[T]) -> T:
        """On one consistent state of the database, beside a writer."""
        ...

    async def ping(self) -> None:
        """Raises, soon, when the database does not answer."""
        ...

    async def forget_replaced(self) -> None:
        """Remove what replaced settings have left in the files."""
        ...

    async def watch(self) -> None:
        """Returns or raises only when the database can no longer be used, and no call might say so."""
        ...

    async def close(self) -> None: ...


class SqliteDatabase:
    """One SQLite file, held by this process alone."""

    def __init__(self, path: Path) -> None:
        """Use `open`: it takes the lock and brings the tables up to date."""
        self._path = path
        self._lock_file: int | None = None
        self._writing = _sqlite_engine(path, connections=1, begin="BEGIN IMMEDIATE", read_only=False)
        self._reading = _sqlite_engine(path, connections=READERS, begin="BEGIN", read_only=True)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._file = OpenFile(path)
        self._closed = False

    @classmethod
    async def open(cls, path: Path) -> SqliteDatabase:
        """Creates the file and its directory when they are missing.

        Raises `FailedPrecondition` when another process holds the file or it is not ours, `StoreBroken` when it
        cannot be read or written.
        """
        database = cls(path)
        try:
            await asyncio.get_running_loop().run_in_executor(database._writer, database._prepare)
        except BaseException:
            await database.close()
            raise
        return database

    async def write(self, work: Work[T]) -> T:
        """Raises `StoreBroken` also when the file was removed meanwhile: then nothing is kept, whatever SQLite returns."""
        return await self._run(self._writer, self._writing, work)

    async def watch(self) -> None:
        """Checks the file at intervals, without end. Raises `StoreBroken` when it was replaced or removed."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            await loop.run_in_executor(self._writer, self._file.check)
            await asyncio.sleep(CHECK_S)

    async def read(self, work: Work[T]) -> T:
        return await self._run(self._readers, self._reading, work)

    async def ping(self) -> None:
        await self.read(lambda connection: connection.exec_driver_sql("SELECT 1").scalar_one())

    async def forget_replaced(self) -> None:
        """The pages are overwritten with each change (`secure_delete`); the log of writes still has them."""

        def checkpoint() -> None:
            connection = self._writing.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()

        await asyncio.get_running_loop().run_in_executor(self._writer, checkpoint)

    async def close(self) -> None:
        """Waits for work that has begun."""
        self._closed = True
        await asyncio.to_thread(self._shut_down)

    async def _run(self, threads: ThreadPoolExecutor, engine: Engine, work: Work[T]) -> T:
        if self._closed:
            raise FailedPrecondition(f"the store {self._path} is closed; open it again before using it")
        return await asyncio.get_running_loop().run_in_executor(threads, self._transaction, engine, work)

    def _transaction(self, engine: Engine, work: Work[T]) -> T:
        try:
            with engine.begin() as connection:
                done = work(connection)
            if engine is self._writing:
                self._file.check()
            return done
        except DBAPIError as error:
            translated = self._in_words(error)
            if translated is None:
                raise
            raise translated from error
        except OverflowError as error:
            raise unstorable(error) from error
        except StatementError as error:  # of a value, before there is a statement
            if not isinstance(error.orig, VALUE_ERRORS):
                raise
            raise unstorable(error.orig) from error
        except VALUE_ERRORS as error:
            if engine is self._reading:
                raise
            raise unstorable(error) from error

    def _prepare(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock()
            check_before_opening(self._path)
            keep_private(self._path)
        except OSError as error:
            raise StoreBroken(
                f"the store {self._path} cannot be made there: {error.strerror}; "
                "give the master a directory that it may write to (db.path)"
            ) from error
        self._transaction(self._writing, lambda connection: migrate(connection, str(self._path), "db.path"))
        self._transaction(self._reading, lambda connection: connection.exec_driver_sql("SELECT 1").scalar_one())
        mark(self._path)

    def _lock(self) -> None:
        path = self._path.with_name(self._path.name + ".lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace").strip()
            os.close(descriptor)
            raise FailedPrecondition(
                f"the store {self._path} is in use by another master (process {holder or 'unknown'}); "
                "stop that one, or give this one its own store (db.path)"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self._lock_file = descriptor

    def _shut_down(self) -> None:
        self._writer.shutdown()
        self._readers.shutdown()
        if self._file.broken and cast(QueuePool, self._writing.pool).checkedin():
            connection = self._writing.raw_connection()
            leave_open(connection.driver_connection)
            connection.detach()
        self._reading.dispose()
        self._writing.dispose()
        if not self._file.broken:
            self._file.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _in_words(self, error: DBAPIError) -> ResoluteError | None:
        """None when the error is the program's, not the file's."""
        code = getattr(error.orig, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return StoreBroken(
                f"the store {self._path} is not a database, or is damaged ({error.orig}); "
                "move it away and restore a backup, or start with a new one"
            )
        if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            return StoreBroken(
                f"the store {self._path} cannot be written ({error.orig}); "
                "check the permissions of the file and its directory (db.path)"
            )
        if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Unavailable(
                f"the store {self._path} did not store the change ({error.orig}); check the disk's free space "
                "and health, and that no other program holds the file"
            )
        if primary in _OF_THE_VALUES or "binding parameter" in str(error.orig):
            return unstorable(error.orig or error)
        return None


_OF_THE_VALUES = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_CONSTRAINT)


def _sqlite_engine(path: Path, *, connections: int, begin: str, read_only: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_S},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not where the driver guesses
        connection.create_function("lower", 1, _lower, deterministic=True)
        add_search(connection)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        connection.execute(
            "PRAGMA secure_delete=FAST"
        )  # what a row held is overwritten where its page is written anyway
        if read_only:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _lower(text: str | None) -> str | None:
    """Lower case of a text: SQLite's own `lower` supports ASCII only."""
    return None if text is None else text.lower()
