"""Workspaces and projects after their creation: archived, pinned, changed, moved, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api.http.limits import MAX_DESCRIPTION_LENGTH, MAX_NAME_LENGTH, MAX_NOTES_LENGTH
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.project_contents import Order
from resolute_master.lifecycle.projects import MAX_PROJECT_NOTES, MAX_PROJECT_NOTES_CHARACTERS
from resolute_master.lifecycle.user_settings import MAX_PINS
from resolute_master.store.base import Store
from support.api import World, a_config, an_api
from support.checkpoints import UUIDS, removing, with_checkpoints
from support.places import contents_at_work
from support.stores import STORES, StoreHome, store_home

DELETING, FAILED = "WORKSPACE_STATE_DELETING", "WORKSPACE_STATE_DELETE_FAILED"
TWO = {PoolName(name): PoolPolicy(name=PoolName(name)) for name in ("default", "vision")}
POOLS: dict[str, Any] = {"resource_pools": [{"pool_name": "default"}, {"pool_name": "vision"}], "launch_error": False}
TIMEOUT_S = 60


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with at_work(tmp_path) as given:
        yield given


@asynccontextmanager
async def at_work(storage: Path, store: Store | None = None) -> AsyncIterator[World]:
    """Ada's workspaces `lab` (with the projects `a` and `b`) and `attic` have the ids 2 and 3, the projects 2 and 3."""
    async with (
        an_api(storage, store=store, pools=TWO, config=POOLS) as given,
        contents_at_work(given.engine, given.context.store),
    ):
        if store is None:
            await furnished(given)
        yield given


async def furnished(world: World) -> None:
    for name in ("lab", "attic"):
        await world.post("/api/v1/workspaces", {"name": name})
    for name in ("a", "b"):
        await world.post("/api/v1/workspaces/2/projects", {"name": name, "workspaceId": 2})


async def ended(world: World, project: str = "a", **changes: Any) -> int:
    """An experiment that has ended."""
    made: int = (await world.create(a_config(workspace="lab", project=project, **changes), activate=False))["id"]
    await world.post(f"/api/v1/experiments/{made}/kill")
    return made


