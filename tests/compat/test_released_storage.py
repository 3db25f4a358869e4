"""The released harness and this one keep checkpoints in the same buckets: each finds what the other has saved."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from resolute.errors import NotFound
from resolute.storage import CheckpointStorage, storage_from_config
from support.api_released import PYTHON
from support.object_stores import STORES, ObjectStore, a_place

pytestmark = pytest.mark.needs("determined")

FILES = {"weights.pt": b"w" * 70_000, "deep/er/state.json": b"{}", "metadata.json": b'{"steps_completed": 3}'}
THEIRS, OURS = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class Both:
    """One place in one store, as each of the two sees it."""

    place: ObjectStore
    ours: CheckpointStorage

    def theirs(self, action: str, uuid: str, directory: Path) -> None:
        script = Path(__file__).with_name("released_storage.py")
        command = [str(PYTHON), str(script), action, json.dumps(dict(self.place.config)), uuid, str(directory)]
        done = subprocess.run(
            command, env={**os.environ, **self.place.environ}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def stores() -> Iterator[Callable[[str], ObjectStore]]:
    with STORES.session() as started:
        yield started


@pytest.fixture(params=["s3", "gcs", pytest.param("azure", marks=pytest.mark.needs("azurite"))])
def both(request: pytest.FixtureRequest, stores: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch) -> Both:
    place = a_place(stores(str(request.param)), "released")
    for name, value in place.environ.items():
        monkeypatch.setenv(name, value)
    return Both(place, storage_from_config(place.config, shared_fs_mount=None))


def written(directory: Path) -> Path:
    for name, content in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def found_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_each_reads_what_the_other_has_saved(both: Both, tmp_path: Path) -> None:
    both.theirs("save", THEIRS, written(tmp_path / "theirs"))
    with pytest.raises(NotFound):
        both.ours.manifest(THEIRS)
    with both.ours.restore(THEIRS, without_manifest=True) as path:
        assert found_in(path) == FILES
    with both.ours.open(THEIRS) as stored:
        assert {file.path: file.size for file in stored.files() if file.size} == {
            name: len(content) for name, content in FILES.items()
        }

    staged = written(both.ours.stage(OURS, "rank-0"))
    both.ours.put(OURS, "rank-0", FILES)
    assert not list(staged.parent.glob(f"{staged.name}/*"))
    both.ours.commit(OURS, b"{}")
    both.ours.reported(OURS)
    both.theirs("load", OURS, tmp_path / "ours")
    assert found_in(tmp_path / "ours") == {**FILES, "manifest.json": b"{}"}

    # What writes no manifest is no leftover.
    assert both.ours.list() == (OURS,)
    assert both.ours.sweep(datetime.now(UTC) + timedelta(days=3)) == ()
    left = both.ours.remove_files(THEIRS, lambda name: name.endswith(".pt"))
    assert left == {"deep/": 0, "deep/er/": 0, "deep/er/state.json": 2, "metadata.json": 22}
    both.ours.delete(THEIRS)
    with pytest.raises(NotFound):
        both.ours.open(THEIRS)
    assert both.ours.list() == (OURS,)
