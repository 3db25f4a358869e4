"""Rights of files that are one user's alone: how they are made, and what a start does about wider ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute import private_files


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_afterwards_is_private_whatever_the_umask_was(umask: int, tmp_path: Path) -> None:
    private_files.keep_private()
    (tmp_path / "file").write_text("x")
    (tmp_path / "directory").mkdir()
    assert (mode_of(tmp_path / "file"), mode_of(tmp_path / "directory")) == (0o600, 0o700)


def test_wider_rights_are_taken_away_and_told_once(tmp_path: Path) -> None:
    state, key = tmp_path / "state", tmp_path / "state" / "key"
    state.mkdir()
    key.write_text("secret")
    state.chmod(0o755)
    key.chmod(0o664)
    said = private_files.mend(directories=[state], files=[key, key, tmp_path / "none"])
    assert said == [
        f"{state} was open to other users (mode 755) and is private now (mode 700)",
        f"{key} was open to other users (mode 664) and is private now (mode 600)",
    ]
    assert (mode_of(state), mode_of(key)) == (0o700, 0o600)
    assert private_files.mend(directories=[state], files=[key]) == []


def test_narrower_rights_stay(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    key.chmod(0o400)
    assert private_files.mend(files=[key]) == []
    assert mode_of(key) == 0o400


def test_links_fifos_and_directories_of_many_programs_are_left_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("x")
    target.chmod(0o644)
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "fifo", 0o666)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    said = private_files.mend(
        directories=[shared, Path("/var/lib"), Path("/")], files=[tmp_path / "link", tmp_path / "fifo"]
    )
    assert [sentence.split(" is a directory of many programs")[0] for sentence in said] == [
        str(shared),
        "/var/lib",
        "/",
    ]
    assert (mode_of(target), mode_of(shared)) == (0o644, 0o1777)


@pytest.mark.needs("root")
@pytest.mark.parametrize(("mode", "told"), [(0o644, True), (0o660, True), (0o640, False), (0o600, False)])
def test_what_an_administrator_keeps_for_a_service_is_told_and_not_changed(
    tmp_path: Path, mode: int, told: bool
) -> None:
    config = tmp_path / "master.yaml"
    config.write_text("x")
    os.chown(config, 1, 1)
    config.chmod(mode)
    assert ["run chmod go-w,o-rwx" in sentence for sentence in private_files.mend(files=[config])] == [True] * told
    assert mode_of(config) == mode


def test_the_files_of_a_directory_are_those_directly_in_it(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    (tmp_path / "a").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c").write_text("")
    assert private_files.state_files(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert private_files.state_files(tmp_path / "none") == []
