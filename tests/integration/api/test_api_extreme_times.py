"""Times that cannot be stored, or with which nothing could be reckoned, are refused by their key; the master goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from resolute_master.store.sql import SqlStore
from support.api import World, an_api

EXTREME = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """On a database, whose rows must be readable."""
    store = await SqlStore.open(f"sqlite:///{tmp_path}/master.db")
    async with an_api(tmp_path, store=store) as made:
        yield made
    await store.close()


def a_report(at: str, trial: int) -> dict[str, Any]:
    metrics = {"trialId": trial, "trialRunId": 1, "stepsCompleted": 1, "reportTime": at, "metrics": {"avgMetrics": {}}}
    return {"group": "training", "metrics": metrics}


@pytest.mark.parametrize("at", EXTREME)
async def test_every_door_for_a_time(world: World, at: str) -> None:
    trial, _, task = await world.started(await world.agent())
    one = f"/api/v1/trials/{trial.id}"
    line = {"taskId": trial.task_id, "log": "x", "timestamp": at}
    batch = {"group": "training", "trialRunId": 1, "reports": [{"stepsCompleted": 1, "metrics": {}, "reportTime": at}]}
    for path, body, key in (
        (f"{one}/metrics", a_report(at, trial.id), "metrics.reportTime"),
        (f"{one}/metrics", {**a_report(at, trial.id), "another": 1}, "metrics.reportTime"),
        (f"{one}/metrics/batch", batch, "reports[0].reportTime"),
        ("/api/v1/task/logs", {"logs": [{**line, "timestamp": "2024-01-01T00:00:00Z"}, line]}, "logs[1].timestamp"),
        ("/task-logs", [line], "logs[0].timestamp"),
    ):
        told = await world.error("POST", path, body, token="", task=task, status=400)
        assert f"{key}: " in told, told
    for name in ("timestampBefore", "timestampAfter"):
        told = await world.error("GET", f"{one}/logs?{name}={at.replace('+', '%2B')}", status=400)
        assert f"{name}: " in told, told
    for since in (f"since={at.replace('+', '%2B')}", f"until={at.replace('+', '%2B')}"):
        assert since[:5] in await world.error("GET", f"/api/v1/cost?{since}", status=400)
    config = {
        "name": "a",
        "entrypoint": "x",
        "searcher": {"name": "single", "metric": "m"},
        "resources": {"deadline": at},
    }
    response = await world.send("POST", "/api/v1/experiments", {"config": str(config).replace("'", '"')})
    assert response.status == 400 and "resources.deadline" in await response.text()
    assert await world.context.store.metrics(trial.id) == () and world.engine.stopped is None
    await world.lines(f"{one}/logs")


async def test_a_time_with_an_offset_is_stored_in_utc(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    line = {"taskId": trial.task_id, "log": "x", "timestamp": "2024-05-01T14:00:00+02:00"}
    await world.post("/api/v1/task/logs", {"logs": [line]}, token="", task=task)
    await world.post(f"/api/v1/trials/{trial.id}/metrics", a_report(line["timestamp"], trial.id), token="", task=task)
    (row,) = await world.context.store.metrics(trial.id)
    assert row.reported_at.isoformat() == "2024-05-01T12:00:00+00:00"
    (shown,) = await world.lines(f"/api/v1/tasks/{trial.task_id}/logs?sources=task")
    assert shown["result"]["timestamp"] == "2024-05-01T12:00:00Z"


async def test_an_expression_that_would_take_for_ever_is_answered(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    line = {"taskId": trial.task_id, "log": "a" * 5000 + "!"}
    await world.post("/api/v1/task/logs", {"logs": [line]}, token="", task=task)
    searched = f"/api/v1/trials/{trial.id}/logs?enableRegex=true&searchText="
    assert await world.lines(f"{searched}(a%2B)%2B$") == []
    assert len(await world.lines(f"{searched}^(a%2B)%2B!$")) == 1
    for wrong in (r"(a)\1", "(?=a)", "(", "((a%7B1,100%7D)%7B1,100%7D)%7B1,100%7D"):
        assert "searchText" in await world.error("GET", searched + wrong, status=400)
