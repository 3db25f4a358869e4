"""The two databases of a master, with points in their transactions.

<what>.open   SQLite, and PostgreSQL outside its lanes: before COMMIT; in a lane: before anything is sent
<what>.sent   a lane of PostgreSQL: the commit is sent, and not answered yet
<what>.done   after the commit, before its confirmation
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import asyncpg
from sqlalchemy import Connection

from campaign.points import Order, Points, kill_all
from resolute_master.domain.change import Change
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.metrics import LogRecord, MetricReport, StepMark
from resolute_master.store.base import MetricOutcome
from resolute_master.store.sql.database import SqliteDatabase, Work
from resolute_master.store.sql.postgres import PostgresDatabase
from resolute_master.store.sql.postgres_session import Lane
from resolute_master.store.sql.postgres_store import PostgresStore
from resolute_master.store.sql.store import SqlStore

T = TypeVar("T")

_writing: ContextVar[str] = ContextVar("writing", default="setting")
"""The purpose of a transaction, which is the first word of its points."""


@contextmanager
def writing(what: str) -> Iterator[None]:
    token = _writing.set(what)
    try:
        yield
    finally:
        _writing.reset(token)


class PointedSqlite(SqliteDatabase):
    """Set `points` after `open`."""

    points = Points(None)

    async def write(self, work: Work[T]) -> T:
        what = _writing.get()
        result = await super().write(_with_point(work, self.points, f"{what}.open"))
        self.points.reached(f"{what}.done")
        return result


class PointedPostgres(PostgresDatabase):
    """Set `points` after `open`."""

    points = Points(None)

    async def write(self, work: Work[T]) -> T:
        what = _writing.get()
        result = await super().write(_with_point(work, self.points, f"{what}.open"))
        self.points.reached(f"{what}.done")
        return result

    async def on_lane(self, lane: Lane, run: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        what = _writing.get()

        async def pointed(connection: asyncpg.Connection) -> T:
            backend = connection.get_server_pid()
            self.points.reached(f"{what}.open", backend=backend)
            order = self.points.take(f"{what}.sent")
            if order is None:
                result = await run(connection)
            else:
                result = await self._struck_when_sent(order, run(connection), backend)
            self.points.reached(f"{what}.done", backend=backend)
            return result

        return await super().on_lane(lane, pointed)

    async def _struck_when_sent(self, order: Order, work: Awaitable[T], backend: int) -> T:
        """Finds the victims before anything is sent, so that the signal immediately follows the statement."""
        victims = self.points.victims(order, backend=backend)
        under_way = asyncio.ensure_future(work)
        await asyncio.sleep(0)  # It runs until it waits for the answer.
        if under_way.done():
            kill_all(victims, signal.SIGCONT)
            victims = []
        # A master that kills itself writes its marker first, so that a few microseconds more pass until the signal.
        self.points.mark(order, victims)
        kill_all(victims)
        return await under_way


def _with_point(work: Work[T], points: Points, point: str) -> Work[T]:
    def run(connection: Connection) -> T:
        result = work(connection)
        points.reached(point)
        return result

    return run


class Named(SqlStore):
    """Records the purpose of each transaction. Set `points` after the construction."""

    points = Points(None)

    async def commit(self, change: Change) -> None:
        saved = any(isinstance(entity, Checkpoint) for entity in change.upserts)
        with writing("saved") if saved else writing("commit"):
            await super().commit(change)

    async def append_metrics(self, reports: Sequence[MetricReport]) -> tuple[MetricOutcome, ...]:
        with writing("stream"):
            return await super().append_metrics(reports)

    async def append_logs(self, records: Sequence[LogRecord]) -> None:
        with writing("stream"):
            await super().append_logs(records)

    async def append_step_marks(self, marks: Sequence[StepMark]) -> None:
        with writing("stream"):
            await super().append_step_marks(marks)

    async def put_context(self, digest: str, archive: bytes) -> None:
        self.points.reached("upload.packed")
        with writing("upload"):
            await super().put_context(digest, archive)


class NamedPostgres(Named, PostgresStore):
    """The same for the paths of PostgreSQL."""