async def gone(world: World, path: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        with world.engine.watch("", "") as news:
            while (await world.send("GET", path)).status != 404:
                await news.changed(1)


async def carried_out(world: World) -> None:
    """Until no experiment has to follow its project, or to go with it."""
    async with asyncio.timeout(TIMEOUT_S):
        with world.engine.watch("", "") as news:
            while any(isinstance(effect, Order) for effect in world.engine.outstanding()):
                await news.changed(1)


async def project(world: World, id_: int) -> dict[str, Any]:
    found: dict[str, Any] = (await world.get(f"/api/v1/projects/{id_}"))["project"]
    return found


async def workspace(world: World, id_: int) -> dict[str, Any]:
    found: dict[str, Any] = (await world.get(f"/api/v1/workspaces/{id_}"))["workspace"]
    return found


async def names(world: World, query: str) -> list[str]:
    (rows,) = [rows for rows in (await world.get(f"/api/v1/workspaces{query}")).values() if isinstance(rows, list)]
    return [row["name"] for row in rows]


# --------------------------------------------------------------------------------------------------------- archiving


async def test_an_archived_project_takes_no_work_and_no_changes_until_it_is_unarchived(world: World) -> None:
    inside, outside = await ended(world), await ended(world, "b")
    await world.post("/api/v1/projects/2/archive")
    assert (await project(world, 2))["archived"] and not (await project(world, 3))["archived"]
    assert await names(world, "/2/projects?archived=true") == ["a"]
    assert await names(world, "/2/projects?archived=false") == ["b"]
    assert await names(world, "/2/projects") == ["a", "b"]
    shown = (await world.get(f"/api/v1/experiments/{inside}"))["experiment"]
    assert (shown["archived"], shown["parentArchived"]) == (False, True)
    said = "project 'a' of workspace 'lab' is archived; unarchive it first (det project unarchive lab a)"
    config = {"config": str(a_config(workspace="lab", project="a"))}
    at = f"/api/v1/experiments/{inside}"
    for method, path, body in (
        ("POST", "/api/v1/experiments", config),
        ("POST", "/api/v1/experiments", {**config, "validateOnly": True}),
        ("POST", "/api/v1/experiments", {"config": str(a_config()), "parentId": inside}),
        ("POST", f"/api/v1/experiments/{outside}/move", {"destinationProjectId": 2}),
        ("POST", f"{at}/move", {"destinationProjectId": 3}),
        ("PATCH", at, {"name": "other"}),
        ("PUT", f"{at}/labels/new", None),
        ("POST", f"{at}/archive", None),
        ("PATCH", "/api/v1/projects/2", {"name": "other"}),
        ("PUT", "/api/v1/projects/2/notes", {"notes": [], "projectId": 2}),
        ("POST", "/api/v1/projects/2/move", {"projectId": 2, "destinationWorkspaceId": 3}),
    ):
        assert await world.error(method, path, body, status=400) == said, (method, path)
    await world.post("/api/v1/projects/2/unarchive")
    await world.call("PATCH", at, {"name": "other"})
    assert (await world.get(at))["experiment"]["parentArchived"] is False


async def test_what_runs_in_an_archived_project_continues_and_can_be_ended(world: World) -> None:
    id_ = (await world.create(a_config(workspace="lab", project="a"), activate=False))["id"]
    await world.post("/api/v1/projects/2/archive")
    for verb in ("activate", "pause", "activate", "kill"):
        await world.post(f"/api/v1/experiments/{id_}/{verb}")
    assert (await world.get(f"/api/v1/experiments/{id_}"))["experiment"]["state"] == "STATE_CANCELED"
    await world.call("DELETE", f"/api/v1/experiments/{id_}")


async def test_projects_count_as_archived_with_their_workspace(world: World) -> None:
    await world.post("/api/v1/projects/3/archive")
    await world.post("/api/v1/workspaces/2/archive")
    assert (await workspace(world, 2))["archived"]
    assert [(await project(world, id_))["archived"] for id_ in (2, 3)] == [True, True]
    assert await names(world, "?archived=true") == ["lab"]
    assert await names(world, "?archived=false") == ["Uncategorized", "attic"]
    said = "workspace 'lab' is archived; unarchive it first (det workspace unarchive lab)"
    for method, path, body in (
        ("POST", "/api/v1/projects/2/archive", None),
        ("POST", "/api/v1/projects/3/unarchive", None),
        ("PATCH", "/api/v1/workspaces/2", {"name": "other"}),
        ("POST", "/api/v1/workspaces/2/projects", {"name": "c", "workspaceId": 2}),
        ("POST", "/api/v1/templates/t", {"config": {}, "workspaceId": 2}),
        ("POST", "/api/v1/experiments", {"config": str(a_config(workspace="lab", project="b"))}),
    ):
        assert await world.error(method, path, body, status=400) == said, (method, path)
    await world.post("/api/v1/workspaces/2/unarchive")
    assert [(await project(world, id_))["archived"] for id_ in (2, 3)] == [False, True], "one was by itself"


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("POST", "workspaces/1/archive", None, "workspace 'Uncategorized' always exists"),
        ("POST", "workspaces/1/unarchive", None, "workspace 'Uncategorized' always exists"),
        ("DELETE", "workspaces/1", None, "workspace 'Uncategorized' always exists: it cannot be deleted"),
        ("PATCH", "projects/1", {"name": "x"}, "project 'Uncategorized' cannot be changed"),
        ("POST", "projects/1/archive", None, "project 'Uncategorized' always exists"),
        ("POST", "projects/1/notes", {"name": "n", "contents": "c"}, "project 'Uncategorized' cannot be given notes"),
        ("DELETE", "projects/1", None, "project 'Uncategorized' always exists: it cannot be deleted"),
        ("POST", "projects/1/move", {"projectId": 1, "destinationWorkspaceId": 2}, "cannot be moved"),
        ("POST", "projects/2/move", {"projectId": 2, "destinationWorkspaceId": 1}, "allows no other"),
    ],
)
async def test_what_always_exists_stays_as_it_is(world: World, method: str, path: str, body: Any, said: str) -> None:
    root = await world.login("root")
    assert said in await world.error(method, f"/api/v1/{path}", body, status=400, token=root)


