"""No experiment names a path, device or capability of a machine that reaches its cluster's state or its system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.api import World, a_config, an_api


def _mount(path: str) -> dict[str, Any]:
    return {"bind_mounts": [{"host_path": path, "container_path": "/data"}]}


async def _refused(world: World, change: dict[str, Any]) -> str:
    return await world.error("POST", "/api/v1/experiments", {"config": json.dumps(a_config(**change))}, status=400)


def _refusals(state: Path) -> list[tuple[dict[str, Any], str]]:
    inside = str(state / "resolute.db")
    return [
        (_mount(str(state)), "bind_mounts[0].host_path"),
        (_mount(f"{state}/../{state.name}/pools"), "bind_mounts[0].host_path"),
        (_mount("/"), "bind_mounts[0].host_path"),
        (_mount("/var/run/docker.sock"), "security.host_paths.allowed"),
        (_mount("/proc"), "security.host_paths.allowed"),
        ({"checkpoint_storage": {"type": "shared_fs", "host_path": str(state.parent)}}, "checkpoint_storage.host_path"),
        ({"checkpoint_storage": {"type": "shared_fs", "host_path": "relative"}}, "checkpoint_storage.host_path"),
        (
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/data", "storage_path": "/data2/../database"}},
            "storage_path",
        ),
        ({"checkpoint_storage": {"type": "directory", "container_path": inside}}, "checkpoint_storage.container_path"),
        (
            {"tensorboard_storage": {"type": "shared_fs", "host_path": inside}},
            "tensorboard_storage",
        ),
        ({"resources": {"devices": ["/dev/sda:/dev/sda"]}}, "security.host_paths.devices"),
        ({"environment": {"add_capabilities": ["CAP_SYS_ADMIN"]}}, "security.host_paths.capabilities"),
    ]


@pytest.mark.parametrize("index", range(len(_refusals(Path("/x/state")))))
async def test_what_reaches_the_cluster_or_the_system_is_refused_by_name(tmp_path: Path, index: int) -> None:
    state = tmp_path / "host" / "state"
    change, named = _refusals(state)[index]
    async with an_api(tmp_path, config={"cluster_state_dir": str(state)}) as world:
        await world.agent()
        assert named in await _refused(world, change)
        assert (await world.get("/api/v1/experiments"))["pagination"]["total"] == 0


async def test_what_the_operator_allows_is_accepted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    storage = {"type": "shared_fs", "host_path": str(state / "checkpoints")}
    allowed = {"allowed": ["/data"], "devices": ["/dev/fuse"], "capabilities": ["SYS_ADMIN"]}
    config = {"cluster_state_dir": str(state), "checkpoint_storage": storage, "security": {"host_paths": allowed}}
    async with an_api(tmp_path, config=config) as world:
        await world.agent()
        wanted = _mount("/data/sets") | {
            "resources": {"devices": ["/dev/fuse:/dev/fuse"]},
            "environment": {"add_capabilities": ["sys_admin"]},
        }
        assert (await world.create(a_config(**wanted)))["config"]["checkpoint_storage"]["host_path"] == storage[
            "host_path"
        ]
        assert "security.host_paths.allowed" in await _refused(world, _mount("/scratch"))


async def test_a_link_created_on_the_machine_of_the_master_leads_nowhere(tmp_path: Path) -> None:
    state, link = tmp_path / "state", tmp_path / "data"
    state.mkdir()
    link.symlink_to(state)
    async with an_api(tmp_path, config={"cluster_state_dir": str(state)}) as world:
        await world.agent()
        assert "the state of the master" in await _refused(world, _mount(str(link)))
