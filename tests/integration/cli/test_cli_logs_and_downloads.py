"""Logs and files over HTTP: what `det` asks for, what it prints and writes, and what a damaged answer leaves."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

from resolute.wire.rest.enums import WireCheckpointState
from support.cli_master import FakeMaster
from support.cli_messages import (
    CHECKPOINT_FILES,
    UUID,
    a_checkpoint,
    a_tar,
    a_trial,
)
from support.cli_shell import Shell


def test_logs_are_printed_as_they_are(det: Shell) -> None:
    assert [line.rpartition(": ")[2] for line in det.ok("trial", "logs", "1").splitlines()] == ["one", "two", "three"]


def test_the_last_lines_come_in_their_order(det: Shell, master: FakeMaster) -> None:
    assert [line.rpartition(": ")[2] for line in det.ok("t", "logs", "--tail", "2", "1").splitlines()] == [
        "two",
        "three",
    ]
    assert dict(master.asked("GET", ".*/logs")[0].query) == {"limit": "2", "orderBy": "ORDER_BY_DESC"}
    assert [line.rpartition(": ")[2] for line in det.ok("t", "logs", "--head", "1", "1").splitlines()] == ["one"]


def test_levels_and_filters_go_to_the_master(det: Shell, master: FakeMaster) -> None:
    flags = ("--level", "ERROR", "--rank-id", "0", "--rank-id", "1", "--timestamp-after", "2024-05-01T12:00:00+02:00")
    assert det.ok("trial", "logs", "1", *flags).endswith("ERROR: two\n")
    assert master.asked("GET", ".*/logs")[0].query == (
        ("levels", "LOG_LEVEL_ERROR"),
        ("levels", "LOG_LEVEL_CRITICAL"),
        ("rankIds", "0"),
        ("rankIds", "1"),
        ("timestampAfter", "2024-05-01T10:00:00Z"),
    )


def test_a_followed_log_survives_a_broken_connection(det: Shell, master: FakeMaster) -> None:
    master.drop_logs_after = [2, 0, 1]
    lines = det.ok("trial", "logs", "-f", "1").splitlines()
    assert [line.rpartition(": ")[2] for line in lines[:3]] == ["one", "two", "three"]
    assert len(lines) == 4
    assert len(master.asked("GET", ".*/logs")) == 4


def test_the_log_of_an_experiment_is_that_of_its_first_trial(det: Shell, master: FakeMaster) -> None:
    master.trials = {9: a_trial(9), 4: a_trial(4)}
    det.ok("experiment", "logs", "1")
    assert len(master.asked("GET", "/api/v1/trials/4/logs")) == 1
    assert det("experiment", "logs", "2") == 1
    assert "trial of experiment '2' not found" in det.err


def test_a_checkpoint_is_downloaded_through_the_master(det: Shell, tmp_path: Path) -> None:
    target = tmp_path / "files"
    assert det.ok("checkpoint", "download", UUID, "-o", str(target)) == f"Local checkpoint path: {target}\n"
    assert (target / "state/weights.bin").read_bytes() == CHECKPOINT_FILES["state/weights.bin"]
    assert det("checkpoint", "download", UUID, "-o", str(target)) == 1
    assert "already exists" in det.err


def test_a_checkpoint_is_copied_from_a_storage_that_is_here(det: Shell, master: FakeMaster, tmp_path: Path) -> None:
    stored = tmp_path / "storage" / UUID
    (stored / "state").mkdir(parents=True)
    (stored / "state/weights.bin").write_bytes(b"12345")
    (stored / "metadata.json").write_bytes(b"{}")
    made = a_checkpoint()
    config = {"checkpoint_storage": {"type": "shared_fs", "host_path": str(tmp_path / "storage")}}
    master.checkpoints = (replace(made, training=replace(made.training, experiment_config=config)),)
    det.ok("trial", "download", "1", "--best", "-o", str(tmp_path / "a"), "-q")
    assert det.out == f"{tmp_path / 'a'}\n"
    assert (tmp_path / "a/state/weights.bin").read_bytes() == b"12345"
    assert master.asked("GET", f"/checkpoints/{UUID}") == []
    (stored / "state/weights.bin").write_bytes(b"123")
    assert det("checkpoint", "download", UUID, "-o", str(tmp_path / "b")) == 1
    assert "has 3 bytes" in det.err
    assert not (tmp_path / "b").exists()


def test_a_damaged_archive_leaves_nothing(det: Shell, master: FakeMaster, tmp_path: Path) -> None:
    master.checkpoint_archive = a_tar({**CHECKPOINT_FILES, "state/weights.bin": b"123"})
    assert det("c", "download", UUID, "-o", str(tmp_path / "out" / "x"), "--mode", "master") == 1
    assert "has 3 bytes" in det.err
    assert list((tmp_path / "out").iterdir()) == []


def test_only_whole_checkpoints_can_be_downloaded(det: Shell, master: FakeMaster, tmp_path: Path) -> None:
    master.checkpoints = (a_checkpoint(state=WireCheckpointState.DELETED),)
    assert det("c", "download", UUID, "-o", str(tmp_path / "x")) == 1
    assert "is DELETED" in det.err


def test_the_model_definition_is_downloaded(det: Shell, tmp_path: Path) -> None:
    det.ok("e", "download-model-def", "1", "--output-dir", str(tmp_path))
    with tarfile.open(tmp_path / "experiment_1_model_def.tgz") as tar:
        assert tar.getnames() == ["train.py"]