async def test_a_project_is_found_by_its_whole_name_alone(world: World) -> None:
    for name in ("digits-2", "digits"):
        await world.post("/api/v1/workspaces/2/projects", {"name": name, "workspaceId": 2})
    assert await names(world, "/2/projects?name=digits") == ["digits"]
    assert await names(world, "/2/projects?name=digit") == []


# ------------------------------------------------------------------------------------------------- texts, notes, pins


async def test_a_project_is_changed_field_by_field(world: World) -> None:
    async def patched(**change: Any) -> Any:
        shown = (await world.call("PATCH", "/api/v1/projects/2", change))["project"]
        assert shown == await project(world, 2)
        return shown["name"], shown["description"], shown["key"]

    assert await patched(name="digits") == ("digits", "", "A")
    assert await patched(description="ten of them", key="dig") == ("digits", "ten of them", "DIG")
    assert await patched(description="", key="DIG") == ("digits", "", "DIG")
    for change, status, said in (
        ({"name": "b"}, 409, "project 'b' of workspace 'lab' exists already"),
        ({"name": " "}, 400, "1 to 80 characters"),
        ({"key": "too long"}, 400, "1 to 5 letters and digits"),
        ({"key": "uncat"}, 409, "a project with the key 'UNCAT' exists already"),
        ({"description": "x" * (MAX_DESCRIPTION_LENGTH + 1)}, 400, "description: has 4097 characters"),
    ):
        assert said in await world.error("PATCH", "/api/v1/projects/2", change, status=status)
    assert await patched() == ("digits", "", "DIG")


async def test_notes_are_replaced_and_appended(world: World) -> None:
    path, notes = "/api/v1/projects/2/notes", [{"name": "first", "contents": "one"}, {"name": "", "contents": "two"}]
    assert (await world.call("PUT", path, {"notes": notes, "projectId": 2}))["notes"] == notes
    more = {"name": "third", "contents": "3"}
    assert (await world.post(path, more))["notes"] == [*notes, more] == (await project(world, 2))["notes"]
    long = {"name": "n", "contents": "x" * MAX_NOTES_LENGTH}
    for given, said in (
        ([{"name": "x" * (MAX_NAME_LENGTH + 1), "contents": ""}], "notes.name: has 257 characters"),
        ([{"name": "", "contents": "x" * (MAX_NOTES_LENGTH + 1)}], "notes.contents: has 65537 characters"),
        ([more] * (MAX_PROJECT_NOTES + 1), f"over the limit of {MAX_PROJECT_NOTES} of"),
        ([long] * 5, f"{MAX_PROJECT_NOTES_CHARACTERS} characters; remove or shorten some"),
    ):
        assert said in await world.error("PUT", path, {"notes": given, "projectId": 2}, status=400)
    assert (await world.call("PUT", path, {"notes": [], "projectId": 2}))["notes"] == []


async def test_a_pin_is_its_user_s_own(world: World) -> None:
    await world.post("/api/v1/workspaces/2/pin")
    first = (await workspace(world, 2))["pinnedAt"]
    await world.post("/api/v1/workspaces/2/pin")
    assert (await workspace(world, 2))["pinnedAt"] == first is not None
    assert await names(world, "?pinned=true") == ["lab"]
    assert await names(world, "?pinned=false") == ["Uncategorized", "attic"]
    bob = await world.login("bob")
    shown = (await world.get("/api/v1/workspaces/2", token=bob))["workspace"]
    assert (shown["pinned"], shown["pinnedAt"]) == (False, None)
    await world.post("/api/v1/workspaces/2/unpin")
    assert await names(world, "?pinned=true") == []
    for number in range(MAX_PINS):
        id_ = (await world.post("/api/v1/workspaces", {"name": f"w{number}"}))["workspace"]["id"]
        await world.post(f"/api/v1/workspaces/{id_}/pin")
    assert "pins: 100 workspaces are pinned" in await world.error("POST", "/api/v1/workspaces/2/pin", status=400)


