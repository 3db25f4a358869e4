"""What every checkpoint storage promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from resolute.errors import AlreadyExists, InvalidInput, NotFound
from resolute.storage import (
    CheckpointStorage,
    DirectoryStorage,
    FileEntry,
    FileKind,
    Manifest,
    MemoryStorage,
    storage_from_config,
)
from resolute.storage.manifest import describe_file
from resolute.storage.objects import ObjectStorage
from support.object_stores import STORES, ObjectStore, a_place

MANIFEST = b'{"a": "manifest"}'
LOCAL: dict[str, Callable[[Path], CheckpointStorage]] = {
    "directory": lambda path: storage_from_config(
        {"type": "directory", "container_path": str(path / "checkpoints")}, shared_fs_mount=None
    ),
    "shared_fs": lambda path: storage_from_config(
        {"type": "shared_fs", "host_path": str(path), "storage_path": "deep/er"}, shared_fs_mount=None
    ),
    "memory": MemoryStorage,
}
NAMES = [
    *LOCAL,
    "s3",
    "gcs",
    pytest.param("azure", marks=pytest.mark.needs("azurite")),
]
_number = count()


@pytest.fixture(scope="session")
def stores() -> Iterator[Callable[[str], ObjectStore]]:
    """Each store is started when it is first wanted."""
    with STORES.session() as started:
        yield started


@pytest.fixture(params=NAMES)
def storage(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    stores: Callable[[str], ObjectStore],
    monkeypatch: pytest.MonkeyPatch,
) -> CheckpointStorage:
    kind = str(request.param)
    if kind in LOCAL:
        return LOCAL[kind](tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    place = a_place(stores(kind), f"place-{next(_number)}")
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    return storage_from_config(place.config, shared_fs_mount=None)


def put(storage: CheckpointStorage, uuid: str, part: str, files: dict[str, str]) -> None:
    staged = storage.stage(uuid, part)
    for name, text in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(text)
    storage.put(uuid, part, files)


def restored(storage: CheckpointStorage, uuid: str) -> dict[str, str]:
    with storage.restore(uuid) as path:
        return {
            found.relative_to(path).as_posix(): found.read_text()
            for found in path.rglob("*")
            if found.is_file() and found.name != "manifest.json"
        }


def test_can_be_written(storage: CheckpointStorage) -> None:
    storage.check_writable()
    assert storage.list() == ()


def test_parts_of_several_processes_become_one_checkpoint(storage: CheckpointStorage) -> None:
    put(storage, "c1", "rank-0", {"model.pt": "weights", "deep/er/file": "x"})
    put(storage, "c1", "rank-1", {"deep/other": "y"})
    storage.commit("c1", MANIFEST)
    assert restored(storage, "c1") == {"model.pt": "weights", "deep/er/file": "x", "deep/other": "y"}
    assert storage.manifest("c1") == MANIFEST and storage.list() == ("c1",)


def test_only_the_named_files_of_a_part_are_kept(storage: CheckpointStorage) -> None:
    staged = storage.stage("c1", "rank-0")
    for name in ("kept", "dropped"):
        (staged / name).write_text(name)
    storage.put("c1", "rank-0", ["kept"])
    storage.commit("c1", MANIFEST)
    assert restored(storage, "c1") == {"kept": "kept"}


def test_nothing_shows_before_the_commit(storage: CheckpointStorage) -> None:
    put(storage, "c1", "rank-0", {"a": "b"})
    assert storage.list() == ()
    with pytest.raises(NotFound):
        storage.manifest("c1")
    with pytest.raises(NotFound), storage.restore("c1"):
        pass


def test_aborted_checkpoints_leave_nothing_and_may_be_written_again(storage: CheckpointStorage) -> None:
    storage.abort("c1")
    put(storage, "c1", "rank-0", {"old": "x"})
    storage.abort("c1")
    put(storage, "c1", "rank-0", {"new": "y"})
    storage.commit("c1", MANIFEST)
    assert restored(storage, "c1") == {"new": "y"}


def test_a_part_is_staged_once_and_a_checkpoint_committed_once(storage: CheckpointStorage) -> None:
    storage.stage("c1", "rank-0")
    with pytest.raises(AlreadyExists):
        storage.stage("c1", "rank-0")
    storage.put("c1", "rank-0", [])
    storage.commit("c1", MANIFEST)
    with pytest.raises(AlreadyExists):
        storage.commit("c1", b"another")
    assert storage.manifest("c1") == MANIFEST


def test_deleting_is_idempotent(storage: CheckpointStorage) -> None:
    put(storage, "c1", "rank-0", {"a": "b"})
    storage.commit("c1", MANIFEST)
    storage.delete("c1")
    storage.delete("c1")
    assert storage.list() == ()
    with pytest.raises(NotFound):
        storage.manifest("c1")


def test_the_sweep_removes_only_what_is_unfinished_and_old(storage: CheckpointStorage) -> None:
    put(storage, "done", "rank-0", {"a": "b"})
    storage.commit("done", MANIFEST)
    put(storage, "unfinished", "rank-0", {"a": "b"})
    now = datetime.now(UTC)
    assert storage.sweep(now - timedelta(hours=1)) == ()
    assert storage.sweep(now + timedelta(hours=1)) == ("unfinished",)
    assert storage.list() == ("done",) and restored(storage, "done") == {"a": "b"}


def test_what_was_published_is_unreported_until_somebody_says_so(storage: CheckpointStorage) -> None:
    assert storage.unreported() == ()
    for uuid in ("told", "deleted", "new"):
        put(storage, uuid, "rank-0", {"a": "b"})
        assert uuid not in storage.unreported()
        storage.commit(uuid, MANIFEST)
    assert storage.unreported() == ("deleted", "new", "told")
    storage.reported("told")
    storage.reported("told")
    storage.reported("unknown")
    storage.delete("deleted")
    assert storage.unreported() == ("new",) and storage.list() == ("new", "told")
    assert restored(storage, "new") == {"a": "b"}


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../b"])
def test_files_stay_inside_their_checkpoint(storage: CheckpointStorage, name: str) -> None:
    storage.stage("c1", "rank-0")
    with pytest.raises(InvalidInput):
        storage.put("c1", "rank-0", [name])


# ----------------------------------------------------------------------------------------------- streams and removal


def a_checkpoint(storage: CheckpointStorage, uuid: str, files: dict[str, str]) -> None:
    """With a manifest of ours."""
    staged = storage.stage(uuid, "rank-0")
    entries: dict[str, FileEntry] = {}
    for name, text in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_text(text)
        entries[name] = describe_file(staged / name)
    storage.put(uuid, "rank-0", files)
    manifest = Manifest(
        uuid=uuid,
        steps_completed=1,
        trial_id=1,
        trial_run_id=1,
        world_size=1,
        created="2026-01-01T00:00:00Z",
        parent=None,
        files=entries,
    )
    storage.commit(uuid, manifest.to_bytes())


def read(storage: CheckpointStorage, uuid: str) -> dict[str, str | None]:
    """By stream; None for a directory."""
    found: dict[str, str | None] = {}
    with storage.open(uuid) as stored:
        stored.check()
        for file in stored.files():
            if file.kind is FileKind.DIRECTORY:
                found[file.path] = None
                continue
            stream, size = stored.open(file)
            with stream:
                found[file.path] = stream.read().decode()
            assert size == file.size == len(found[file.path] or "")
    return found


FILES = {"model/weights.pt": "w" * 100, "model/optimizer.pt": "o" * 50, "a file, öäü.txt": "x", "empty": ""}


def test_files_are_read_as_streams(storage: CheckpointStorage) -> None:
    a_checkpoint(storage, "c10", {"another": "y"})
    with pytest.raises(NotFound):
        storage.open("c1")
    a_checkpoint(storage, "c1", FILES)
    found = read(storage, "c1")
    assert found.pop("manifest.json") == storage.manifest("c1").decode()
    assert found == {**FILES, "model": None}
    assert list(read(storage, "c1")).index("model") < list(read(storage, "c1")).index("model/weights.pt")


def test_large_files_come_back_as_they_were(storage: CheckpointStorage) -> None:
    content = bytes(range(256)) * (40 * 4096 + 1)
    staged = storage.stage("c1", "rank-0")
    for name in ("one", "two"):
        (staged / name).write_bytes(content)
    storage.put("c1", "rank-0", ["one", "two"])
    storage.commit("c1", MANIFEST)
    with storage.restore("c1") as path:
        assert (path / "one").read_bytes() == content == (path / "two").read_bytes()
    with storage.open("c1") as stored:
        for file in stored.files():
            if file.path == "two":
                stream, size = stored.open(file)
                with stream:
                    assert size == len(content) and stream.read() == content


def test_a_restore_fetches_what_is_wanted(storage: CheckpointStorage) -> None:
    a_checkpoint(storage, "c1", FILES)
    with storage.restore("c1", wanted=lambda name: name.startswith("model")) as path:
        assert (path / "model" / "weights.pt").read_text() == FILES["model/weights.pt"]


def test_files_that_match_are_removed_and_the_manifest_says_so(storage: CheckpointStorage) -> None:
    a_checkpoint(storage, "c1", FILES)
    left = storage.remove_files("c1", lambda name: name.endswith(".pt") and "weights" in name)
    data = storage.manifest("c1")
    kept = {name: text for name, text in FILES.items() if name != "model/weights.pt"}
    assert left == {
        **{name: len(text.encode()) for name, text in kept.items()},
        "model/": 0,
        "manifest.json": len(data),
    }
    assert set(Manifest.from_bytes("c1", data).files) == set(kept)
    assert restored(storage, "c1") == kept
    assert storage.remove_files("c1", lambda name: False) == left
    assert storage.remove_files("c1", lambda name: True) == {}
    assert storage.list() == () and storage.remove_files("c1", lambda name: True) == {}


def test_what_lies_below_a_path_is_removed(storage: CheckpointStorage) -> None:
    a_checkpoint(storage, "c1", {"a": "b"})
    storage.remove_below("cluster/tensorboard/experiment/1")
    a_checkpoint(storage, "other", {"1/x": "y", "11/x": "y"})
    storage.remove_below("other/1")
    assert {name for name, text in read(storage, "other").items() if text == "y"} == {"11/x"}
    assert restored(storage, "c1") == {"a": "b"}


def test_checkpoints_without_a_manifest_are_found_by_who_knows_them_and_never_swept(storage: CheckpointStorage) -> None:
    """As the released harness saves them: nobody but the master knows whether they are whole."""
    a_checkpoint(storage, "c1", {"weights": "w", "sub/metadata.json": "{}"})
    assert storage.remove_files("c1", lambda name: False)
    without_its_manifest(storage, "c1")
    assert storage.list() == ()
    assert storage.sweep(datetime.now(UTC) + timedelta(days=1)) == ()
    assert read(storage, "c1") == {"weights": "w", "sub": None, "sub/metadata.json": "{}"}
    with pytest.raises(NotFound), storage.restore("c1"):
        pass
    with storage.restore("c1", without_manifest=True) as path:
        assert (path / "weights").read_text() == "w"
    assert storage.remove_files("c1", lambda name: name == "weights") == {"sub/": 0, "sub/metadata.json": 2}
    storage.delete("c1")
    with pytest.raises(NotFound):
        storage.open("c1")


def without_its_manifest(storage: CheckpointStorage, uuid: str) -> None:
    if isinstance(storage, DirectoryStorage):
        (storage.root / uuid / "manifest.json").unlink()
        (storage.root / f"{uuid}.unreported").unlink()
    else:
        assert isinstance(storage, ObjectStorage)
        storage.reported(uuid)
        storage._bucket.delete([storage._key(uuid, "manifest.json")])


def test_the_last_step_of_a_commit_may_be_missing(storage: CheckpointStorage) -> None:
    """The mark of a writer is still there beside the manifest: the sweep removes the mark and not the checkpoint."""
    if isinstance(storage, DirectoryStorage):
        return  # its last step is the rename that publishes
    assert isinstance(storage, ObjectStorage)
    a_checkpoint(storage, "c1", {"a": "b"})
    storage._mark("c1", "rank-0")
    assert storage.sweep(datetime.now(UTC) + timedelta(hours=1)) == ()
    assert restored(storage, "c1") == {"a": "b"} and not list(storage._listed(storage._unfinished("c1")))


def test_a_deletion_that_was_killed_is_finished_by_the_sweep(tmp_path: Path) -> None:
    """It has unpublished the checkpoint and removed a part of it; the word that it was never reported is still there."""
    storage = DirectoryStorage(tmp_path)
    put(storage, "c1", "rank-0", {"a": "b"})
    storage.commit("c1", MANIFEST)
    (tmp_path / "c1").rename(tmp_path / "c1.partial")
    (tmp_path / "c1.partial" / "manifest.json").unlink()
    assert storage.sweep(datetime.now(UTC) + timedelta(hours=1)) == ("c1",)
    assert storage.unreported() == () and list(tmp_path.iterdir()) == []
