"""`det workspace`, `det project` and `det resource-pool bindings` against the real API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from resolute_master.pools.policies import pool_policies
from support.api import a_config, an_api, master_config
from support.cli_real import Shell
from support.places import contents_at_work

POOLS: dict[str, Any] = {"resource_pools": [{"pool_name": "default"}, {"pool_name": "vision"}], "launch_error": False}


@pytest.fixture
async def det(tmp_path: Path) -> AsyncIterator[Shell]:
    policies = pool_policies(master_config(tmp_path, **POOLS))
    async with an_api(tmp_path, pools=policies, config=POOLS) as world:
        yield Shell(world, tmp_path)


async def test_workspaces_and_projects_are_made_changed_and_listed(det: Shell) -> None:
    await det("workspace", "create", "sight", "--default-compute-pool", "vision")
    await det("workspace", "edit", "sight", "--name", "Vision", "--default-compute-pool", "")
    assert [one["name"] for one in await det.json("workspace", "list")] == ["Uncategorized", "Vision"]
    (made,) = await det.json("project", "create", "Vision", "digits", "--description", "ten of them", "--key", "dig")
    assert (made["name"], made["key"], made["workspaceName"]) == ("digits", "DIG", "Vision")
    assert (
        await det.json("project", "list", "Vision") == await det.json("workspace", "list-projects", "Vision") == [made]
    )
    assert "workspace 'none' not found" in await det("project", "create", "none", "x", code=1)


async def test_pools_are_bound_and_let_go(det: Shell) -> None:
    bindings = ("resource-pool", "bindings")
    await det("workspace", "create", "one")
    await det("workspace", "create", "two")
    assert (await det.json(*bindings, "add", "vision", "one"))["workspaces"] == ["one"]
    assert (await det.json("rp", "bindings", "add", "vision", "two"))["workspaces"] == ["one", "two"]
    assert await det.json("workspace", "list-pools", "Uncategorized") == ["default"]
    assert (await det.json(*bindings, "replace", "vision", "two"))["workspaces"] == ["two"]
    assert await det.json("workspace", "list-pools", "two") == ["default", "vision"]
    assert (await det.json(*bindings, "remove", "vision", "two"))["workspaces"] == []
    assert "(all)" in await det(*bindings, "list-workspaces", "vision")
    assert "is a default pool" in await det(*bindings, "add", "default", "one", code=1)


ACCOUNT = ("--agent-uid", "1001", "--agent-user", "ada", "--agent-gid", "1002", "--agent-group", "research")
LINKED = {"agentUid": 1001, "agentUser": "ada", "agentGid": 1002, "agentGroup": "research"}


async def test_an_account_of_the_machines_is_linked_shown_and_taken_away(det: Shell) -> None:
    async def of_user() -> Any:
        return next(one["agentUserGroup"] for one in await det.json("user", "list") if one["username"] == "ada")

    assert await of_user() is None
    assert "run as ada:research (1001:1002)" in await det("user", "link-with-agent-user", "ada", *ACCOUNT)
    assert await of_user() == LINKED
    assert "1001" in await det("user", "list")
    await det("user", "rename", "ada", "lovelace")
    await det("user", "rename", "lovelace", "ada")
    assert await of_user() == LINKED, "another change leaves it"
    await det("user", "link-with-agent-user", "ada", "--remove")
    assert await of_user() is None

    await det("workspace", "create", "sight", *ACCOUNT)
    await det("workspace", "create", "sound")
    await det("workspace", "edit", "sound", *ACCOUNT)
    await det("workspace", "edit", "sound", "--name", "noise")
    spaces = {one["name"]: one["agentUserGroup"] for one in await det.json("workspace", "list")}
    assert spaces == {"Uncategorized": None, "sight": LINKED, "noise": LINKED}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--agent-uid", "1"), "--agent-user, --agent-gid, --agent-group: missing"),
        ((), "give all of --agent-uid"),
        ((*ACCOUNT, "--remove"), "excludes a new one"),
        (("--agent-uid", "-1", *ACCOUNT[2:]), "agentUserGroup.agentUid: -1 must be a number from 0 to 4294967294"),
        ((*ACCOUNT[:3], "a:0:0", *ACCOUNT[4:]), "agentUserGroup.agentUser: 'a:0:0' must be the name"),
        ((*ACCOUNT[:7], "x\ny"), "agentUserGroup.agentGroup: 'x"),
    ],
)
async def test_what_is_no_account_is_refused(det: Shell, words: tuple[str, ...], said: str) -> None:
    assert said in await det("user", "link-with-agent-user", "ada", *words, code=1)


async def test_only_administrators_choose_accounts(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        own, token = {"agentUserGroup": LINKED}, await world.login("ada")
        for method, path, body in (
            ("PATCH", f"/api/v1/users/{world.owner_id}", own),
            ("POST", "/api/v1/workspaces", {"name": "mine", **own}),
        ):
            said = await world.error(method, path, body, status=403, token=token)
            assert "choose the account of the machines that tasks run as" in said


async def test_a_project_is_edited_described_and_moved(det: Shell) -> None:
    world = det.world
    for name in ("lab", "attic"):
        await det("workspace", "create", name)
    await det("project", "create", "lab", "digits")
    (edited,) = await det.json(
        "project", "edit", "lab", "digits", "--new_name", "numbers", "--description", "ten", "--key", "num"
    )
    assert (edited["name"], edited["description"], edited["key"]) == ("numbers", "ten", "NUM")
    note, root = {"name": "plan", "contents": "first\nthen"}, await world.login("root")
    await world.post(f"/api/v1/projects/{edited['id']}/notes", note, token=root)
    id_ = (await world.create(a_config(workspace="lab", project="numbers"), activate=False))["id"]
    text = await det("project", "describe", "lab", "numbers", "--all")
    assert "plan:" in text and "  first\n  then\n" in text and "an experiment" in text
    (listed,) = await det.json("project", "list-experiments", "lab", "numbers", "--all")
    assert listed["id"] == id_
    assert (await det.json("workspace", "describe", "lab"))[0]["name"] == "lab"
    said = await det("project", "move", "lab", "numbers", "attic")
    assert "Moved project 'numbers' to workspace 'attic'" in said
    assert [one["name"] for one in await det.json("project", "list", "attic")] == ["numbers"]
    assert "project 'numbers' not found" in await det("project", "describe", "lab", "numbers", code=1)


async def test_places_are_archived_and_deleted(det: Shell) -> None:
    world = det.world
    await det("workspace", "create", "lab")
    await det("project", "create", "lab", "digits")
    id_ = (await world.create(a_config(workspace="lab", project="digits"), activate=False))["id"]
    assert "Archived project 'digits' of workspace 'lab'" in await det("project", "archive", "lab", "digits")
    refused = await det("project", "edit", "lab", "digits", "--description", "x", code=1)
    assert "is archived; unarchive it first (det project unarchive lab digits)" in refused
    await det("project", "unarchive", "lab", "digits")
    assert "Archived workspace 'lab'" in await det("workspace", "archive", "lab")
    await det("workspace", "unarchive", "lab")
    refused = await det("workspace", "delete", "lab", "--yes", code=1)
    assert f"end them first (det experiment kill {id_})" in refused
    await det("experiment", "kill", str(id_))
    async with contents_at_work(world.engine, world.context.store):
        assert "Deleted project 'digits' of workspace 'lab'" in await det("project", "delete", "lab", "digits", "--yes")
        await det("project", "create", "lab", "other")
        assert "Deleted workspace 'lab'" in await det("workspace", "delete", "lab", "--yes")
    assert [one["name"] for one in await det.json("workspace", "list")] == ["Uncategorized"]
    refused = await det("workspace", "archive", "Uncategorized", code=1)
    assert "workspace 'Uncategorized' always exists" in refused