# ------------------------------------------------------------------------------------------------------------- moves


async def test_a_project_moves_with_its_experiments(world: World) -> None:
    over = await ended(world)
    await world.post(f"/api/v1/experiments/{over}/archive")
    live = (await world.create(a_config(workspace="lab", project="a"), activate=False))["id"]
    await world.post("/api/v1/projects/2/move", {"projectId": 2, "destinationWorkspaceId": 3})
    assert (await project(world, 2))["workspaceName"] == "attic"
    assert (await names(world, "/2/projects"), await names(world, "/3/projects")) == (["b"], ["a"])
    for id_ in (over, live):
        shown = (await world.get(f"/api/v1/experiments/{id_}"))["experiment"]
        assert (shown["workspaceId"], shown["workspaceName"]) == (3, "attic")
    await carried_out(world)
    stored = await world.context.store.experiment(ExperimentId(over))
    assert stored is not None and (stored.workspace_id, stored.config["workspace"]) == (3, "attic")
    assert stored.archived


async def test_a_project_is_not_moved_to_where_it_could_not_be(world: World) -> None:
    await world.post("/api/v1/workspaces/3/projects", {"name": "a", "workspaceId": 3})

    async def refused(project: int, workspace: int, status: int = 400) -> str:
        body = {"projectId": project, "destinationWorkspaceId": workspace}
        return await world.error("POST", f"/api/v1/projects/{project}/move", body, status=status)

    assert "project 'a' of workspace 'attic' exists already" in await refused(2, 3, 409)
    assert "workspace '9' not found" in await refused(2, 9, 404)
    pool = {"resource_pool": "vision"}
    id_ = (await world.create(a_config(workspace="lab", project="b", resources=pool), activate=False))["id"]
    root = await world.login("root")
    bound = {"resourcePoolName": "vision", "workspaceNames": ["lab"]}
    await world.post("/api/v1/resource-pools/vision/workspace-bindings", bound, token=root)
    assert "pool 'vision' is bound to other workspaces than 'attic'" in await refused(3, 3)
    assert (await project(world, 3))["workspaceId"] == 2
    assert (await world.get(f"/api/v1/experiments/{id_}"))["experiment"]["workspaceId"] == 2
    await world.post("/api/v1/workspaces/3/archive")
    assert "workspace 'attic' is archived" in await refused(3, 3)


# ---------------------------------------------------------------------------------------------------------- deletion


async def test_a_project_is_not_deleted_while_experiments_run_in_it(world: World) -> None:
    ids = [(await world.create(a_config(workspace="lab", project="a"), activate=False))["id"] for _ in range(7)]
    text = await world.error("DELETE", "/api/v1/projects/2", status=400)
    commands = "; ".join(f"det experiment kill {id_}" for id_ in ids[:5])
    assert text == (
        f"project 'a' of workspace 'lab' holds 7 experiments that have not ended; end them first ({commands}; 2 more)"
    )
    assert "workspace 'lab' holds 7 experiments" in await world.error("DELETE", "/api/v1/workspaces/2", status=400)
    assert (await project(world, 2))["state"] == "WORKSPACE_STATE_UNSPECIFIED"


