"""Files that a task leaves in its checkpoint storage neither show nor remove what lies outside, and stop nothing."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from resolute.beneath import LeadsOut
from resolute.errors import FailedPrecondition
from resolute_master.api.submission.host_paths import rules_of
from resolute_master.engine.checkpoint_storage import StorageAccess
from support.api import World, an_api, master_config
from support.checkpoints import UUIDS, removing, settled, shown, with_checkpoints

SECRET = b"SQLite format 3 and every user's password"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "storage"
    directory.mkdir()
    yield directory
    subprocess.run(["rm", "-rf", directory], check=True)  # pytest's own way fails where directories are deep


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The master's own directory, with what looks like a checkpoint."""
    directory = tmp_path / "state"
    (directory / UUIDS[1] / "inner").mkdir(parents=True)
    for name in ("resolute.db", f"{UUIDS[1]}/resolute.db", f"{UUIDS[1]}/manifest.json", f"{UUIDS[1]}/inner/key"):
        (directory / name).write_bytes(SECRET)
    return directory


@pytest.fixture
async def world(storage: Path, state: Path) -> AsyncIterator[World]:
    async with an_api(storage, config={"cluster_state_dir": str(state)}) as made:
        yield made


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def replace_by_link(path: Path, target: Path) -> None:
    """As a task does that ran once: what it saved goes away, and a link takes the place."""
    path.rename(path.with_name(f"{path.name}-before"))
    path.symlink_to(target)


async def downloaded(world: World, accept: str) -> tuple[int, bytes]:
    response = await world.send("GET", f"/checkpoints/{UUIDS[1]}", headers={"Accept": accept})
    return response.status, await response.read()


# ----------------------------------------------------------------------------------------------------------- download


@pytest.mark.parametrize("target", ["", UUIDS[1]])
async def test_a_checkpoint_that_is_a_link_is_not_downloaded(
    world: World, storage: Path, state: Path, target: str
) -> None:
    await with_checkpoints(world, storage, 1)
    replace_by_link(storage / UUIDS[1], state / target)
    status, body = await downloaded(world, "application/x-tar")
    assert status == 400 and b"is a symbolic link" in body and SECRET not in body


async def test_links_and_what_is_no_file_are_left_out_of_a_download(world: World, storage: Path, state: Path) -> None:
    await with_checkpoints(world, storage, 1)
    inside = storage / UUIDS[1]
    (inside / "directory").symlink_to(state)
    (inside / "model" / "database").symlink_to(state / "resolute.db")
    os.mkfifo(inside / "fifo")
    os.utime(inside / "state.json", (0, 0))
    (inside / os.fsdecode(b"\xff")).write_bytes(b"bytes")
    names = {"manifest.json", "model", "model/optimizer.pt", "model/weights.pt", "state.json"}
    async with asyncio.timeout(60):
        _, body = await downloaded(world, "application/x-tar")
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            assert set(archive.getnames()) == names | {os.fsdecode(b"\xff")}
        _, body = await downloaded(world, "application/zip")
        with zipfile.ZipFile(io.BytesIO(body)) as zipped:
            assert {name.rstrip("/") for name in zipped.namelist()} == names | {"\\xff"}
            assert zipped.read("model/weights.pt") == b"w" * 100


@pytest.mark.needs("root")
async def test_a_second_name_of_the_master_s_database_is_not_downloaded(
    world: World, storage: Path, state: Path
) -> None:
    await with_checkpoints(world, storage, 1)
    for path in (storage / UUIDS[1], *(storage / UUIDS[1]).rglob("*")):
        os.chown(path, 12345, 12345)
    assert (await downloaded(world, "application/x-tar"))[0] == 200
    os.link(state / "resolute.db", storage / UUIDS[1] / "mine")
    status, body = await downloaded(world, "application/x-tar")
    assert status == 400 and b"mine belongs to another user than its directory" in body


async def test_a_link_in_the_storage_path_is_not_followed(world: World, storage: Path, state: Path) -> None:
    place = {"type": "shared_fs", "host_path": str(storage), "storage_path": "a/b"}
    access = StorageAccess(rules=rules_of(world.context.config))
    (storage / "a").mkdir()
    (storage / "a" / "b").symlink_to(state)
    with pytest.raises(LeadsOut, match="is a symbolic link"):
        access.storage(place).list()


@pytest.mark.parametrize("kind", ["shared_fs", "directory"])
def test_the_master_s_own_files_are_no_storage_whatever_leads_to_them(
    tmp_path: Path, storage: Path, state: Path, kind: str
) -> None:
    (tmp_path / "link").symlink_to(state)
    own = master_config(state / "checkpoints", cluster_state_dir=str(state))
    (state / "checkpoints" / "sub").mkdir(parents=True)
    access = StorageAccess(rules=rules_of(own))
    for name in (state, tmp_path / "link", state / UUIDS[1], state / "checkpoints" / ".."):
        with pytest.raises(FailedPrecondition, match="which holds the state of the master"):
            access.storage({"type": kind, "host_path": str(name), "container_path": str(name)}).list()
    for name in (state / "checkpoints", state / "checkpoints" / "sub", storage):
        assert access.storage({"type": kind, "host_path": str(name), "container_path": str(name)}).list() == ()


# ------------------------------------------------------------------------------------------------------------ removal


