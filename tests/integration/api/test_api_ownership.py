"""Whose work it is: what the table of calls cannot show."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.administration import PutTemplate
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.template import Template
from support.api import World, a_config
from support.rights import UUID, a_scene

WHO_MAY = "its owner, the owner of workspace 'w' or an administrator may"


async def test_a_refusal_names_what_it_is_whose_it_is_and_who_may(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        bob = await scene.world.login("bob")
        number, trial = scene.trial.experiment_id, scene.trial.id
        for method, path, what in (
            ("POST", f"/api/v1/experiments/{number}/pause", f"pause experiment {number}"),
            ("POST", f"/api/v1/experiments/{number}/kill", f"kill experiment {number}"),
            ("DELETE", f"/api/v1/experiments/{number}", f"delete experiment {number}"),
            ("POST", f"/api/v1/trials/{trial}/kill", f"kill trial {trial} (experiment {number})"),
            ("POST", f"/api/v1/checkpoints/{UUID}/metadata", f"change checkpoint '{UUID}' (experiment {number})"),
        ):
            told = await scene.world.error(method, path, token=bob, status=403)
            assert told == f"user 'bob' may not {what} of 'ada'; {WHO_MAY}"
        told = await scene.world.error("POST", f"/api/v1/trials/{trial}/progress", {}, token=bob, status=403)
        what = f"report for trial {trial} (experiment {number}) of 'ada'"
        assert told == f"user 'bob' may not {what}; its own task, {WHO_MAY}"
        # What is not there is said to everybody: all may read.
        await scene.world.error("POST", "/api/v1/experiments/999/pause", token=bob, status=404)


async def test_nothing_of_a_list_is_changed_when_one_of_it_is_another_s(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        world, carol = scene.world, await scene.world.login("carol")
        (theirs,) = [e for e in world.engine.state.all(Experiment) if e.job_id == scene.carol_job]
        (trial,) = (await world.get(f"/api/v1/experiments/{theirs.id}/trials"))["trials"]
        report = {"uuid": UUID.replace("1", "2"), "allocationId": f"{trial['taskIds'][0]}.1", "resources": {"a": "1"}}
        await world.post("/api/v1/checkpoints", {**report, "metadata": {"steps_completed": 1}}, token=carol)
        both = {"checkpointUuids": [report["uuid"], UUID]}
        told = await world.error("DELETE", "/api/v1/checkpoints", both, token=carol, status=403)
        assert f"checkpoint '{UUID}'" in told and "of 'ada'" in told
        for uuid in both["checkpointUuids"]:
            assert (await world.get(f"/api/v1/checkpoints/{uuid}"))["checkpoint"]["state"] == "STATE_COMPLETED"


async def test_a_template_is_its_creator_s_also_when_an_administrator_has_changed_it(world: World) -> None:
    path, body = "/api/v1/templates/t", {"config": {"max_restarts": 1}, "workspaceId": 1}
    await world.post(path, body)
    bob, root = await world.login("bob"), await world.login("root")
    told = await world.error("PUT", path, body, token=bob, status=403)
    assert told == (
        "user 'bob' may not replace, rename or delete template 't' of 'ada'; its creator or an administrator may"
    )
    await world.call("PUT", path, body, token=root)
    await world.call("PATCH", path, {"max_restarts": 2})
    await world.call("PATCH", "/api/v1/template/rename", {"oldName": "t", "newName": "u"})
    await world.error("DELETE", "/api/v1/templates/u", token=bob, status=403)
    await world.call("DELETE", "/api/v1/templates/u")


async def test_a_template_of_an_older_release_is_for_administrators(world: World) -> None:
    await world.engine.submit(PutTemplate(name="old", config={}))
    kept = world.engine.state.get(Template, "old")
    assert kept is not None and kept.owner == 0
    told = await world.error("DELETE", "/api/v1/templates/old", status=403)
    assert told.endswith("template 'old'; its creator or an administrator may")
    await world.call("DELETE", "/api/v1/templates/old", token=await world.login("root"))


async def test_an_experiment_that_runs_elsewhere_is_reported_for_by_its_owner(world: World) -> None:
    config = a_config()
    del config["entrypoint"]
    made = await world.post("/api/v1/experiments", {"config": str(config), "unmanaged": True})
    body = {"experimentId": made["experiment"]["id"], "unmanaged": True}
    trial = (await world.post("/api/v1/trials", body))["trial"]
    run = (await world.post(f"/api/v1/trials/{trial['id']}/start", {"trialId": trial["id"]}))["trialRunId"]
    values = {"trialId": trial["id"], "trialRunId": run, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": 1.0}}}
    uuid = {"uuid": UUID, "taskId": trial["taskIds"][0], "metadata": {"steps_completed": 1}, "resources": {}}
    lines = {"logs": [{"taskId": trial["taskIds"][0], "log": "a line"}]}
    calls: list[tuple[str, Any]] = [
        (f"/api/v1/trials/{trial['id']}/metrics", {"group": "validation", "metrics": values}),
        ("/api/v1/checkpoints", uuid),
        ("/api/v1/task/logs", lines),
        (f"/api/v1/runs/{trial['id']}/metadata", {"metadata": {"a": 1}}),
    ]
    bob = await world.login("bob")
    for path, sent in calls:
        assert "of 'ada'" in await world.error("POST", path, sent, token=bob, status=403)
    await world.error("POST", "/api/v1/trials", body, token=bob, status=403)
    await world.error("PATCH", f"/api/v1/trials/{trial['id']}", {"state": "STATE_COMPLETED"}, token=bob, status=403)
    for path, sent in calls:
        await world.post(path, sent)


@pytest.mark.parametrize("user", ["root", "ada"])
async def test_a_token_of_a_task_s_commands_administers_nothing(world: World, user: str) -> None:
    """It is in the environment of the task, where any program of it may read it."""
    trial, allocation, _ = await world.started(await world.agent())
    (person,) = [one for one in world.users() if one.username == user]
    token = world.context.tokens.issue_task_user(allocation.id, person.id)
    before = world.users()
    for method, path, body in (
        ("POST", "/api/v1/users", {"user": {"username": "eve", "admin": True, "active": True}, "password": "x"}),
        ("PATCH", f"/api/v1/users/{person.id}", {"admin": True}),
        ("PATCH", f"/api/v1/users/{person.id}", {"password": "x"}),
        ("POST", f"/api/v1/users/{person.id}/password", "x"),
        ("GET", "/api/v1/master/config", None),
        ("PATCH", "/api/v1/master/config", {}),
        ("POST", "/api/v1/agents/agent-1/disable", {}),
        ("POST", "/api/v1/cleanup_logs", {}),
    ):
        told = await world.error(method, path, body, token=token, status=403)
        assert told.startswith(f"user '{user}' from within a task may not ")
        assert ("log in" in told) == (user == "root")
    assert world.users() == before
    # What its user owns it changes; an administrator's is not everybody's.
    status = 200 if user == "ada" else 403
    await world.call("POST", f"/api/v1/experiments/{trial.experiment_id}/pause", token=token, status=status)
    assert (await world.get("/api/v1/me", token=token))["user"]["username"] == user


@pytest.mark.parametrize("how", ["logout", "deactivated"])
async def test_a_followed_log_ends_when_its_reader_s_token_does(world: World, how: str) -> None:
    trial, _, task = await world.started(await world.agent())
    bob, root = await world.login("bob"), await world.login("root")
    lines = {"logs": [{"taskId": trial.task_id, "log": "a line\n"}]}
    await world.post("/api/v1/task/logs", lines, task=task, token="")
    response = await world.send("GET", f"/api/v1/tasks/{trial.task_id}/logs?follow=true", token=bob)
    async with asyncio.timeout(20):
        while "a line" not in json.loads(await response.content.readline())["result"]["log"]:
            pass
        if how == "logout":
            await world.post("/api/v1/auth/logout", token=bob)
        else:
            (user,) = [one for one in world.users() if one.username == "bob"]
            await world.call("PATCH", f"/api/v1/users/{user.id}", {"active": False}, token=root)
        await world.post("/api/v1/task/logs", lines, task=task, token="")
        left = [json.loads(line) for line in (await response.text()).splitlines()]
    assert [error["error"]["httpCode"] in (401, 403) for error in left] == [True]
