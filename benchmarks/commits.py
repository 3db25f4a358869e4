"""Durable engine commands per second on SQLite and PostgreSQL, compared with commits of one row on the same database."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import asyncpg

from benchmarks.report import Row, Spread, ratio
from resolute.clock import SystemClock
from resolute.ids import SystemIds
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.sql import open_store, sqlite_url
from support.postgres import find_programs, postgres_server

COMMANDS = 500
IN_FLIGHT = (1, 20, 200)
ROUNDS = 5


def main() -> list[Row]:
    """Runs the subjects in turn, so that a drift of the disk's speed affects all equally."""
    with ExitStack() as stack:
        kinds: list[_Kind] = [_Sqlite(stack)]
        if find_programs() is not None:
            kinds.append(_Postgres(stack))
        bare: dict[str, list[float]] = {kind.name: [] for kind in kinds}
        rates: dict[tuple[str, int], list[float]] = {(kind.name, n): [] for kind in kinds for n in IN_FLIGHT}
        for _ in range(ROUNDS):
            for kind in kinds:
                bare[kind.name].append(kind.bare())
                for in_flight in IN_FLIGHT:
                    rates[kind.name, in_flight].append(asyncio.run(_engine(kind.new_url(), in_flight)))
    return [
        Row(
            name=f"{name}: engine commands, {in_flight} in flight",
            subject=Spread.of(found, "a second"),
            bound_name="bare commits of one row",
            bound=Spread.of(bare[name], "a second"),
            result=ratio(found, bare[name]),
        )
        for (name, in_flight), found in rates.items()
    ]


class _Kind(Protocol):
    """One database under test."""

    name: str

    def new_url(self) -> str:
        """Opens a store on an empty database."""
        ...

    def bare(self) -> float:
        """Commits of one row per second."""
        ...


class _Sqlite:
    name = "SQLite"

    def __init__(self, stack: ExitStack) -> None:
        self._directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._numbers = itertools.count()

    def _new_path(self) -> Path:
        return self._directory / f"{next(self._numbers)}.db"

    def new_url(self) -> str:
        return sqlite_url(self._new_path())

    def bare(self) -> float:
        connection = sqlite3.connect(self._new_path(), isolation_level=None)
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        connection.execute("create table row (id integer primary key, body text)")
        start = time.perf_counter()
        for number in range(COMMANDS):
            connection.execute("insert into row values (?, ?)", (number, "x" * 200))
        rate = COMMANDS / (time.perf_counter() - start)
        connection.close()
        return rate


class _Postgres:
    name = "PostgreSQL"

    def __init__(self, stack: ExitStack) -> None:
        self._server = stack.enter_context(postgres_server())

    def new_url(self) -> str:
        return self._server.url(self._server.new_database())

    def bare(self) -> float:
        return asyncio.run(self._bare(self.new_url()))

    async def _bare(self, url: str) -> float:
        connection = await asyncpg.connect(url)
        await connection.execute("create table row (id integer primary key, body text)")
        start = time.perf_counter()
        for number in range(COMMANDS):
            await connection.execute("insert into row values ($1, $2)", number, "x" * 200)
        rate = COMMANDS / (time.perf_counter() - start)
        await connection.close()
        return rate


async def _engine(url: str, in_flight: int) -> float:
    store = await open_store(url)
    name = PoolName("default")
    engine = Engine(
        store=store, clock=SystemClock(), ids=SystemIds(), pools={name: PoolPolicy(name=name)}, version="bench"
    )
    await engine.start()
    running = asyncio.create_task(engine.run())
    permits = asyncio.Semaphore(in_flight)

    async def submit(number: int) -> None:
        async with permits:
            await engine.submit(CreateUser(username=f"user-{number}", password_hash="hash"))

    start = time.perf_counter()
    await asyncio.gather(*(submit(number) for number in range(COMMANDS)))
    rate = COMMANDS / (time.perf_counter() - start)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()
    return rate
