"""A checkpoint that is fetched through the master goes on where a connection broke or its client was killed."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.api import World, an_api
from support.checkpoints import UUIDS
from support.cli_real import Shell
from support.cut_front import CutFront, cut_front

FILES = {"code/train.py": b"x = 1\n", "state": os.urandom(3_000_000), "weights": os.urandom(500_000)}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with an_api(tmp_path / "storage") as made:
        _, allocation, task = await made.started(await made.agent())
        for name, content in FILES.items():
            path = tmp_path / "storage" / UUIDS[1] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        report = {
            "uuid": UUIDS[1],
            "allocationId": allocation.id,
            "resources": {"code/": "0", **{name: str(len(content)) for name, content in FILES.items()}},
            "metadata": {"steps_completed": 1},
        }
        await made.post("/api/v1/checkpoints", report, task=task)
        yield made


@pytest.fixture
async def front(world: World) -> AsyncIterator[CutFront]:
    async with cut_front(world.server.port or 0) as made:
        yield made


@pytest.fixture
def det(world: World, front: CutFront, tmp_path: Path) -> Shell:
    return Shell(world, tmp_path, master=front.address)


def command(target: Path) -> tuple[str, ...]:
    return ("checkpoint", "download", UUIDS[1], "--mode", "master", "-o", str(target))


def found_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def kept(directory: Path) -> list[int]:
    """Sizes of what an unfinished download has left."""
    return [path.stat().st_size for path in directory.glob(".copy.*")]


def first_bytes(front: CutFront) -> list[int]:
    """First byte that each download requested."""
    ranges = [re.search(r"\r\nrange: bytes=(\d+)-\r\n", head, re.IGNORECASE) for head in front.seen]
    return [0 if found is None else int(found[1]) for found in ranges]


async def test_a_broken_connection_is_gone_on_with_in_the_same_call(
    det: Shell, front: CutFront, tmp_path: Path
) -> None:
    front.cut_after.extend([400_000, 1_000_000, 0])
    await det(*command(tmp_path / "copy"))
    assert found_in(tmp_path / "copy") == FILES
    first, second, third, fourth = first_bytes(front)
    assert first == 0 and 390_000 < second <= 400_000 and second < third <= 1_400_000 and fourth == third
    assert kept(tmp_path) == []


async def test_what_a_killed_client_had_is_kept(det: Shell, world: World, front: CutFront, tmp_path: Path) -> None:
    front.cut_after.append(1_000_000)
    front.hold = True
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "resolute_cli.main", *command(tmp_path / "copy"),
        env={**os.environ, **det.environ}, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(60):
        while sum(kept(tmp_path)) < 900_000:  # files set no event
            assert client.returncode is None
            await asyncio.sleep(0.02)
    client.kill()
    await client.wait()
    (size,) = kept(tmp_path)
    await det(*command(tmp_path / "copy"))
    assert found_in(tmp_path / "copy") == FILES
    assert first_bytes(front) == [0, size] and kept(tmp_path) == []


async def test_a_checkpoint_that_changed_meanwhile_is_fetched_anew(det: Shell, front: CutFront, tmp_path: Path) -> None:
    front.cut_after.append(100_000)
    det.environ["DET_RETRY_CONFIG"] = '{"total": 0}'
    assert "repeat the command to continue" in await det(*command(tmp_path / "copy"), code=1)
    other = b"y" * len(FILES["state"])
    state = tmp_path / "storage" / UUIDS[1] / "state"
    state.write_bytes(other)
    os.utime(state, (1, 1))
    await det(*command(tmp_path / "copy"))
    assert found_in(tmp_path / "copy") == {**FILES, "state": other}


async def test_parts_of_a_tar_are_those_of_the_whole(world: World) -> None:
    path = f"/checkpoints/{UUIDS[1]}"
    accept = {"Accept": "application/x-tar"}
    whole = await world.send("GET", path, headers=accept)
    data = await whole.read()
    assert whole.headers["Content-Length"] == str(len(data)) and whole.headers["Accept-Ranges"] == "bytes"
    etag = whole.headers["ETag"]
    for first, last in ((0, 0), (511, 513), (600, 1_700_000), (len(data) - 3, len(data) - 1)):
        part = await world.send("GET", path, headers={**accept, "Range": f"bytes={first}-{last}", "If-Range": etag})
        assert part.status == 206 and part.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
        assert await part.read() == data[first : last + 1]
    behind = await world.send("GET", path, headers={**accept, "Range": f"bytes={len(data)}-"})
    assert f"has {len(data)} bytes" in await behind.text()
    assert behind.status == 416 and behind.headers["Content-Range"] == f"bytes */{len(data)}"
    other = await world.send("GET", path, headers={**accept, "Range": "bytes=5-", "If-Range": '"other"'})
    assert other.status == 200 and await other.read() == data
    packed = await world.send("GET", path, headers={"Accept": "application/gzip", "Range": "bytes=5-"})
    assert await packed.read() and packed.status == 200 and "Accept-Ranges" not in packed.headers
