"""The database is away: tasks wait, further changes of other callers are refused, and reads of the committed state are answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import Unavailable
from resolute_master.api.http import outage
from resolute_master.api.http.outage import AWAY_S
from resolute_master.domain.change import Change
from resolute_master.domain.user import User
from resolute_master.store.memory import MemoryStore
from support.api import World, a_config, an_api


class AwayStore(MemoryStore):
    """While it is away, commits wait and reads fail, as those of a server do."""

    def __init__(self) -> None:
        super().__init__()
        self.there = asyncio.Event()
        self.there.set()
        self.asked = asyncio.Event()
        self.seconds = 2 * AWAY_S

    def leave(self, seconds: float = 2 * AWAY_S) -> None:
        """It has been away for so long."""
        self.seconds = seconds
        self.there.clear()
        self.asked.clear()

    async def commit(self, change: Change) -> None:
        self.asked.set()
        await self.there.wait()
        await super().commit(change)

    async def experiment(self, id_: Any) -> Any:
        self.asked.set()
        if not self.there.is_set():
            raise Unavailable("the server does not answer")
        return await super().experiment(id_)

    def away_s(self) -> float:
        return 0.0 if self.there.is_set() else self.seconds


@asynccontextmanager
async def a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[World, AwayStore, Any, str]]:
    """With a trial that runs, and the token of its task."""
    monkeypatch.setattr(outage, "LOOK_S", 0.01)
    store = AwayStore()
    async with an_api(tmp_path, store=store) as world:
        trial, _, task = await world.started(await world.agent())
        yield world, store, trial, task


def a_report(trial: Any) -> dict[str, Any]:
    values = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 1.0}}}
    return {"group": "training", "metrics": values}


async def test_changes_are_refused_at_once_and_those_of_tasks_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_task(tmp_path, monkeypatch) as (world, store, trial, task):
        users = world.engine.state.all(User)
        store.leave()
        path = f"/api/v1/trials/{trial.id}/metrics"
        reported = asyncio.create_task(world.post(path, a_report(trial), token="", task=task))
        await store.asked.wait()
        body = {"config": json.dumps(a_config()), "activate": True}
        refused = await world.send("POST", "/api/v1/experiments", body)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "3")
        assert "the database has not answered for 10 s; nothing was stored" in await refused.text()
        # What the committed state knows is shown meanwhile.
        assert (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]["id"] == trial.id
        assert not reported.done()
        store.there.set()
        assert await reported == {}
        assert world.engine.state.all(User) == users
        assert len((await world.get("/api/v1/experiments"))["experiments"]) == 1, "a refused submission was stored"
        await world.create()


async def test_a_change_during_a_restart_of_the_database_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_task(tmp_path, monkeypatch) as (world, store, trial, _):
        store.leave(AWAY_S / 2)
        paused = asyncio.create_task(world.post(f"/api/v1/experiments/{trial.experiment_id}/pause"))
        await store.asked.wait()
        store.seconds = 2 * AWAY_S
        assert not paused.done()
        store.there.set()
        assert await paused == {}


async def test_a_read_of_a_task_that_needs_the_database_waits_and_that_of_a_user_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_task(tmp_path, monkeypatch) as (world, store, _, task):
        store.leave()
        path = "/api/v1/experiments/77"
        read = asyncio.create_task(world.send("GET", path, token="", task=task))
        await store.asked.wait()
        refused = await world.send("GET", path)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "3")
        await asyncio.sleep(0.05)
        assert not read.done()
        store.there.set()
        assert (await read).status == 404


async def test_a_stream_that_has_begun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_task(tmp_path, monkeypatch) as (world, store, trial, task):
        following = await world.send("GET", f"/api/v1/trials/{trial.id}/logs?follow=true")
        assert following.status == 200
        store.leave()
        assert (await world.send("POST", f"/api/v1/experiments/{trial.experiment_id}/pause")).status == 503
        store.there.set()
        line = {"taskId": trial.task_id, "log": "after all"}
        await world.post("/task-logs", [line], token="", task=task)
        async for said in following.content:
            if b"after all" in said:
                break
        else:
            raise AssertionError("the stream ended without the line")
        following.close()