def the_checkpoint_itself(inside: Path, state: Path) -> None:
    replace_by_link(inside, state / UUIDS[1])


def a_directory_in_it(inside: Path, state: Path) -> None:
    (inside / "model" / "link").symlink_to(state / UUIDS[1])


def a_file_in_it(inside: Path, state: Path) -> None:
    (inside / "manifest.json").unlink()
    (inside / "manifest.json").symlink_to(state / "resolute.db")
    (inside / "manifest.json.new").symlink_to(state / "resolute.db")


@pytest.mark.parametrize("glob", ["**/*", "**", "*/*", "*/link/*", "model/link/inner/key", "*"])
@pytest.mark.parametrize("plant", [the_checkpoint_itself, a_directory_in_it, a_file_in_it])
async def test_a_pattern_removes_nothing_outside(
    world: World, storage: Path, state: Path, plant: Callable[[Path, Path], None], glob: str
) -> None:
    agent, _, _ = await with_checkpoints(world, storage, 1)
    await agent.run_all()
    before = contents(state)
    plant(storage / UUIDS[1], state)
    async with removing(world):
        body = {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": [glob]}
        await world.post("/api/v1/checkpoints/rm", body)
        await settled(world)
    assert contents(state) == before


@pytest.mark.parametrize("plant", [the_checkpoint_itself, a_directory_in_it, a_file_in_it])
async def test_deletion_removes_nothing_outside(
    world: World, storage: Path, state: Path, plant: Callable[[Path, Path], None]
) -> None:
    agent, _, _ = await with_checkpoints(world, storage, 1)
    await agent.run_all()
    before = contents(state)
    plant(storage / UUIDS[1], state)
    async with removing(world):
        await world.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [UUIDS[1]]})
        await settled(world)
    assert contents(state) == before
    assert (await shown(world, 1))["state"] == "STATE_DELETED"
    assert UUIDS[1] not in os.listdir(storage)


async def test_tensorboard_files_are_not_removed_through_a_link(world: World, storage: Path, state: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, storage, 1)
    await agent.run_all()
    (state / "tensorboard" / "experiment" / str(trial.experiment_id)).mkdir(parents=True)
    (state / "tensorboard" / "experiment" / str(trial.experiment_id) / "x").write_bytes(b"x")
    before = contents(state)
    (storage / world.context.cluster_id).symlink_to(state)
    async with removing(world):
        await world.call("DELETE", f"/api/v1/experiments/{trial.experiment_id}/tensorboard-files")
        await settled(world)
    assert contents(state) == before


async def test_sizes_are_those_of_links_themselves_and_never_of_what_they_name(
    world: World, storage: Path, state: Path
) -> None:
    agent, _, _ = await with_checkpoints(world, storage, 1)
    await agent.run_all()
    (storage / UUIDS[1] / "link").symlink_to(state)
    (storage / UUIDS[1] / "database").symlink_to(state / "resolute.db")
    async with removing(world):
        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": []})
        await settled(world)
    left = (await shown(world, 1))["resources"]
    assert isinstance(left, dict)
    assert left["link"] == left["database"] == "0" and not [name for name in left if name.startswith("link/")]


# --------------------------------------------------------------------------------------- what may not end the master


async def test_a_pattern_that_the_file_system_s_own_matching_refuses_is_a_pattern_like_others(
    world: World, storage: Path
) -> None:
    agent, _, _ = await with_checkpoints(world, storage, 1)
    await agent.run_all()
    async with removing(world):
        for glob in ("a**b", "**.json"):
            await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": [glob]})
            await settled(world)
    assert not (storage / UUIDS[1] / "state.json").exists()
    for glob, words in (("[z-a]", "brackets"), ("a\0", "inside the checkpoint"), ("*a" * 600, "more than 1000")):
        body = {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": [glob]}
        assert words in await world.error("POST", "/api/v1/checkpoints/rm", body, status=400)


def deep_directories(inside: Path) -> None:
    at = os.open(inside, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def a_manifest_of_brackets(inside: Path) -> None:
    (inside / "manifest.json").write_bytes(b"[" * 1_000_000)


def a_manifest_without_end(inside: Path) -> None:
    os.truncate(inside / "manifest.json", 1 << 40)


def a_fifo_as_manifest(inside: Path) -> None:
    (inside / "manifest.json").unlink()
    os.mkfifo(inside / "manifest.json")


def a_name_that_is_not_utf_8(inside: Path) -> None:
    (inside / os.fsdecode(b"\xff\xfe")).write_bytes(b"")


@pytest.mark.parametrize(
    "plant",
    [
        deep_directories,
        a_manifest_of_brackets,
        a_manifest_without_end,
        a_fifo_as_manifest,
        a_name_that_is_not_utf_8,
    ],
)
async def test_what_a_task_leaves_behind_does_not_end_removals(
    world: World, storage: Path, plant: Callable[[Path], None]
) -> None:
    """The one after it is still carried out."""
    agent, _, _ = await with_checkpoints(world, storage, 2)
    await agent.run_all()
    plant(storage / UUIDS[1])
    async with removing(world), asyncio.timeout(60):
        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": ["state.json"]})
        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[2]], "checkpointGlobs": ["state.json"]})
        while (storage / UUIDS[2] / "state.json").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while any(UUIDS[2] in effect.key for effect in world.engine.outstanding()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
