"""Cost of the query for the expenses of one week, on a master with a thousand days of history: rows read and processor time.

The worst case: one machine existed all that time and ran all 10,000 tasks.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.report import Row, Spread, Target
from resolute.wire.states import AllocationState
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.allocation import AllocationExit
from resolute_master.domain.change import Change, JournalEntry
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle.cost import Grouping, cost_by, total
from resolute_master.lifecycle.ledger import Books
from resolute_master.store.base import Store
from resolute_master.store.sql import open_store, sqlite_url
from support.cluster import T0, a_container, an_allocation, an_instance
from support.stores_counting import CountingStore

TASKS, DAYS, MARKS = 10_000, 1_000, 20
LENGTH = timedelta(days=DAYS) / TASKS
ROUNDS = 5


def main() -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measured(Path(directory) / "books.db"))


async def _measured(path: Path) -> list[Row]:
    store = await open_store(sqlite_url(path))
    try:
        await _remember(store)
        end = T0 + timedelta(days=DAYS)
        week, always = await _asked(store, end - timedelta(days=7), end), await _asked(store, None, end)
    finally:
        await store.close()
    share = 7 / DAYS
    return [
        Row(
            name=f"rows read for the last 7 of {DAYS} days, {TASKS:,} tasks",
            subject=Spread.one(week[0], "rows"),
            bound_name="rows read for all days",
            bound=Spread.one(always[0], "rows"),
            result=week[0] / always[0] / share,
            target=Target(at_most=1.2),
            notes="the share of rows over the share of days",
        ),
        Row(
            name="processor time for it, SQLite",
            subject=Spread.of(week[1], "ms"),
            bound_name="for all days",
            bound=Spread.of(always[1], "ms"),
        ),
    ]


async def _remember(store: Store) -> None:
    finished = AllocationExit(reason="finished", finished=True)
    for first in range(0, TASKS, 500):
        upserts: list[Any] = [
            an_allocation(
                f"1.task{number:05}.1",
                state=AllocationState.TERMINATED,
                requested_at=T0 + number * LENGTH,
                assigned_at=T0 + number * LENGTH,
                ended_at=T0 + (number + 1) * LENGTH,
                exit=finished,
                containers=(a_container(),),
            )
            for number in range(first, first + 500)
        ]
        if first == 0:
            upserts.append(an_instance(paid_from=T0, joined_at=T0))
        entry = JournalEntry(sequence=first // 500 + 1, at=T0, entropy="", commands=b"[]", adopted=b"[]", digest="")
        await store.commit(Change(journal=entry, upserts=tuple(upserts)))
        await store.append_step_marks(
            [
                StepMark(
                    allocation_id=each.id,
                    steps_completed=step,
                    at=each.assigned_at + LENGTH * (step + 1) / (MARKS + 1),
                    checkpointing_s=0.0,
                )
                for each in upserts
                if hasattr(each, "task_id")
                for step in range(MARKS)
            ]
        )


async def _asked(store: Store, since: datetime | None, now: datetime) -> tuple[int, list[float]]:
    """Rows that the store returned, and processor milliseconds of each round."""
    counting, spent = CountingStore(store), []
    for _ in range(ROUNDS):
        counting.rows = 0
        begun = time.process_time()
        counted = cast(Store, counting)
        instances = await counted.instances(since=since, until=now)
        books = Books(await runs_on(counted, instances, since=since, until=now))
        line = total(cost_by(Grouping.USER, instances, books, {}, now=now, since=since, until=now).values())
        spent.append((time.process_time() - begun) * 1000)
        paid_s = (now - (since or T0)).total_seconds()
        assert abs(line.booking.paid_s - paid_s) < 1e-3 and line.booking.idle_s < 1e-3, line
    return counting.rows, spent
