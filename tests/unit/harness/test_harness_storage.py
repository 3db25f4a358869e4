"""Manifests, and from configuration to storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute.storage import (
    CorruptCheckpoint,
    DirectoryStorage,
    FileEntry,
    Manifest,
    StorageUnavailable,
    Verify,
    storage_from_config,
    storage_from_url,
    verify,
)
from resolute.storage.manifest import describe_file, resources

MOUNT = Path("/determined_shared_fs")


def manifest_of(directory: Path, parent: str | None = None) -> Manifest:
    files = {path.name: describe_file(path) for path in directory.iterdir()}
    return Manifest(
        uuid="c1",
        steps_completed=4,
        trial_id=5,
        trial_run_id=2,
        world_size=1,
        created="2026-01-01T00:00:00.000000Z",
        parent=parent,
        files=files,
    )


def test_a_manifest_survives_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello")
    manifest = manifest_of(tmp_path, parent="c0")
    assert Manifest.from_bytes("c1", manifest.to_bytes()) == manifest
    assert manifest.files["a"] == FileEntry(
        size=5, sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    )


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"version": 1}', b'{"version": 2, "uuid": "c1"}'])
def test_unreadable_manifests_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="c1"):
        Manifest.from_bytes("c1", data)


def test_a_manifest_of_another_checkpoint_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptCheckpoint, match="belongs to checkpoint c1"):
        Manifest.from_bytes("c2", manifest_of(tmp_path).to_bytes())


def test_a_manifest_may_not_name_files_outside(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello")
    data = manifest_of(tmp_path).to_bytes().replace(b'"a"', b'"../a"')
    with pytest.raises(CorruptCheckpoint, match="does not stay inside"):
        Manifest.from_bytes("c1", data)


def test_verification_finds_missing_short_and_changed_files(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_text("hello")
    manifest = manifest_of(tmp_path, parent="c0")
    verify(manifest, tmp_path, Verify.FULL)
    file.write_text("hellO")
    verify(manifest, tmp_path, Verify.SIZES)
    with pytest.raises(CorruptCheckpoint, match="content of weights") as changed:
        verify(manifest, tmp_path, Verify.FULL)
    assert changed.value.parent == "c0"
    file.write_text("hell")
    with pytest.raises(CorruptCheckpoint, match="weights has 4 bytes, 5 were saved"):
        verify(manifest, tmp_path, Verify.SIZES)
    file.unlink()
    with pytest.raises(CorruptCheckpoint, match="weights is missing"):
        verify(manifest, tmp_path, Verify.SIZES)
    verify(manifest, tmp_path, Verify.OFF)


def test_resources_name_directories_with_size_zero() -> None:
    manifest = Manifest(
        uuid="c1",
        steps_completed=0,
        trial_id=None,
        trial_run_id=None,
        world_size=1,
        created="",
        parent=None,
        files={"code/deep/a.py": FileEntry(size=3, sha256="")},
    )
    assert resources(manifest, b"1234") == {"code/": 0, "code/deep/": 0, "code/deep/a.py": 3, "manifest.json": 4}


@pytest.mark.parametrize(
    ("config", "mount", "root"),
    [
        ({"type": "shared_fs", "host_path": "/data"}, MOUNT, MOUNT),
        ({"type": "shared_fs", "host_path": "/data"}, None, Path("/data")),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/data/a/b"}, MOUNT, MOUNT / "a/b"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "a"}, None, Path("/data/a")),
        ({"type": "directory", "container_path": "/somewhere"}, MOUNT, Path("/somewhere")),
    ],
)
def test_directories_of_configurations(config: dict[str, str], mount: Path | None, root: Path) -> None:
    storage = storage_from_config(config, shared_fs_mount=mount)
    assert isinstance(storage, DirectoryStorage) and storage.root == root


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "checkpoint_storage.type"),
        ({"type": "shared_fs"}, "host_path"),
        ({"type": "directory"}, "container_path"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/other"}, "'/other'"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "../x"}, "storage_path"),
    ],
)
def test_wrong_configurations_are_named(config: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        storage_from_config(config, shared_fs_mount=None)


def test_a_file_of_the_user_s_may_be_called_like_the_manifest(tmp_path: Path) -> None:
    directory = tmp_path / "c1"
    (directory / "empty").mkdir(parents=True)
    for name, content in (("manifest.json", "[]"), ("metadata.json", "{}"), ("weights.pt", "www")):
        (directory / name).write_text(content)
    storage = DirectoryStorage(tmp_path)
    left = {"empty/": 0, "manifest.json": 2, "metadata.json": 2}
    assert storage.remove_files("c1", lambda name: name.endswith(".pt")) == left
    assert storage.remove_files("c1", lambda name: name in ("manifest.json", "empty")) == {"metadata.json": 2}
    assert storage.remove_files("c1", lambda name: True) == {} and not directory.exists()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"type": "shared_fs", "host_path": "/data", "storage_path": None}, "/data"),
        ({"type": "shared_fs", "host_path": "/data/", "storage_path": "sub"}, "/data/sub"),
        ({"type": "shared_fs", "host_path": "/data", "storage_path": "/data/sub"}, "/data/sub"),
        ({"type": "directory", "container_path": "/ckpt"}, "/ckpt"),
    ],
)
def test_where_checkpoints_lie(config: dict[str, Any], expected: str) -> None:
    assert storage_from_config(config, shared_fs_mount=None).place == expected


@pytest.mark.parametrize("path", ["../up", "/data-of-others/x", "a/../../up", "a\0b"])
def test_a_storage_path_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="does not stay inside"):
        storage_from_config({"type": "shared_fs", "host_path": "/data", "storage_path": path}, shared_fs_mount=None)


def test_addresses_of_directories(tmp_path: Path) -> None:
    for address in (str(tmp_path), f"file://{tmp_path}"):
        storage = storage_from_url(address)
        assert isinstance(storage, DirectoryStorage) and storage.root == tmp_path
    with pytest.raises(InvalidInput, match="query"):
        storage_from_url("file:///a?x=1")


def test_an_unwritable_directory_is_named_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable, match="checkpoint_storage") as error:
        DirectoryStorage(tmp_path / "file").check_writable()
    assert str(tmp_path / "file") in str(error.value)


def test_ranks_that_try_the_directory_at_the_same_moment_do_not_disturb_each_other(tmp_path: Path) -> None:
    """In their PID namespaces they have the same process number, as these threads have."""
    ranks = 8
    together = Barrier(ranks)

    def tries(rank: int) -> None:
        storage = DirectoryStorage(tmp_path / "checkpoints")
        together.wait()
        for _ in range(100):
            storage.check_writable()

    with ThreadPoolExecutor(ranks) as threads:
        for tried in [threads.submit(tries, rank) for rank in range(ranks)]:
            tried.result()
    assert list((tmp_path / "checkpoints").iterdir()) == []
