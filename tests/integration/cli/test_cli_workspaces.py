"""`det workspace`, `det project` and `det resource-pool bindings` against the real API."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from resolute_master.pools.policies import pool_policies
from support.api import PASSWORD, World, an_api, master_config

POOLS: dict[str, Any] = {"resource_pools": [{"pool_name": "default"}, {"pool_name": "vision"}]}


class Shell:
    """Runs commands as the administrator, each in a thread, for the master is in this process."""

    def __init__(self, world: World, home: Path) -> None:
        self._environ = {
            "DET_MASTER": str(world.server.make_url("/")).rstrip("/"),
            "DET_USER": "root",
            "DET_PASS": PASSWORD,
            "DET_DEBUG_CONFIG_PATH": str(home / "config"),
            "HOME": str(home),
        }

    async def __call__(self, *words: str, code: int = 0) -> str:
        """What it printed, or for another code what it complained."""
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=self._environ, render=Renderer(out, err), stdin=io.StringIO())
        ended = await asyncio.to_thread(main, words, invocation)
        assert ended == code, err.getvalue()
        return out.getvalue() if code == 0 else err.getvalue()

    async def json(self, *words: str) -> Any:
        return json.loads(await self(*words, "--json"))


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
