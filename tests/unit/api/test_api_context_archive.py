"""Uploaded code becomes a safe archive, the same for the same files."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput, LimitExceeded
from resolute.wire.rest.experiment_changes import File
from resolute_master.api.submission import context_archive
from resolute_master.api.submission.context_archive import DIRECTORY, REGULAR_FILE, check_files, digest_of, pack


def a_file(path: str, content: bytes = b"x", **changes: Any) -> File:
    given_: dict[str, Any] = {"type": REGULAR_FILE, "mode": 0o100644, "mtime": 1_700_000_000, "uid": 0, "gid": 0}
    return File(path=path, content=content, **{**given_, **changes})


def test_the_archive_holds_what_was_sent() -> None:
    files = [a_file("d", b"", type=DIRECTORY, mode=0o40755), a_file("d/run.sh", b"#!/bin/sh\n", mode=0o100755)]
    check_files(files)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(pack(files)))) as archive:
        directory, script = archive.getmembers()
    assert (directory.name, directory.isdir(), directory.mode) == ("d", True, 0o755)
    assert (script.name, script.size, script.mode, script.mtime) == ("d/run.sh", 10, 0o755, 1_700_000_000)


def test_the_same_files_give_the_same_bytes() -> None:
    files = [a_file("a", b"1"), a_file("b", b"2")]
    assert pack(files) == pack(list(files))
    assert digest_of(pack(files)) != digest_of(pack([a_file("a", b"1"), a_file("b", b"3")]))


@pytest.mark.parametrize("path", ["", ".", "..", "../a", "a/../../b", "/a", "a\0b", "./..", "a/..", "//x"])
def test_paths_that_lead_out_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"modelDefinition\[0\]\.path"):
        check_files([a_file(path)])


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ([a_file("a"), a_file("a")], "twice"),
        ([a_file("a"), a_file("./a")], "twice"),
        ([a_file("a/b"), a_file("a")], "which is a file"),
        ([a_file("a", type=50)], "type"),
        ([a_file("a", b"x", type=DIRECTORY)], "no content"),
        ([a_file("a", mtime=-1)], "mtime"),
        ([a_file("a", mtime=2**40)], "mtime"),
    ],
)
def test_what_cannot_be_one_directory_is_refused(files: list[File], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        check_files(files)


def test_too_much_is_refused_with_the_limit() -> None:
    content = bytes(context_archive.MAX_CONTEXT_BYTES // 2)
    check_files([a_file("a", content), a_file("b", content)])
    with pytest.raises(LimitExceeded, match=r"95 MiB.*\.detignore"):
        check_files([a_file("a", content), a_file("b", content + b"x")])


@given(st.lists(st.text(max_size=20), max_size=6, unique=True))
def test_whatever_is_accepted_stays_inside(paths: list[str]) -> None:
    files = [a_file(path) for path in paths]
    try:
        check_files(files)
    except InvalidInput:
        return
    try:
        packed = pack(files)
    except UnicodeEncodeError:
        return
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as archive:
        for member in archive.getmembers():
            assert not member.name.startswith("/")
            assert ".." not in member.name.split("/")
