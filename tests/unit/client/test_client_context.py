"""Packing a directory: what goes along, what is left out, how much is allowed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from resolute.client import context
from resolute.client.context import MAX_BYTES, pack
from resolute.errors import InvalidInput, LimitExceeded


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")


def packed_names(root: Path) -> list[str]:
    return [file.path for file in pack(root).files]


def test_contents_become_the_root_and_parents_come_first(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "data/a/deep.txt", "data/b.txt")
    assert packed_names(tmp_path) == ["data", "train.py", "data/a", "data/b.txt", "data/a/deep.txt"]


def test_entries_carry_what_a_tar_needs(tmp_path: Path) -> None:
    write(tmp_path, "d/run.sh")
    (tmp_path / "d/run.sh").chmod(0o755)
    os.utime(tmp_path / "d/run.sh", (1_700_000_000.9, 1_700_000_000.9))
    directory, file = pack(tmp_path).files
    assert (directory.type, directory.content, stat.S_ISDIR(directory.mode)) == (53, b"", True)
    assert (file.type, file.content, file.mtime, file.uid, file.gid) == (
        48,
        b"content of d/run.sh",
        1_700_000_000,
        0,
        0,
    )
    assert file.mode == stat.S_IFREG | 0o755


def test_built_in_rules_leave_out_what_nobody_wants(tmp_path: Path) -> None:
    write(tmp_path, "keep.py", "a.pyc", "__pycache__/x", ".git/config", "sub/.git/x", ".idea/x", "terraform.tfstate.1")
    write(tmp_path, "shared_fs/x", "sub/shared_fs/kept", ".mypy_cache/x", "sub/b.pyo", "C$py.class")
    assert packed_names(tmp_path) == ["sub", "keep.py", "sub/shared_fs", "sub/shared_fs/kept"]


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ("*.bin", ["keep", "keep/c.bin.txt", "a.txt"]),
        ("keep/", ["a.bin", "a.txt"]),
        ("keep", ["a.bin", "a.txt"]),
        ("/a.bin", ["keep", "keep/a.bin", "keep/c.bin.txt", "a.txt"]),
        ("*.bin\n!a.bin", ["keep", "keep/a.bin", "keep/c.bin.txt", "a.bin", "a.txt"]),
        ("# a comment\n\nkeep/*.bin", ["keep", "keep/c.bin.txt", "a.bin", "a.txt"]),
        ("**/c.*", ["keep", "keep/a.bin", "a.bin", "a.txt"]),
    ],
)
def test_own_rules_have_the_syntax_of_git(tmp_path: Path, rules: str, left: list[str]) -> None:
    write(tmp_path, "a.bin", "a.txt", "keep/a.bin", "keep/c.bin.txt")
    (tmp_path / ".detignore").write_text(rules)
    assert sorted(packed_names(tmp_path)) == sorted(left)


def test_the_rules_are_never_sent_and_hold_for_their_own_root_only(tmp_path: Path) -> None:
    write(tmp_path, "sub/.detignore", "sub/x.py")
    (tmp_path / "sub/.detignore").write_text("*.py")
    assert packed_names(tmp_path) == ["sub", "sub/x.py"]


def test_links_to_files_are_followed_and_links_to_directories_are_not_entered(tmp_path: Path) -> None:
    write(tmp_path, "outside/big.txt", "root/real.py")
    (tmp_path / "root/link.py").symlink_to(tmp_path / "root/real.py")
    (tmp_path / "root/away").symlink_to(tmp_path / "outside")
    files = {file.path: file for file in pack(tmp_path / "root").files}
    assert sorted(files) == ["away", "link.py", "real.py"]
    assert files["link.py"].content == b"content of root/real.py"
    assert (files["link.py"].type, files["away"].type) == (48, 53)


def test_what_cannot_be_read_is_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, "good.py")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    context = pack(tmp_path)
    assert [file.path for file in context.files] == ["good.py"]
    assert [Path(text.partition(":")[0]).name for text in context.skipped] == ["dangling", "pipe"]


def test_includes_keep_their_own_name(tmp_path: Path) -> None:
    write(tmp_path, "model/train.py", "library/__init__.py", "library/x.pyc", "extra.yaml")
    context = pack(tmp_path / "model", [tmp_path / "library", tmp_path / "extra.yaml"])
    assert [file.path for file in context.files] == ["train.py", "library", "library/__init__.py", "extra.yaml"]


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "model/train.py", "other/train.py")
    with pytest.raises(InvalidInput, match=r"duplicate path detected: 'train\.py'"):
        pack(tmp_path / "model", [tmp_path / "other/train.py"])


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_model_definition_must_be_a_directory(tmp_path: Path, name: str) -> None:
    write(tmp_path, "file")
    with pytest.raises(InvalidInput, match="is not a directory"):
        pack(tmp_path / name)


def test_a_missing_include_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"'.*gone' does not exist"):
        pack(None, [tmp_path / "gone"])


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_the_limit_is_95_mebibytes_to_the_byte(tmp_path: Path) -> None:
    sparse(tmp_path / "a.bin", MAX_BYTES - 1)
    (tmp_path / "b.txt").write_bytes(b"x")
    assert pack(tmp_path).total_bytes == MAX_BYTES == 99_614_720
    (tmp_path / "b.txt").write_bytes(b"xy")
    with pytest.raises(LimitExceeded, match=r"99614720 bytes.*\.detignore"):
        pack(tmp_path)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    sparse(tmp_path / "huge.bin", 1 << 40)
    with pytest.raises(LimitExceeded):
        pack(tmp_path)


def test_ignored_files_do_not_count(tmp_path: Path) -> None:
    sparse(tmp_path / "huge.bin", 1 << 40)
    (tmp_path / ".detignore").write_text("*.bin")
    assert pack(tmp_path) == context.Context(files=(), total_bytes=0)
