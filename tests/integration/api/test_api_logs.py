"""Logs: read, filtered, followed to their end, posted by tasks; the master's own."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute_master.domain.trial import Trial
from support.api import World, a_config, an_api


def line(trial: Trial, text: str, **changes: Any) -> dict[str, Any]:
    """One line, spelled as the contract's shipper spells it."""
    return {
        "task_id": trial.task_id,
        "allocation_id": f"{trial.task_id}.1",
        "container_id": "0123456789abcdef",
        "agent_id": "agent-1",
        "stdtype": "stdout",
        "source": "task",
        "timestamp": "2026-01-01T00:00:00.000001Z",
        "log": text,
        **changes,
    }


async def posted(world: World, trial: Trial, task: str, *lines: dict[str, Any]) -> None:
    body = {"logs": list(lines)}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert await world.post("/api/v1/task/logs", body, task=task, token="", headers=headers) == {}


async def messages(world: World, trial: Trial, query: str = "sources=task") -> list[str]:
    found = await world.lines(f"/api/v1/trials/{trial.id}/logs?{query}")
    return [item["result"]["message"] for item in found]


async def test_lines_read_as_people_expect_them(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    await posted(
        world,
        trial,
        task,
        line(trial, "plain\n"),
        line(trial, "ranked\n", rank_id=3, level="LOG_LEVEL_WARNING"),
        line(trial, "bare level, no end of line", level="ERROR", container_id=None),
    )
    assert await messages(world, trial) == [
        "[2026-01-01T00:00:00.000001Z] 01234567 || plain\n",
        "[2026-01-01T00:00:00.000001Z] 01234567 [rank=3] || WARNING: ranked\n",
        "[2026-01-01T00:00:00.000001Z]          || ERROR: bare level, no end of line\n",
    ]
    (first, *_) = await world.lines(f"/api/v1/tasks/{trial.task_id}/logs?sources=task")
    result = first["result"]
    assert (result["taskId"], result["log"], result["level"]) == (trial.task_id, "plain\n", "LOG_LEVEL_UNSPECIFIED")
    assert isinstance(result["id"], str)


async def test_filters_limits_and_order(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    lines = [
        line(trial, f"line {i}\n", rank_id=i, level="LOG_LEVEL_INFO" if i % 2 else "LOG_LEVEL_ERROR") for i in range(6)
    ]
    await posted(world, trial, task, *lines)

    async def numbers(query: str) -> list[int]:
        return [int(m.rsplit(" ", 1)[1]) for m in await messages(world, trial, f"sources=task&{query}")]

    assert await numbers("limit=2") == [0, 1]
    assert await numbers("limit=2&orderBy=ORDER_BY_DESC") == [5, 4]
    assert await numbers("levels=LOG_LEVEL_ERROR") == [0, 2, 4]
    assert await numbers("rankIds=1&rankIds=5") == [1, 5]
    assert await numbers("searchText=LINE%203") == [3]
    assert await numbers("searchText=line%20[01]&enableRegex=true") == [0, 1]
    assert await numbers("timestampAfter=2026-01-01T00:00:01Z") == []
    assert await numbers("stdtypes=stderr") == []
    path = f"/api/v1/trials/{trial.id}/logs"
    for query in ("follow=true&limit=3", "limit=-1", "follow=true&orderBy=ORDER_BY_DESC", "levels=LOUD"):
        await world.error("GET", f"{path}?{query}", status=400)
    await world.error("GET", "/api/v1/tasks/none/logs", status=404)
    assert "searchText: '['" in await world.error("GET", f"{path}?searchText=[&enableRegex=true", status=400)


async def test_past_the_beginning_of_the_stream_an_error_is_its_last_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, _, task = await world.started(await world.agent())
    await posted(world, trial, task, line(trial, "one\n"))

    async def refuse(_: object) -> object:
        raise InvalidInput("searchText: the search takes long")

    monkeypatch.setattr(world.context.store, "logs", refuse)
    *_, last = await world.lines(f"/api/v1/trials/{trial.id}/logs")
    assert (last["error"]["httpCode"], last["error"]["grpcCode"]) == (400, 3)


async def test_more_lines_than_a_page(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    for start in range(0, 2500, 500):
        await posted(world, trial, task, *(line(trial, f"{i}\n") for i in range(start, start + 500)))
    assert len(await messages(world, trial)) == 2500
    assert len(await messages(world, trial, "sources=task&limit=1500")) == 1500


async def test_a_followed_log_tells_each_line_as_it_comes_and_ends_with_its_task(world: World) -> None:
    agent = await world.agent()
    trial, _, task = await world.started(agent)
    response = await world.send("GET", f"/api/v1/trials/{trial.id}/logs?follow=true&sources=task")
    assert response.headers["Transfer-Encoding"] == "chunked"
    async with asyncio.timeout(20):
        for number in range(3):
            await posted(world, trial, task, line(trial, f"{number}\n"))
            told = json.loads(await response.content.readline())
            assert told["result"]["log"] == f"{number}\n"
        await posted(world, trial, task, line(trial, "last\n"))
        await agent.run_all()
        rest = [json.loads(text) for text in (await response.content.read()).splitlines()]
    assert [item["result"]["log"] for item in rest] == ["last\n"]


async def test_a_follower_of_a_waiting_trial_is_told_of_its_end(world: World) -> None:
    agent = await world.agent(slots=1)
    await world.started(agent)
    waiting = await world.create(a_config())
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", waiting["id"])
    response = await world.send("GET", f"/api/v1/trials/{trial.id}/logs?follow=true&sources=task")
    await world.post(f"/api/v1/experiments/{waiting['id']}/kill")
    async with asyncio.timeout(20):
        assert await response.content.read() == b""


async def test_what_cannot_be_stored_is_refused(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    other = {**line(trial, "x"), "task_id": "7.other"}
    for lines, named in (
        ([], "at least one"),
        ([line(trial, "x"), other], "one task"),
        ([line(trial, "x", id=3)], "logs.id"),
        ([line(trial, "x", level="LOUD")], "LOUD"),
        ([line(trial, "x", timestamp="yesterday")], "timestamp"),
    ):
        text = await world.error("POST", "/api/v1/task/logs", {"logs": lines}, task=task, status=400)
        assert named in text
    assert "not found" in await world.error("POST", "/api/v1/task/logs", {"logs": [other]}, status=404)


async def test_the_older_door_takes_a_bare_list(world: World) -> None:
    trial, _, _ = await world.started(await world.agent())
    body = [{"task_id": trial.task_id, "log": "old\n", "timestamp": "2026-01-01T00:00:00Z", "rank": 1}]
    assert await world.post("/task-logs", body) == {}
    assert await messages(world, trial) == ["[2026-01-01T00:00:00.000000Z]          || old\n"]
    assert "list" in await world.error("POST", "/task-logs", {"logs": body}, status=400)


async def test_keys_without_effect_are_mentioned_in_the_log(world: World) -> None:
    await world.agent()
    experiment = await world.create(a_config(slurm={"sbatch_args": ["-x"]}))
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    found = await messages(world, trial, "levels=LOG_LEVEL_WARNING")
    assert any("slurm" in message for message in found)


async def test_the_master_s_own_log(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        logger = logging.getLogger("resolute_master.test")
        ring = world.context.master_log
        logger.addHandler(ring)
        logger.setLevel(logging.INFO)
        try:
            for number in range(5):
                logger.warning("line %d", number)

            async def texts(query: str) -> list[str]:
                return [
                    item["result"]["logEntry"]["message"] for item in await world.lines(f"/api/v1/master/logs{query}")
                ]

            assert await texts("") == [f"resolute_master.test: line {i}" for i in range(5)]
            assert (await texts("?offset=-2"))[0].endswith("line 3")
            assert (await texts("?offset=1&limit=1")) == ["resolute_master.test: line 1"]
            response = await world.send("GET", "/api/v1/master/logs?offset=-1&follow=true")
            async with asyncio.timeout(20):
                assert b"line 4" in await response.content.readline()
                await asyncio.to_thread(logger.error, "from a thread")
                told = json.loads(await response.content.readline())["result"]["logEntry"]
            response.close()
            assert (told["id"], told["level"]) == (6, "LOG_LEVEL_ERROR")
            await world.error("GET", "/api/v1/master/logs?limit=-1", status=400)
        finally:
            logger.removeHandler(ring)


async def test_the_level_of_the_log_changes_while_it_runs(world: World) -> None:
    root = await world.login("root")
    path = "/api/v1/master/config"
    change = {"fieldMask": {"paths": ["log.level"]}, "config": {"log": {"level": "LOG_LEVEL_DEBUG"}}}
    logger = logging.getLogger("resolute_master")
    before = logger.level
    try:
        await world.error("PATCH", path, change, status=403)
        assert await world.call("PATCH", path, change, token=root) == {}
        assert logger.level == logging.DEBUG
    finally:
        logging.getLogger("resolute_master").setLevel(before)
        logging.getLogger("resolute_provisioner").setLevel(logging.NOTSET)
    other = {"fieldMask": {"paths": ["port"]}, "config": {}}
    assert "port" in await world.error("PATCH", path, other, token=root, status=400)
    await world.error("GET", path, status=403)
    assert (await world.get(path, token=root))["config"]["launch_error"] is True
