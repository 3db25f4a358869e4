"""Killed with -9 at any moment of a save or a removal, on each store: nothing half visible, nothing lost, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from resolute.storage import CheckpointStorage, DirectoryStorage, Manifest, Verify, storage_from_config, verify
from resolute.storage.directory import IN_USE
from resolute.storage.objects import ObjectStorage
from support.effort import repeated
from support.object_stores import STORES, ObjectStore, a_place

KILLS = repeated(push=20, night=40)
"""On each of five stores."""


@pytest.fixture(scope="module")
def stores() -> Iterator[Callable[[str], ObjectStore]]:
    with STORES.session() as started:
        yield started


def place_of(kind: str, directory: Path, stores: Callable[[str], ObjectStore]) -> ObjectStore:
    if kind == "directory":
        return ObjectStore(config={"type": "directory", "container_path": str(directory / "storage")})
    if kind == "shared_fs":
        return ObjectStore(config={"type": "shared_fs", "host_path": str(directory / "storage"), "storage_path": "x"})
    return a_place(stores(kind), "killed")


@pytest.mark.parametrize(
    "kind", ["directory", "shared_fs", "s3", "gcs", pytest.param("azure", marks=pytest.mark.needs("azurite"))]
)
def test_writers_that_are_killed_leave_whole_checkpoints_and_nothing_else(
    kind: str, tmp_path: Path, stores: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(kind, tmp_path, stores)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for name, value in {**place.environ, "TMPDIR": str(scratch)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", None)
    program = Path(__file__).resolve().parents[2] / "support" / "killed_writer.py"
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(dict(place.config)), str(KILLS), "20260101"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.split()
    removed = {word[1:] for word in said if word.startswith("-")}
    committed = {word for word in said if not word.startswith("-")}

    storage = storage_from_config(place.config, shared_fs_mount=None)
    there = set(storage.list())
    third = {uuid for uuid in committed if int(uuid[-4:]) % 3 == 2}  # whose removal may have begun
    assert committed - third <= there, "a checkpoint that was committed is gone"
    assert not removed & there, "a checkpoint that was removed is there"
    for uuid in sorted(there):
        with storage.restore(uuid) as path:
            verify(Manifest.from_bytes(uuid, storage.manifest(uuid)), path, Verify.FULL)

    swept = storage.sweep(datetime.now(UTC) + timedelta(days=1))
    assert set(storage.list()) == there and not set(swept) & there
    assert uuids_of(storage) == there
    assert len(committed) >= KILLS / 2 and swept, "the kills were at other moments than they should be"
    left = [path for path in scratch.rglob("*") if path.is_dir() and path.parent.parent == scratch]
    assert len(left) <= 1, "the directories of killed writers are left"


def uuids_of(storage: CheckpointStorage) -> set[str]:
    """Ids of everything in the storage, except the marks of checkpoints that the master may not have."""
    if isinstance(storage, DirectoryStorage):
        return {name for name in os.listdir(storage.root) if name != IN_USE and not name.endswith(".unreported")}
    assert isinstance(storage, ObjectStorage)
    bucket: Any = storage._bucket
    if hasattr(bucket, "_transfers"):
        uploads = bucket._client.list_multipart_uploads(Bucket=bucket._bucket, Prefix=storage._above)
        assert uploads.get("Uploads", []) == []
    names = {each.key.removeprefix(storage._above) for each in storage._listed(storage._above)}
    assert not {name for name in names if name.startswith(".resolute/unfinished/")}
    return {name.partition("/")[0] for name in names if not name.startswith(".resolute/")}
