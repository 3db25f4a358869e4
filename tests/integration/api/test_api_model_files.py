"""Files of an experiment's code, and the values by which its logs are filtered, over REST."""

from __future__ import annotations

import asyncio
import base64
import json

from resolute_master.api.resources.model_files import tree_of
from resolute_master.domain.ids import TaskId
from support.api import World, a_config, a_file
from support.stores import a_line


async def _with_code(world: World) -> str:
    await world.agent()
    files = [a_file("train.py", b"print(1)\n"), a_file("lib/deep/data.json", b"{}"), a_file("lib/readme", b"")]
    made = await world.create(a_config(), modelDefinition=files)
    return f"/api/v1/experiments/{made['id']}"


async def test_the_tree_of_the_code_and_each_file_of_it(world: World) -> None:
    path = await _with_code(world)
    folder, script = (await world.get(f"{path}/file_tree"))["files"]
    assert (folder["name"], folder["isDir"], [each["path"] for each in folder["files"]]) == (
        "lib",
        True,
        ["lib/deep", "lib/readme"],
    )
    assert (script["name"], script["isDir"], script["contentLength"], script["files"]) == ("train.py", False, 9, [])
    assert folder["files"][0]["files"][0]["contentType"] == "application/json"
    for name, content in (("train.py", b"print(1)\n"), ("lib/deep/data.json", b"{}"), ("lib/readme", b"")):
        answer = await world.post(f"{path}/file", {"path": name})
        assert base64.b64decode(answer["file"]) == content


async def test_a_file_that_is_not_there_is_refused_by_name(world: World) -> None:
    path = await _with_code(world)
    assert "path" in await world.error("POST", f"{path}/file", {}, status=400)
    for name in ("none.py", "lib", "../etc/passwd", "/train.py"):
        assert name in await world.error("POST", f"{path}/file", {"path": name}, status=404)
    assert tree_of(b"").files == ()


async def test_the_fields_of_a_log(world: World) -> None:
    agent = await world.agent()
    trial, _, _ = await world.started(agent)
    lines = [
        a_line("1", task_id=trial.task_id, agent_id="a", container_id="c1", rank=0, stdtype="stdout", source="task"),
        a_line("2", task_id=trial.task_id, agent_id="b", container_id="c2", rank=None, stdtype="stderr", source="task"),
    ]
    await world.context.reporting.logs(lines)
    (one,) = await world.lines(f"/api/v1/trials/{trial.id}/logs/fields")
    found = one["result"]
    assert {"a", "b"} <= set(found["agentIds"]) and {"c1", "c2"} <= set(found["containerIds"])
    assert {-1, 0} <= set(found["rankIds"]) and {"stdout", "stderr"} <= set(found["stdtypes"])
    (of_task,) = await world.lines(f"/api/v1/tasks/{trial.task_id}/logs/fields")
    assert of_task["result"]["allocationIds"] == ["task.1"] or "task.1" in of_task["result"]["allocationIds"]


async def test_the_fields_of_a_followed_log_come_as_they_are_new(world: World) -> None:
    agent = await world.agent()
    trial, _, _ = await world.started(agent)
    async with asyncio.timeout(30):
        response = await world.send("GET", f"/api/v1/trials/{trial.id}/logs/fields?follow=true")
        json.loads(await response.content.readline())
        await world.context.reporting.logs([a_line("9", task_id=trial.task_id, agent_id="late")])
        while "late" not in json.loads(await response.content.readline())["result"]["agentIds"]:
            pass
        await world.post(f"/api/v1/experiments/{trial.experiment_id}/kill")
        await agent.run_all()
        await response.read()  # it ends with the task


async def test_of_a_task_without_lines_there_is_one_empty_message(world: World) -> None:
    found = await world.context.store.log_fields(TaskId("none"))
    assert not found.some
