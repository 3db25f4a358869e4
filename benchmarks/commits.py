"""Durable engine commands a second on SQLite, beside bare commits of one row to the same disk."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

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


def main() -> None:
    """In turn, so that a disk whose speed drifts is fair to all."""
    bare: list[float] = []
    rates: dict[int, list[float]] = {in_flight: [] for in_flight in IN_FLIGHT}
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            bare.append(_bare(Path(directory) / "bare.db"))
            for in_flight in IN_FLIGHT:
                rates[in_flight].append(asyncio.run(_engine(Path(directory) / f"{number}-{in_flight}.db", in_flight)))
    print(_line("bare commit of one row", bare))
    for in_flight, found in rates.items():
        ratio = median(rate / own for rate, own in zip(found, bare, strict=True))
        print(f"{_line(f'engine commands, {in_flight} in flight', found)}   over bare: {ratio:.2f}")


def _line(name: str, rates: list[float]) -> str:
    return f"{name:<34} median {median(rates):8.0f} a second   range {min(rates):.0f} to {max(rates):.0f}"


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
