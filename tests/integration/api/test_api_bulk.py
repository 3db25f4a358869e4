"""One action on many experiments or runs, the older list of tasks, and what a web interface keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.user_settings import MAX_SETTING_CHARACTERS, MAX_VISITS
from support.api import World, a_config, an_api, settled

OF_PROJECT = "/api/v1/projects/1/experiments"


async def act(world: World, word: str, method: str = "POST", **body: Any) -> dict[int, str]:
    """The error of each, by its id."""
    answer = await world.call(method, f"{OF_PROJECT}/{word}", {"projectId": 1, "experimentIds": [], **body})
    return {result["id"]: result["error"] for result in answer["results"]}


async def states(world: World) -> dict[int, str]:
    listed = (await world.get("/api/v1/experiments?limit=-1"))["experiments"]
    return {each["id"]: each["state"].removeprefix("STATE_") for each in listed}


async def test_each_experiment_of_an_action_has_its_own_answer(world: World) -> None:
    agent = await world.agent()
    ids = [(await world.create())["id"] for _ in range(3)]
    assert await act(world, "pause", experimentIds=ids[:2]) == {ids[0]: "", ids[1]: ""}
    await settled(world)
    assert (await states(world))[ids[0]] == "PAUSED"
    again = await act(world, "archive", experimentIds=[ids[0], 99])
    assert "only an ended experiment" in again[ids[0]] and "experiment '99' not found" in again[99]
    assert await act(world, "activate", experimentIds=ids[:1]) == {ids[0]: ""}
    assert await act(world, "kill", experimentIds=ids[:2]) == {ids[0]: "", ids[1]: ""}
    await agent.run_all()
    assert await act(world, "retain_logs", "PUT", experimentIds=ids[1:2], numDays=3) == {ids[1]: ""}
    assert await act(world, "delete", "DELETE", experimentIds=ids[1:2]) == {ids[1]: ""}
    found = await states(world)
    assert ids[1] not in found and found[ids[2]] not in ("PAUSED", "CANCELED")


async def test_filters_without_states_mean_those_in_which_the_action_makes_sense(world: World) -> None:
    await world.agent()
    ids = [(await world.create(a_config(name=name)))["id"] for name in ("one", "two", "other")]
    assert await act(world, "pause", experimentIds=[ids[2]]) == {ids[2]: ""}
    assert await act(world, "pause", filters={"name": "o", "excludedExperimentIds": [ids[1]]}) == {ids[0]: ""}
    assert await act(world, "activate", filters={}) == {ids[0]: "", ids[2]: ""}
    assert await act(world, "cancel", filters={"states": ["STATE_COMPLETED"]}) == {}
    assert sorted(await act(world, "kill", filters={"userIds": [world.owner_id]})) == ids
    elsewhere = {"projectId": 9, "experimentIds": ids[:1]}
    results = (await world.post("/api/v1/projects/9/experiments/kill", elsewhere))["results"]
    assert f"experiment {ids[0]} is in project 1" in results[0]["error"]


async def test_others_experiments_are_not_acted_on(world: World) -> None:
    await world.agent()
    mine = (await world.create())["id"]
    bob = await world.login("bob")
    answer = await world.post(f"{OF_PROJECT}/kill", {"experimentIds": [mine]}, token=bob)
    assert "may not kill" in answer["results"][0]["error"]
    assert (await states(world))[mine] != "CANCELED"


async def test_runs_are_killed_one_by_one_and_else_acted_on_with_their_experiment(world: World) -> None:
    await world.agent()
    single = (await world.create())["id"]
    search = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}
    several = (await world.create(a_config(searcher=search)))["id"]
    (alone,) = world.engine.state.find(Trial, "trials_of_experiment", single)
    first, second = world.engine.state.find(Trial, "trials_of_experiment", several)

    async def runs(word: str, *ids: int, **body: Any) -> dict[int, str]:
        answer = await world.post(f"/api/v1/runs/{word}", {"runIds": list(ids), "projectId": 1, **body})
        return {result["id"]: result["error"] for result in answer["results"]}

    paused = await runs("pause", alone.id, first.id)
    assert paused[alone.id] == "" and "one trial of the search" in paused[first.id]
    assert await runs("resume", alone.id) == {alone.id: ""}
    assert await runs("kill", alone.id, first.id) == {alone.id: "", first.id: ""}
    left = world.engine.state.get(Trial, second.id)
    assert left is not None and not left.state.gone
    moved = await runs("move", first.id, sourceProjectId=1, destinationProjectId=1, skipMultitrial=True)
    assert moved == {first.id: ""}
    body = {"runIds": [], "filter": "{}"}
    assert "name the runs in runIds" in await world.error("POST", "/api/v1/runs/kill", body, status=400)


async def test_the_older_list_of_tasks_has_the_names_of_the_original(world: World) -> None:
    _, allocation, _ = await world.started(await world.agent("Agent-A"))
    found = await world.get("/tasks")
    assert found[allocation.id]["task_id"] == allocation.task_id
    assert found[allocation.id]["slots_needed"] == 1
    (resources,) = found[allocation.id]["resources"]
    assert list(resources["agent_devices"]) == ["Agent-A"]
    await world.error("GET", "/tasks", status=401, token="")


async def test_settings_are_kept_for_each_person_until_they_are_reset(world: World) -> None:
    path = "/api/v1/users/setting"
    first = {"key": "theme", "storagePath": "app", "value": '"dark"'}
    await world.post(path, {"settings": [first, {"key": "rows", "value": "20"}]})
    await world.post(path, {"settings": [{"key": "rows", "value": "50"}]})
    kept = {(each["storagePath"], each["key"]): each["value"] for each in (await world.get(path))["settings"]}
    assert kept == {("app", "theme"): '"dark"', ("", "rows"): "50"}
    assert (await world.get(path, token=await world.login("bob")))["settings"] == []
    large = {"settings": [{"key": "k", "value": "v" * (MAX_SETTING_CHARACTERS + 1)}]}
    assert "over the limit" in await world.error("POST", path, large, status=400)
    assert len((await world.get(path))["settings"]) == 2
    await world.post(f"{path}/reset")
    assert (await world.get(path))["settings"] == []


async def test_projects_that_were_looked_at_are_told_the_newest_first(world: World) -> None:
    place = (await world.post("/api/v1/workspaces", {"name": "w"}))["workspace"]["id"]
    body = {"name": "p", "workspaceId": place}
    project = (await world.post(f"/api/v1/workspaces/{place}/projects", body))["project"]["id"]
    for id_ in (1, project, 1):
        seen = {"activityType": "ACTIVITY_TYPE_GET", "entityType": "ENTITY_TYPE_PROJECT", "entityId": id_}
        await world.post("/api/v1/users/activity", seen)
    projects = (await world.get("/api/v1/user/projects/activity"))["projects"]
    assert [each["id"] for each in projects] == [1, project]
    assert len((await world.get("/api/v1/user/projects/activity?limit=1"))["projects"]) == 1 < MAX_VISITS
    await world.error("POST", "/api/v1/users/activity", {**seen, "entityId": 99}, status=404)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/master/telemetry"),
        ("POST", "/api/v1/trials/1/training_metrics"),
    ],
)
async def test_the_other_calls_say_that_they_are_not_served_yet(tmp_path: Path, method: str, path: str) -> None:
    async with an_api(tmp_path) as world:
        assert "does not serve" in await world.error(method, path, {} if method == "POST" else None, status=501)
