"""A direct download takes files and directories of a checkpoint, and follows no link in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from resolute.client.checkpoints import _copy


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
    _copy(stored, tmp_path / "target", {"model/": 0, "model/weights": 1})
    found = sorted(path.relative_to(tmp_path / "target").as_posix() for path in (tmp_path / "target").rglob("*"))
    assert found == ["model", "model/weights"]
