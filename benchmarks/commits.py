"""Durable engine commands a second on SQLite, beside bare commits of one row to the same disk."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.report import Row, Spread, ratio
from resolute.clock import SystemClock
from resolute.ids import SystemIds
from resolute_master.domain.commands import CreateUser
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.sql.store import SqlStore, sqlite_url

COMMANDS = 500
IN_FLIGHT = (1, 20, 200)
ROUNDS = 5


def main() -> list[Row]:
    """In turn, so that a disk whose speed drifts is fair to all."""
    bare: list[float] = []
    rates: dict[int, list[float]] = {in_flight: [] for in_flight in IN_FLIGHT}
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            bare.append(_bare(Path(directory) / "bare.db"))
            for in_flight in IN_FLIGHT:
                rates[in_flight].append(asyncio.run(_engine(Path(directory) / f"{number}-{in_flight}.db", in_flight)))
    beside = Spread.of(bare, "a second")
    return [
        Row(
            name=f"engine commands, {in_flight} in flight",
            subject=Spread.of(found, "a second"),
            bound_name="bare commits of one row",
            bound=beside,
            result=ratio(found, bare),
        )
        for in_flight, found in rates.items()
    ]


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
