"""Durable engine commands a second on SQLite, beside bare commits of one row to the same disk."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from resolute.clock import SystemClock
from resolute.ids import SystemIds
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.sql.store import SqlStore, sqlite_url

COMMANDS = 500
IN_FLIGHT = (1, 20, 200)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        bare = _bare(Path(directory) / "bare.db")
        print(f"{'bare commit of one row':<46} {bare:9.0f} a second")
        for in_flight in IN_FLIGHT:
            rate = asyncio.run(_engine(Path(directory) / f"engine-{in_flight}.db", in_flight))
            print(
                f"{f'engine commands, {in_flight} in flight':<46} {rate:9.0f} a second   over bare: {rate / bare:.2f}"
            )


def _bare(path: Path) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table row (id integer primary key, body text)")
    start = time.perf_counter()
    for number in range(COMMANDS):
        connection.execute("insert into row values (?, ?)", (number, "x" * 200))
    return COMMANDS / (time.perf_counter() - start)


async def _engine(path: Path, in_flight: int) -> float:
    store = await SqlStore.open(sqlite_url(path))
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
