"""What every checkpoint storage promises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resolute.errors import AlreadyExists, InvalidInput, NotFound
from resolute.storage import CheckpointStorage, DirectoryStorage, MemoryStorage

IMPLEMENTATIONS: dict[str, Callable[[Path], CheckpointStorage]] = {
    "directory": lambda path: DirectoryStorage(path / "checkpoints"),
    "memory": MemoryStorage,
}
MANIFEST = b'{"a": "manifest"}'


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return IMPLEMENTATIONS[request.param](tmp_path)


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


def test_a_deletion_that_was_killed_is_finished_by_the_sweep(tmp_path: Path) -> None:
    """It has unpublished the checkpoint and removed a part of it; the word that it was never reported is still there."""
    storage = DirectoryStorage(tmp_path)
    put(storage, "c1", "rank-0", {"a": "b"})
    storage.commit("c1", MANIFEST)
    (tmp_path / "c1").rename(tmp_path / "c1.partial")
    (tmp_path / "c1.partial" / "manifest.json").unlink()
    assert storage.sweep(datetime.now(UTC) + timedelta(hours=1)) == ("c1",)
    assert storage.unreported() == () and list(tmp_path.iterdir()) == []
