"""A database that is away: people are told after a while, tasks wait, and everybody is served when it is back."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

from resolute.clock import FixedClock
from resolute_master.api.http.patience import PATIENCE_S
from resolute_master.domain.change import Change
from resolute_master.store.memory import MemoryStore
from support.api import a_config, an_api


class AwayStore(MemoryStore):
    """Commits wait while it is away, as those of a server do."""

    def __init__(self) -> None:
        super().__init__()
        self.there = asyncio.Event()
        self.there.set()
        self.asked = asyncio.Event()

    async def commit(self, change: Change) -> None:
        self.asked.set()
        await self.there.wait()
        await super().commit(change)

    def away_s(self) -> float:
        return 0.0 if self.there.is_set() else 2 * PATIENCE_S


async def test_people_are_told_and_tasks_wait(tmp_path: Path) -> None:
    store, clock = AwayStore(), FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, store=store, clock=clock) as world:
        agent = await world.agent()
        trial, _, task = await world.started(agent)
        store.there.clear()
        store.asked.clear()
        asked = asyncio.create_task(
            world.error("POST", "/api/v1/experiments", {"config": json.dumps(a_config()), "activate": True}, status=503)
        )
        values = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 1.0}}}
        report = {"group": "training", "metrics": values}
        reported = asyncio.create_task(world.post(f"/api/v1/trials/{trial.id}/metrics", report, token="", task=task))
        await store.asked.wait()
        await asyncio.sleep(0.1)
        assert not asked.done()
        clock.advance(2 * PATIENCE_S)
        assert "the database has not answered for 15 s; what was asked may or may not be stored" in await asked
        assert not reported.done()
        store.there.set()
        assert await reported == {}
        assert (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]["id"] == trial.id


async def test_a_stream_that_has_begun_is_not_cut(tmp_path: Path) -> None:
    store, clock = AwayStore(), FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, store=store, clock=clock) as world:
        agent = await world.agent()
        trial, _, task = await world.started(agent)
        following = await world.send("GET", f"/api/v1/trials/{trial.id}/logs?follow=true")
        assert following.status == 200
        store.there.clear()
        clock.advance(2 * PATIENCE_S)
        pause = asyncio.create_task(world.error("POST", f"/api/v1/experiments/{trial.experiment_id}/pause", status=503))
        # Both are looked at together; the one that had begun goes on.
        await asyncio.sleep(0.05)
        clock.advance(2 * PATIENCE_S)
        await pause
        store.there.set()
        line = {"taskId": trial.task_id, "log": "after all"}
        await world.post("/task-logs", [line], token="", task=task)
        async for said in following.content:
            if b"after all" in said:
                break
        else:
            raise AssertionError("the stream ended without the line")
        following.close()
