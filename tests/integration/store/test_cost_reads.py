"""What is read for a question about one day grows with that day, not with what was before it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from resolute.wire.states import AllocationState
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.allocation import Allocation, AllocationExit
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle.ledger import Books
from resolute_master.store.base import Store
from resolute_master.store.sql import open_store, sqlite_url
from support.cluster import T0, a_container, an_allocation, an_instance, at
from support.stores import a_change, a_report
from support.stores_counting import CountingStore

HOUR_S = 3600.0


def an_hour(number: int) -> Allocation:
    """One of many, one after another on the same machine; each third is cut short and taken over by the next run."""
    cut = number % 3 == 0
    return an_allocation(
        f"1.task{number - number % 3}.{number % 3 + 1}",
        trial_id=TrialId(number // 3 + 1),
        state=AllocationState.TERMINATED,
        assigned_at=at(number * HOUR_S),
        ended_at=at((number + 1) * HOUR_S),
        exit=AllocationExit(reason="preempted" if cut else "finished", finished=not cut),
        containers=(a_container(),),
    )


async def remember(store: Store, hours: int, marks: int, reports: int) -> None:
    """`reports` of each attempt that makes no marks."""
    every = [an_hour(number) for number in range(hours)]
    await store.commit(a_change(1, upserts=(an_instance(paid_from=T0, joined_at=T0), *every)))
    await store.append_step_marks(
        [
            StepMark(
                allocation_id=each.id,
                steps_completed=n,
                at=each.assigned_at + timedelta(seconds=n),
                checkpointing_s=0.0,
            )
            for each in every
            if each.assigned_at is not None
            for n in range(marks)
        ]
    )
    await store.append_metrics(
        [
            a_report(n, trial_id=each.trial_id, run_id=each.run_id, reported_at=each.assigned_at + timedelta(seconds=n))
            for each in every
            if each.assigned_at is not None
            for n in range(1, reports + 1)
        ]
    )


async def rows_for_the_last_day(path: Path, *, hours: int, marks: int = 0, reports: int = 0) -> int:
    store = await open_store(sqlite_url(path))
    try:
        await remember(store, hours, marks, reports)
        now, since = at(hours * HOUR_S), at((hours - 24) * HOUR_S)
        counting = CountingStore(store)
        counted = cast(Store, counting)
        instances = await counted.instances(since=since, until=now)
        runs = await runs_on(counted, instances, since=since, until=now)
        spans = [span for each in instances for span in Books(runs).spans(each, now)]
        parts = [span.within(since, now).paid_s for span in spans if span.allocation is not None]
        assert sum(parts) == pytest.approx(24 * HOUR_S)
        return counting.rows
    finally:
        await store.close()


async def test_neither_history_nor_marks_make_a_day_dearer(tmp_path: Path) -> None:
    young = await rows_for_the_last_day(tmp_path / "young.db", hours=48, marks=10)
    old = await rows_for_the_last_day(tmp_path / "old.db", hours=1200, marks=10)
    chatty = await rows_for_the_last_day(tmp_path / "chatty.db", hours=48, marks=500)
    assert young == old == chatty


async def test_nor_do_the_reports_of_a_harness_that_makes_no_marks(tmp_path: Path) -> None:
    young = await rows_for_the_last_day(tmp_path / "young.db", hours=48, reports=10)
    old = await rows_for_the_last_day(tmp_path / "old.db", hours=300, reports=10)
    chatty = await rows_for_the_last_day(tmp_path / "chatty.db", hours=48, reports=200)
    assert young == old == chatty
