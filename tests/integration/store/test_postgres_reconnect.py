"""The server restarts, is killed, hangs, or its answers get lost while work runs: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import asyncpg
import pytest

from resolute.errors import Unavailable
from resolute_master.domain.ids import TaskId, TrialId
from resolute_master.store.base import LogQuery, MetricOutcome
from resolute_master.store.sql.postgres_address import PostgresAddress
from resolute_master.store.sql.postgres_session import Lane
from resolute_master.store.sql.postgres_store import PostgresStore
from support.postgres import PostgresServer, postgres_server
from support.postgres_proxy import LossyRelay
from support.stores import a_change, a_counter, a_line, a_mark, a_report

pytestmark = pytest.mark.needs("postgres")

KILLS = 6
SEED = 20240302


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A durable one, which these tests kill."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def address(server: PostgresServer) -> PostgresAddress:
    return PostgresAddress.of_url(server.url(server.new_database()))


@pytest.fixture
async def store(address: PostgresAddress) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open_at(address)
    yield store
    await store.close()


class Work:
    """Commits, reports, log lines and step marks side by side, each numbered and acknowledged one by one."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.commits = self.reports = self.batches = 0
        self.ending = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in (self.commit(), self.report(), self.log()):
                group.create_task(part)

    async def commit(self) -> None:
        while not self.ending:
            n = self.commits + 1
            line = a_line(f"commit-{n}", task_id=TaskId("commits"), log=str(n))
            await self.store.commit(a_change(n, upserts=(a_counter(value=n),), logs=(line,)))
            self.commits = n

    async def report(self) -> None:
        while not self.ending:
            first = self.reports + 1
            batch = [a_report(steps, {"loss": steps}) for steps in range(first, first + 10)]
            outcomes = await self.store.append_metrics(batch)
            assert set(outcomes) <= {MetricOutcome.STORED, MetricOutcome.REPEATED}
            self.reports += 10

    async def log(self) -> None:
        while not self.ending:
            n = self.batches + 1
            await self.store.append_logs([a_line(f"{n}/{index}", log=f"{n}/{index}") for index in range(5)])
            await self.store.append_step_marks([a_mark(n, steps=n)])
            self.batches = n

    async def check(self) -> None:
        """All that was acknowledged is there once; at most the piece under way beside it, whole."""
        store = self.store
        loaded = await store.load()
        assert loaded.sequence == self.commits
        assert loaded.entities == (a_counter(value=self.commits),)
        lines = await store.logs(LogQuery(task_ids=(TaskId("commits"),)))
        assert [line.log for line in lines] == [str(n) for n in range(1, self.commits + 1)]
        steps = [row.steps_completed for row in await store.metrics(TrialId(1))]
        assert steps == list(range(1, self.reports + 1))
        lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
        assert [line.log for line in lines] == [f"{n}/{i}" for n in range(1, self.batches + 1) for i in range(5)]
        marks = await store.step_marks([a_mark(1).allocation_id])
        assert [mark.steps_completed for mark in marks] == list(range(1, self.batches + 1))


async def test_work_goes_on_over_kills_and_restarts_of_the_server(server: PostgresServer, store: PostgresStore) -> None:
    rng = random.Random(SEED)
    work = Work(store)
    running = asyncio.create_task(work.run())
    for number in range(KILLS):
        before = (work.commits, work.reports, work.batches)
        while any(now < then + 5 for now, then in zip((work.commits, work.reports, work.batches), before, strict=True)):
            await asyncio.sleep(0.01)
            if running.done():
                await running
        await asyncio.sleep(rng.random() * 0.05)
        await asyncio.to_thread(server.kill if number % 2 else server.stop)
        await asyncio.sleep(rng.random() * 0.3)
        await asyncio.to_thread(server.start)
    work.ending = True
    await running
    await work.check()


async def test_a_connection_that_ends_between_two_steps_of_one_call_is_made_anew(store: PostgresStore) -> None:
    calls = 0

    async def call(connection: asyncpg.Connection) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            connection.terminate()  # here by the server; the driver's next step finds its protocol gone
            await connection._protocol.copy_in()  # type: ignore[attr-defined]
        return await connection.fetchval("SELECT 7")

    assert (await store._postgres.on_lane(Lane.METRICS, call), calls) == (7, 2)


async def test_reads_are_refused_after_a_little_and_served_when_the_server_is_back(
    server: PostgresServer, store: PostgresStore
) -> None:
    await store.put_setting("a", 1)
    await store.ping()
    server.kill()
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            while True:  # until the loss is noticed
                await store.ping()
        with pytest.raises(Unavailable, match="does not answer"):
            await store.setting("a")
        waiting = asyncio.create_task(store.put_setting("a", 2))
        reading = asyncio.create_task(store.setting("b"))
    finally:
        server.start()
    await waiting
    assert await reading is None
    assert await store.setting("a") == 2
    await store.ping()


async def test_a_server_that_hangs_is_not_taken_for_healthy(server: PostgresServer, store: PostgresStore) -> None:
    server.pause()
    try:
        with pytest.raises(Unavailable):
            await store.ping()
    finally:
        server.resume()
    await store.commit(a_change(1))


async def test_a_commit_whose_answer_is_lost_is_looked_up_and_not_repeated(
    address: PostgresAddress, server: PostgresServer
) -> None:
    async with LossyRelay(server.port) as relay:
        store = await PostgresStore.open_at(replace(address, port=relay.port))
        try:
            for n in range(1, 6):
                relay.lose_next_answer()
                line = a_line(f"{n}", log=str(n))
                await store.commit(a_change(n, upserts=(a_counter(value=n),), logs=(line,)))
            assert relay.lost == 5
            assert (await store.load()).sequence == 5
            lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
            assert [line.log for line in lines] == ["1", "2", "3", "4", "5"]
        finally:
            await store.close()


async def test_streams_whose_answer_is_lost_are_stored_once(address: PostgresAddress, server: PostgresServer) -> None:
    async with LossyRelay(server.port) as relay:
        store = await PostgresStore.open_at(replace(address, port=relay.port))
        try:
            await store.append_logs([a_line("0")])
            relay.lose_next_answer()
            await store.append_logs([a_line("1"), a_line("2")])
            relay.lose_next_answer()
            await store.append_metrics([a_report(1), a_report(2)])
            relay.lose_next_answer()
            await store.append_step_marks([a_mark(1), a_mark(2)])
            assert relay.lost == 3
            lines = await store.logs(LogQuery(task_ids=(TaskId("task"),)))
            assert [line.key for line in lines] == ["0", "1", "2"]
            assert [row.steps_completed for row in await store.metrics(TrialId(1))] == [1, 2]
            assert len(await store.step_marks([a_mark(1).allocation_id])) == 2
        finally:
            await store.close()


async def test_a_store_is_closed_while_its_server_is_away(server: PostgresServer, address: PostgresAddress) -> None:
    store = await PostgresStore.open_at(address)
    server.kill()
    try:
        with pytest.raises(Unavailable):
            while True:
                await store.ping()
        await store.close()
    finally:
        server.start()
