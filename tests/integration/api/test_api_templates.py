"""Templates are kept, checked, and merged under what is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from support.api import World, a_config

CONFIG = {"description": "from the template", "max_restarts": 3, "resources": {"slots_per_trial": 2}}


async def test_a_template_lives_and_dies(world: World) -> None:
    path = "/api/v1/templates/base"
    assert "template 'base' not found" in str(await world.call("GET", path, status=404))
    created = await world.post(path, {"name": "ignored", "config": CONFIG, "workspaceId": 1})
    assert created["template"] == {"name": "base", "config": CONFIG, "workspaceId": 1}
    assert "exists already" in await world.error("POST", path, {"config": {}, "workspaceId": 1}, status=409)
    changed = await world.call("PATCH", path, {"max_restarts": 1})
    assert changed["template"]["config"] == {"max_restarts": 1}
    await world.call("PUT", "/api/v1/templates/other", {"config": {"labels": ["a"]}, "workspaceId": 1})
    await world.call("PATCH", "/api/v1/template/rename", {"oldName": "other", "newName": "zebra"})
    taken = {"oldName": "zebra", "newName": "base"}
    assert "exists already" in await world.error("PATCH", "/api/v1/template/rename", taken, status=409)
    listed = await world.get("/api/v1/templates?limit=1&orderBy=ORDER_BY_DESC")
    assert [t["name"] for t in listed["templates"]] == ["zebra"] and listed["pagination"]["total"] == 2
    assert [t["name"] for t in (await world.get("/api/v1/templates?name=BA"))["templates"]] == ["base"]
    await world.call("DELETE", path)
    await world.error("GET", path, status=404)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"environment": 5}, "environment"),
        ({"bind_mounts": {"a": 1}}, "bind_mounts"),
        ({"resources": [1]}, "resources"),
        ({"resources": {"priority": 0}}, "resources.priority"),
        ([1], "JSON object"),
    ],
)
async def test_what_no_kind_of_task_could_use_is_not_kept(world: World, config: Any, named: str) -> None:
    text = await world.error("PUT", "/api/v1/templates/t", {"config": config, "workspaceId": 1}, status=400)
    assert named in text or "config" in text
    assert (await world.get("/api/v1/templates"))["templates"] == []


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"nmae": "x"}, "<config>.nmae"),
        ({"max_restarts": -1}, "<config>.max_restarts"),
        ({"resources": {"slots_per_trial": "two"}}, "<config>.resources.slots_per_trial"),
        ({"resources": {"slots": 0}}, "<config>.resources.slots"),
        ({"resources": {"weight": 0}}, "<config>.resources.weight"),
        ({"searcher": {"name": "singel"}}, "<config>.searcher"),
        ({"idle_timeout": "2h", "work_dir": "/run"}, "<config>.idle_timeout"),
    ],
)
async def test_what_an_experiment_cannot_have_is_kept_for_other_tasks_and_refused_where_it_is_used(
    world: World, config: dict[str, Any], named: str
) -> None:
    await world.agent()
    kept = await world.call("PUT", "/api/v1/templates/t", {"config": config, "workspaceId": 1})
    assert kept["template"]["config"] == config
    body = {"config": str(a_config()), "template": "t"}
    text = await world.error("POST", "/api/v1/experiments", body, status=400)
    assert "the template 't' has" in text and named in text
    assert (await world.get("/api/v1/experiments"))["experiments"] == []


async def test_a_template_goes_under_what_is_submitted_and_over_the_defaults(world: World) -> None:
    await world.agent()
    await world.post("/api/v1/templates/base", {"config": CONFIG, "workspaceId": 1})
    submitted = a_config(description="from the user")
    del submitted["max_restarts"]
    config = (await world.create(submitted, template="base"))["config"]
    assert (config["description"], config["max_restarts"]) == ("from the user", 3)
    assert config["resources"]["slots_per_trial"] == 2
    unknown = {"config": str(a_config()), "template": "nothing"}
    assert "no template 'nothing'" in await world.error("POST", "/api/v1/experiments", unknown, status=400)


async def test_names_are_checked_and_tasks_change_nothing(world: World) -> None:
    body = {"config": {}, "workspaceId": 1}
    assert "256" in await world.error("POST", f"/api/v1/templates/{'x' * 257}", body, status=400)
    assert "workspace" in await world.error("POST", "/api/v1/templates/t", {**body, "workspaceId": 9}, status=404)
    _, _, task = await world.started(await world.agent())
    await world.error("POST", "/api/v1/templates/t", body, status=403, task=task)
    await world.get("/api/v1/templates", task=task)
