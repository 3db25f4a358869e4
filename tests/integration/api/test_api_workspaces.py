"""Workspaces and projects, and pools that are for some workspaces only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.lifecycle import workspaces
from resolute_master.lifecycle.workspaces import MAX_PROJECT_KEY_LENGTH, MAX_WORKSPACE_NAME_LENGTH
from resolute_master.pools.policies import pool_policies
from resolute_master.store.base import Store
from support.api import World, a_config, an_api, master_config
from support.engines import an_engine, running
from support.stores import STORES, StoreHome, store_home

POOLS: dict[str, Any] = {
    "resource_pools": [{"pool_name": name} for name in ("default", "vision", "speech")],
    # So that nothing depends on agents.
    "launch_error": False,
}
BINDINGS = "/api/v1/resource-pools/{}/workspace-bindings"


@asynccontextmanager
async def an_open_api(storage: Path, store: Store | None = None) -> AsyncIterator[World]:
    policies = pool_policies(master_config(storage, **POOLS))
    async with an_api(storage, pools=policies, config=POOLS, store=store) as world:
        yield world


async def make(world: World, name: str, **defaults: Any) -> int:
    """A workspace with the one project `main`."""
    id_: int = (await world.post("/api/v1/workspaces", {"name": name, **defaults}))["workspace"]["id"]
    await world.post(f"/api/v1/workspaces/{id_}/projects", {"name": "main", "workspaceId": id_})
    return id_


def config(workspace: str | None = None, pool: str | None = None, **resources: Any) -> Mapping[str, Any]:
    place = {} if workspace is None else {"workspace": workspace, "project": "main"}
    return a_config(**place, resources={**({"resource_pool": pool} if pool else {}), **resources})


async def bind(
    world: World, pool: str, *names: str, method: str = "POST", status: int = 200, token: str | None = None
) -> Any:
    body = {"resourcePoolName": pool, "workspaceNames": list(names)}
    root = await world.login("root") if token is None else token
    if status != 200:
        return await world.error(method, BINDINGS.format(pool), body, status=status, token=root)
    return await world.call(method, BINDINGS.format(pool), body, token=root)


async def bound(world: World, pool: str) -> list[int]:
    ids: list[int] = (await world.get(BINDINGS.format(pool)))["workspaceIds"]
    return ids


async def refusal(world: World, given: Mapping[str, Any]) -> str:
    return await world.error("POST", "/api/v1/experiments", {"config": json.dumps(given), "activate": True}, status=400)


# --------------------------------------------------------------------------------------------------------- workspaces


async def test_a_workspace_is_made_shown_and_renamed(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        made = await world.post("/api/v1/workspaces", {"name": "Vision", "defaultComputePool": "vision"})
        assert made["namespaceBindings"] == {}
        shown = made["workspace"]
        assert (shown["name"], shown["username"], shown["immutable"]) == ("Vision", "ada", False)
        assert (shown["defaultComputePool"], shown["defaultAuxPool"]) == ("vision", None)
        path = f"/api/v1/workspaces/{shown['id']}"
        patched = await world.call(
            "PATCH", path, {"name": "Sight", "defaultComputeResourcePool": "", "defaultAuxPool": "vision"}
        )
        assert patched["workspace"] == (await world.get(path))["workspace"]
        renamed = patched["workspace"]
        assert (renamed["name"], renamed["defaultComputePool"], renamed["defaultAuxPool"]) == ("Sight", None, "vision")
        names = [one["name"] for one in (await world.get("/api/v1/workspaces"))["workspaces"]]
        assert names == ["Uncategorized", "Sight"]
        (found,) = (await world.get("/api/v1/workspaces?nameCaseSensitive=Sight"))["workspaces"]
        assert found["id"] == shown["id"]
        assert (await world.get("/api/v1/workspaces?nameCaseSensitive=sight"))["workspaces"] == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"name": "  "}, 400, "1 to 80 characters"),
        ({"name": "x" * 81}, 400, "1 to 80 characters"),
        ({"name": "Uncategorized"}, 409, "exists already"),
        (
            {"name": "a", "defaultAuxPool": "none"},
            400,
            "defaultAuxPool: there is no pool 'none'; choose one of 'default'",
        ),
        ({"name": "a", "checkpointStorageConfig": {"type": "s3"}}, 400, "checkpointStorageConfig: is not available"),
    ],
)
async def test_what_cannot_be_a_workspace_is_refused(
    tmp_path: Path, body: dict[str, Any], status: int, words: str
) -> None:
    async with an_open_api(tmp_path) as world:
        assert words in await world.error("POST", "/api/v1/workspaces", body, status=status)
        assert len((await world.get("/api/v1/workspaces"))["workspaces"]) == 1


async def test_only_its_owner_or_an_administrator_changes_a_workspace(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        path = f"/api/v1/workspaces/{await make(world, 'mine')}"
        bob = await world.login("bob")
        told = await world.error("PATCH", path, {"name": "b"}, status=403, token=bob)
        assert "the owner of workspace 'mine' or an administrator may" in told
        await world.call("PATCH", path, {"name": "r"}, token=await world.login("root"))
        text = await world.error(
            "PATCH", "/api/v1/workspaces/1", {"name": "x"}, status=400, token=await world.login("root")
        )
        assert "cannot be changed" in text


async def test_projects_have_names_of_their_workspace_and_keys_of_the_cluster(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        one, two = await make(world, "one"), await make(world, "two")
        path = f"/api/v1/workspaces/{one}/projects"
        given = (await world.post(path, {"name": "digits", "workspaceId": one, "description": "d", "key": "dig"}))[
            "project"
        ]
        assert (given["key"], given["workspaceName"], given["description"]) == ("DIG", "one", "d")
        projects = [
            *(await world.get(path))["projects"],
            *(await world.get(f"/api/v1/workspaces/{two}/projects"))["projects"],
        ]
        assert [(p["name"], p["key"]) for p in projects] == [("main", "MAI"), ("digits", "DIG"), ("main", "MAI1")]
        for body, status, words in (
            ({"name": "digits"}, 409, "exists already"),
            ({"name": "other", "key": "DIG"}, 409, "with the key 'DIG'"),
            ({"name": "other", "key": "a b"}, 400, "letters and digits"),
            ({"name": "other", "key": "K" * (MAX_PROJECT_KEY_LENGTH + 1)}, 400, "1 to 5 letters and digits"),
            ({"name": "x" * (MAX_WORKSPACE_NAME_LENGTH + 1)}, 400, "1 to 80 characters"),
        ):
            assert words in await world.error("POST", path, {**body, "workspaceId": one}, status=status)
        longest = {"name": "x" * MAX_WORKSPACE_NAME_LENGTH, "key": "K" * MAX_PROJECT_KEY_LENGTH, "workspaceId": one}
        given = (await world.post(path, longest))["project"]
        assert (given["name"], given["key"]) == (longest["name"], longest["key"])
        text = await world.error("POST", "/api/v1/workspaces/1/projects", {"name": "x", "workspaceId": 1}, status=400)
        assert "create a workspace first" in text


# -------------------------------------------------------------------------------------------------------- experiments


async def test_an_experiment_belongs_where_its_configuration_or_its_request_says(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        id_ = await make(world, "Vision")
        named = await world.create(config("Vision"))
        by_id = await world.create(config(), projectId=named["projectId"])
        for experiment in (named, by_id):
            assert (experiment["workspaceId"], experiment["workspaceName"], experiment["projectName"]) == (
                id_,
                "Vision",
                "main",
            )
            assert (experiment["config"]["workspace"], experiment["config"]["project"]) == ("Vision", "main")
        assert (await world.create(config()))["workspaceName"] == "Uncategorized"
        shown = (await world.get(f"/api/v1/workspaces/{id_}"))["workspace"]
        assert (shown["numExperiments"], shown["numProjects"]) == (2, 1)
        (project,) = (await world.get(f"/api/v1/workspaces/{id_}/projects"))["projects"]
        assert (project["numExperiments"], project["numRuns"]) == (2, 2)
        assert "there is no workspace 'vision'; choose one of 'Uncategorized', 'Vision'" in await refusal(
            world, config("vision")
        )
        text = await refusal(world, a_config(workspace="Vision", project="other"))
        assert "workspace 'Vision' has no project 'other'; it has 'main'" in text


async def test_an_experiment_moves_between_projects(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        await make(world, "one"), await make(world, "two")
        experiment = await world.create(config("one"))
        (project,) = (await world.get("/api/v1/workspaces/3/projects"))["projects"]
        path = f"/api/v1/experiments/{experiment['id']}"
        await world.post(f"{path}/move", {"experimentId": experiment["id"], "destinationProjectId": project["id"]})
        moved = (await world.get(path))["experiment"]
        assert (moved["workspaceName"], moved["config"]["workspace"]) == ("two", "two")
        await world.error("POST", f"{path}/move", {"experimentId": 1, "destinationProjectId": 99}, status=404)
        await bind(world, "vision", "two")
        inside = await world.create(config("two", "vision"))
        back = {"experimentId": inside["id"], "destinationProjectId": experiment["projectId"]}
        text = await world.error("POST", f"/api/v1/experiments/{inside['id']}/move", back, status=400)
        assert "pool 'vision' is bound to other workspaces than 'one'" in text


# ----------------------------------------------------------------------------------------------------------- bindings


async def test_a_bound_pool_takes_work_of_its_workspaces_only(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        one, two = await make(world, "one"), await make(world, "two")
        before = await world.create(config("two", "vision"))
        await bind(world, "vision", "one")
        assert await bound(world, "vision") == [one]
        await world.create(config("one", "vision"))
        for given in (config("two", "vision"), config(None, "vision")):
            text = await refusal(world, given)
            assert "pool 'vision' is bound to other workspaces" in text and "'default', 'speech'" in text
        moving = await world.create(config("two", "speech"))
        update = {"updates": [{"jobId": moving["jobId"], "resourcePool": "vision"}]}
        assert "is bound to other" in await world.error("POST", "/api/v1/job-queues", update, status=400)
        # What was there before the binding stays.
        assert [a.pool for a in world.engine.state.all(Allocation) if a.task_id.startswith(f"{before['id']}.")] == [
            "vision"
        ]
        await bind(world, "vision", "two")
        assert await bound(world, "vision") == [one, two]
        await world.post("/api/v1/job-queues", update)


async def test_bindings_are_replaced_and_removed_until_the_pool_is_everybodys_again(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        one, two = await make(world, "one"), await make(world, "two")
        await bind(world, "vision", "one")
        await bind(world, "vision", "two", method="PUT")
        assert await bound(world, "vision") == [two]
        refused = await bind(world, "vision", "one", method="DELETE", status=404)
        assert "binding of pool 'vision' to workspace 'one' not found" in str(refused)
        pools = f"/api/v1/workspaces/{one}/available-resource-pools"
        assert (await world.get(pools))["resourcePools"] == ["default", "speech"]
        unbound = await world.get("/api/v1/resource-pools?unbound=true")
        assert [pool["name"] for pool in unbound["resourcePools"]] == ["default", "speech"]
        await bind(world, "vision", "two", method="DELETE")
        assert await bound(world, "vision") == []
        await world.create(config("one", "vision"))


async def test_who_may_bind_what(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        await make(world, "one")
        text = await bind(world, "vision", "one", status=403, token=world.token)
        assert "may not bind resource pools" in text
        assert "a default pool" in await bind(world, "default", "one", status=400)
        # Whoever asks.
        assert "a default pool" in await bind(world, "default", "one", status=400, token=world.token)
        assert "there is no workspace 'none'; choose from 'Uncategorized', 'one'" in await bind(
            world, "vision", "none", status=400
        )
        assert "name at least one" in await bind(world, "vision", status=400)
        await bind(world, "none", "one", status=404)


async def test_work_without_a_pool_goes_to_the_default_of_its_workspace(tmp_path: Path) -> None:
    async with an_open_api(tmp_path) as world:
        await make(world, "one", defaultComputePool="vision", defaultAuxPool="speech")
        pools = [
            (await world.create(given))["resourcePool"]
            for given in (config("one"), config("one", slots_per_trial=0), config("one", "default"), config())
        ]
        assert pools == ["vision", "speech", "default", "default"]
        await make(world, "two")
        await bind(world, "vision", "two", method="PUT")
        assert "pool 'vision' is bound to other" in await refusal(world, config("one"))
        path = "/api/v1/workspaces/2"
        text = await world.error("PATCH", path, {"defaultAuxPool": "vision"}, status=400)
        assert "pool 'vision' is bound to other workspaces than 'one'" in text


@pytest.fixture(params=STORES)
async def home(request: pytest.FixtureRequest) -> StoreHome:
    return await store_home(request)


async def test_workspaces_and_bindings_outlive_the_master(tmp_path: Path, home: StoreHome) -> None:
    store = await home.open()
    async with an_open_api(tmp_path, store) as world:
        one = await make(world, "one", defaultComputePool="vision")
        await bind(world, "vision", "one")
    await store.close()
    store = await home.open()
    try:
        policies = pool_policies(master_config(tmp_path, **POOLS))
        async with running(an_engine(store, pools=policies, seed=2)) as engine:
            assert [w.name for w in workspaces.workspaces(engine.state)] == ["Uncategorized", "one"]
            assert [p.name for p in workspaces.projects(engine.state, one)] == ["main"]
            assert workspaces.may_use(engine.state, PoolName("vision"), one)
            assert not workspaces.may_use(engine.state, PoolName("vision"), 1)
    finally:
        await store.close()