async def test_a_project_is_deleted_with_its_experiments_and_their_checkpoints(tmp_path: Path) -> None:
    async with at_work(tmp_path) as world:
        agent, trial, _ = await with_checkpoints(world, tmp_path, 3)
        await agent.run_all()
        first = trial.experiment_id
        await world.post(f"/api/v1/experiments/{first}/move", {"destinationProjectId": 2})
        more = [await ended(world) for _ in range(2)]
        kept = await ended(world, "b")
        assert (await world.call("DELETE", "/api/v1/projects/2"))["completed"] is False
        shown = await project(world, 2)
        assert (shown["state"], shown["errorMessage"]) == (DELETING, "")
        said = "project 'a' of workspace 'lab' is being deleted; choose another one"
        body = {"config": str(a_config(workspace="lab", project="a"))}
        assert await world.error("POST", "/api/v1/experiments", body, status=400) == said
        assert await world.error("POST", "/api/v1/projects/2/archive", status=400) == said
        assert all((tmp_path / UUIDS[number]).exists() for number in (1, 2, 3)), "no removal is at work yet"
        async with removing(world):
            await gone(world, "/api/v1/projects/2")
        assert not any((tmp_path / UUIDS[number]).exists() for number in (1, 2, 3))
        for id_ in (first, *more):
            await world.call("GET", f"/api/v1/experiments/{id_}", status=404)
        assert (await world.get(f"/api/v1/experiments/{kept}"))["experiment"]["projectName"] == "b"
        await carried_out(world)


async def test_a_workspace_goes_with_its_projects_and_all_that_belongs_to_it(world: World) -> None:
    root = await world.login("root")
    made = [await ended(world, name) for name in ("a", "b")]
    await world.post("/api/v1/templates/t", {"config": {}, "workspaceId": 2})
    await world.post("/api/v1/workspaces/2/pin")
    both = {"resourcePoolName": "vision", "workspaceNames": ["lab", "attic"]}
    await world.post("/api/v1/resource-pools/vision/workspace-bindings", both, token=root)
    await world.call("PUT", "/api/v1/workspaces/2/budget", {"perDay": 5.0}, token=root)
    assert (await world.call("DELETE", "/api/v1/workspaces/2"))["completed"] is False
    await gone(world, "/api/v1/workspaces/2")
    assert await names(world, "") == ["Uncategorized", "attic"]
    for path in ("projects/2", "projects/3", "templates/t", *(f"experiments/{id_}" for id_ in made)):
        await world.call("GET", f"/api/v1/{path}", status=404)
    assert (await world.get("/api/v1/resource-pools/vision/workspace-bindings"))["workspaceIds"] == [3]
    assert (await world.get("/api/v1/budgets"))["budgets"] == []
    assert (await world.get("/api/v1/workspaces?pinned=true"))["workspaces"] == []
    await world.call(
        "DELETE", "/api/v1/resource-pools/vision/workspace-bindings", {**both, "workspaceNames": ["attic"]}, token=root
    )
    assert (await world.call("DELETE", "/api/v1/workspaces/3"))["completed"] is True, "nothing is in it"


async def test_a_pool_does_not_become_everybody_s_by_a_deletion(world: World) -> None:
    root = await world.login("root")
    bound = {"resourcePoolName": "vision", "workspaceNames": ["lab"]}
    await world.post("/api/v1/resource-pools/vision/workspace-bindings", bound, token=root)
    text = await world.error("DELETE", "/api/v1/workspaces/2", status=400)
    assert "workspace 'lab' is the only one that pool 'vision' is bound to" in text


async def test_a_pool_is_not_left_to_workspaces_that_are_being_deleted(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=TWO, config=POOLS) as world:  # where nothing completes a deletion
        await furnished(world)
        root, path = await world.login("root"), "/api/v1/resource-pools/vision/workspace-bindings"
        both = {"resourcePoolName": "vision", "workspaceNames": ["lab", "attic"]}
        await world.post(path, both, token=root)
        await world.call("DELETE", "/api/v1/workspaces/2")
        assert "workspace 'attic' is the only one" in await world.error("DELETE", "/api/v1/workspaces/3", status=400)
        attic = {**both, "workspaceNames": ["attic"]}
        text = await world.error("DELETE", path, attic, status=400, token=root)
        assert "only to workspaces that are being deleted" in text
        await world.call("DELETE", path, both, token=root)
        await world.call("DELETE", "/api/v1/workspaces/3")


