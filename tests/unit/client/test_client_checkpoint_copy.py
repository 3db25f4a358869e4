"""A direct download takes files and directories of a checkpoint, follows no link in it, and goes on where it was broken off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resolute.client.archive import DamagedArchive
from resolute.client.checkpoints import copy, verified
from resolute.storage import CorruptCheckpoint, DirectoryStorage, FileEntry, Manifest, MemoryStorage, StoredFile
from resolute.storage.base import OpenCheckpoint
from resolute.storage.manifest import describe_file

FILES = {"model/weights": b"w" * 100, "model/optimizer": b"o" * 50, "state": b"{}"}
SIZES = {"model/": 0, **{name: len(content) for name, content in FILES.items()}}


def saved(tmp_path: Path) -> MemoryStorage:
    storage = MemoryStorage(tmp_path / "scratch")
    staged = storage.stage("c1", "0")
    entries: dict[str, FileEntry] = {}
    for name, content in FILES.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(content)
        entries[name] = describe_file(staged / name)
    storage.put("c1", "0", FILES)
    manifest = Manifest(
        uuid="c1",
        steps_completed=1,
        trial_id=1,
        trial_run_id=1,
        world_size=1,
        created="",
        parent=None,
        files=entries,
    )
    storage.commit("c1", manifest.to_bytes())
    return storage


def found_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.timeout(20)
def test_links_and_fifos_in_a_stored_checkpoint_are_left_out(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    (stored / "model").mkdir(parents=True)
    (stored / "model" / "weights").write_bytes(b"w")
    (tmp_path / "secret").write_bytes(b"of the person who downloads")
    (stored / "file").symlink_to(tmp_path / "secret")
    (stored / "directory").symlink_to(tmp_path)
    (stored / "zero").symlink_to("/dev/zero")
    os.mkfifo(stored / "model" / "fifo")
    with DirectoryStorage(tmp_path).open("stored") as opened:
        copy(opened, tmp_path / "target", {"model/": 0, "model/weights": 1}, None)
    found = sorted(path.relative_to(tmp_path / "target").as_posix() for path in (tmp_path / "target").rglob("*"))
    assert found == ["model", "model/weights"]


def test_a_copy_that_was_broken_off_fetches_only_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = saved(tmp_path)
    opened: list[str] = []
    heard: list[tuple[int, int]] = []

    def counted(stored: OpenCheckpoint) -> OpenCheckpoint:
        really = stored.open

        def open_one(file: StoredFile) -> object:
            opened.append(file.path)
            if file.path == "state" and opened.count("state") == 1:
                raise OSError("the network is gone")
            return really(file)

        monkeypatch.setattr(stored, "open", open_one)
        return stored

    target = tmp_path / "target"
    with pytest.raises(OSError, match="gone"):
        copy(counted(storage.open("c1")), target, SIZES, None)
    assert not target.exists()
    before = list(opened)
    copy(counted(storage.open("c1")), target, SIZES, lambda done, total: heard.append((done, total)))
    assert opened[len(before) :] == ["state"]
    assert found_in(target) == {**FILES, "manifest.json": storage.manifest("c1")}
    assert heard[-1] == (152, 152) and heard == sorted(heard)


def test_a_copy_that_is_not_what_was_saved_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(DamagedArchive, match="model/weights"):
        copy(saved(tmp_path).open("c1"), tmp_path / "target", {**SIZES, "model/weights": 101}, None)
    assert not (tmp_path / "target").exists()


def test_what_was_verified_is_told(tmp_path: Path) -> None:
    found = verified(saved(tmp_path), "c1", {})
    assert (found.files, found.bytes, found.hashes) == (3, 152, True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (b"W" * 100, "the content of model/weights"),
        (b"", "model/weights has 0 bytes, 100 were saved"),
        (None, "missing"),
    ],
)
def test_the_first_difference_is_named(tmp_path: Path, damage: bytes | None, words: str) -> None:
    storage = saved(tmp_path)
    if damage is None:
        storage._bucket.delete(["c1/model/weights"])
    else:
        storage._bucket.put("c1/model/weights", damage)
    with pytest.raises(CorruptCheckpoint, match=words):
        verified(storage, "c1", {})


def test_without_a_manifest_sizes_are_compared(tmp_path: Path) -> None:
    storage = saved(tmp_path)
    storage._bucket.delete(["c1/manifest.json"])
    assert not verified(storage, "c1", SIZES).hashes
    with pytest.raises(CorruptCheckpoint, match="state has 2 bytes, 3 were saved"):
        verified(storage, "c1", {**SIZES, "state": 3})
