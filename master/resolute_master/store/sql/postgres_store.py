"""The port on PostgreSQL: the hot writes by the driver's own bulk paths, everything else as on any database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import asyncpg

from resolute.clock import Clock
from resolute_master.domain.change import Change
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark
from resolute_master.store.base import MetricOutcome
from resolute_master.store.sql import postgres_commit, postgres_streams
from resolute_master.store.sql.postgres import START_TIMEOUT_S, PostgresDatabase
from resolute_master.store.sql.postgres_address import PostgresAddress
from resolute_master.store.sql.postgres_rows import log_arrays, metric_arrays
from resolute_master.store.sql.postgres_session import Lane
from resolute_master.store.sql.postgres_streams import Bulk, Rows, in_turns
from resolute_master.store.sql.store import SqlStore


class PostgresStore(SqlStore):
    """A `Store`. While the server is away its writes wait and its reads are refused after a little."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._metrics = postgres_streams.MetricCopier()
        self._metrics_in_bulk = Bulk()
        self._logs_in_bulk = Bulk()

    @classmethod
    async def open_at(
        cls, address: PostgresAddress, *, clock: Clock | None = None, timeout_s: float = START_TIMEOUT_S
    ) -> PostgresStore:
        """What `PostgresDatabase.open` does and raises."""
        return cls(await PostgresDatabase.open(address, clock=clock, timeout_s=timeout_s))

    def away_s(self) -> float:
        return self._postgres.away_s()

    async def commit(self, change: Change) -> None:
        """Over a lost connection: whether the change was stored is read from the journal, not guessed."""
        tried = False

        async def run(connection: asyncpg.Connection) -> None:
            nonlocal tried
            if tried and await postgres_commit.is_stored(connection, change):
                return
            tried = True
            async with AsyncExitStack() as stack:
                if change.logs:
                    await stack.enter_async_context(await self._numbering_logs())
                await postgres_commit.commit(connection, change)

        await self._postgres.on_lane(Lane.STATE, run)

    async def _numbering_logs(self) -> asyncio.Lock:
        """Lines are numbered by one writer at a time: a follower must not see a higher number before a lower one."""
        return await self._postgres.turn_of(Lane.LOGS)

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        async def store(rows: Rows) -> tuple[MetricOutcome, ...]:
            if await self._postgres.on_lane(Lane.METRICS, lambda c: self._metrics.copy(c, reports, rows)):
                return (MetricOutcome.STORED,) * len(reports)
            self._metrics.forget(reports)
            return await super(PostgresStore, self).append_metrics(reports)

        return await self._metrics_in_bulk.append(lambda: in_turns(reports, metric_arrays), store)

    async def append_logs(self, records: Sequence[LogRecord]) -> None:
        async def store(rows: Rows) -> None:
            await self._postgres.on_lane(Lane.LOGS, lambda c: postgres_streams.append_logs(c, rows))

        await self._logs_in_bulk.append(lambda: in_turns(records, log_arrays), store)

    async def append_step_marks(self, marks: Sequence[StepMark]) -> None:
        await self._postgres.on_lane(Lane.LOGS, lambda c: postgres_streams.append_step_marks(c, marks))