async def test_a_deletion_that_fails_says_why_and_can_be_made_again(tmp_path: Path) -> None:
    async with at_work(tmp_path) as world, removing(world):
        agent, trial, _ = await with_checkpoints(world, tmp_path, 1)
        await agent.run_all()
        await world.post(f"/api/v1/experiments/{trial.experiment_id}/move", {"destinationProjectId": 2})
        searcher = {"name": "single", "metric": "loss", "source_checkpoint_uuid": UUIDS[1]}
        heir = (await world.create(a_config(searcher=searcher), activate=False))["id"]
        await world.call("DELETE", "/api/v1/workspaces/2")
        with world.engine.watch("", "") as news:
            while (found := await project(world, 2))["state"] == DELETING:
                await news.changed(1)
        assert found["state"] == FAILED
        why = f"checkpoint '{UUIDS[1]}' is where trials of experiment {heir} start; end that experiment first"
        assert found["errorMessage"].startswith(why)
        shown = await workspace(world, 2)
        assert (shown["state"], shown["errorMessage"]) == (FAILED, f"project 'a': {found['errorMessage']}")
        assert (tmp_path / UUIDS[1]).exists()
        await gone(world, "/api/v1/projects/3")
        await world.post(f"/api/v1/experiments/{heir}/kill")
        await world.call("DELETE", "/api/v1/workspaces/2")
        await gone(world, "/api/v1/workspaces/2")
        assert not (tmp_path / UUIDS[1]).exists()


@pytest.fixture(params=STORES)
async def home(request: pytest.FixtureRequest) -> StoreHome:
    return await store_home(request)


async def test_what_was_ordered_is_done_by_the_next_master(tmp_path: Path, home: StoreHome) -> None:
    """The first master has no part that carries it out, as one that was killed right after the answer."""
    store = await home.open()
    async with an_api(tmp_path, store=store, pools=TWO, config=POOLS) as world:
        await furnished(world)
        deleted, moved = await ended(world), await ended(world, "b")
        await world.post("/api/v1/projects/3/notes", {"name": "n", "contents": "c"})
        await world.post("/api/v1/workspaces/3/pin")
        await world.post("/api/v1/projects/3/move", {"projectId": 3, "destinationWorkspaceId": 3})
        await world.call("DELETE", "/api/v1/projects/2")
        await world.post("/api/v1/projects/3/archive")
    await store.close()
    store = await home.open()
    async with at_work(tmp_path, store) as world:
        await gone(world, "/api/v1/projects/2")
        await world.call("GET", f"/api/v1/experiments/{deleted}", status=404)
        await carried_out(world)
        found = await store.experiment(ExperimentId(moved))
        assert isinstance(found, Experiment) and found.workspace_id == 3
        shown = await project(world, 3)
        assert (shown["archived"], shown["notes"]) == (True, [{"name": "n", "contents": "c"}])
        assert (await workspace(world, 3))["pinned"]
    await store.close()


async def test_others_may_not(world: World) -> None:
    bob = await world.login("bob")
    for method, path, body, said in (
        ("DELETE", "projects/2", None, "may not delete the whole of project 'a' of 'ada'; its owner, the owner of"),
        ("DELETE", "workspaces/2", None, "may not delete all of workspace 'lab'; the owner of workspace 'lab'"),
        ("POST", "projects/2/archive", None, "may not edit project 'a' of 'ada'"),
        ("POST", "projects/2/move", {"projectId": 2, "destinationWorkspaceId": 3}, "may not move the whole of"),
        ("PUT", "projects/2/notes", {"projectId": 2, "notes": []}, "may not write notes of project 'a'"),
    ):
        assert said in await world.error(method, f"/api/v1/{path}", body, status=403, token=bob)
    root = await world.login("root")
    await world.call("DELETE", "/api/v1/projects/2", token=root)
    await gone(world, "/api/v1/projects/2")
