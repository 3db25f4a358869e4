"""Unpacking what comes from the network."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from resolute.client.archive import DamagedArchive, extract
from resolute.errors import InvalidInput


def tar_of(*members: tuple[str, bytes | None], kind: bytes | None = None, link: str = "") -> io.BytesIO:
    """A gzip tar; members without contents are directories, or of `kind`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = kind or tarfile.DIRTYPE
                member.linkname = link
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def left_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_files_arrive_under_the_target(tmp_path: Path) -> None:
    target = tmp_path / "new" / "checkpoint"
    extract(
        tar_of(("d", None), ("d/w.bin", b"12"), ("./m.json", b"{}")),
        target,
        expected={"d/": 0, "d/w.bin": 2, "m.json": 2},
    )
    assert (target / "d/w.bin").read_bytes() == b"12"
    assert (target / "m.json").read_bytes() == b"{}"
    assert left_in(tmp_path / "new") == ["checkpoint"]


@pytest.mark.parametrize("name", ["../escape", "/etc/escape", "a/../../escape"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DamagedArchive, match="outside"):
        extract(tar_of(("good", b"1"), (name, b"2")), tmp_path / "t")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(DamagedArchive, match="neither a file nor a directory"):
        extract(tar_of(("x", None), kind=kind, link="/etc/passwd"), tmp_path / "t")
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 10, 40, -9, -1])
def test_a_cut_archive_leaves_nothing(tmp_path: Path, cut: int) -> None:
    whole = tar_of(("w.bin", bytes(range(256)) * 40)).getvalue()
    with pytest.raises(DamagedArchive):
        extract(io.BytesIO(whole[:cut]), tmp_path / "t", expected={"w.bin": 10240})
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "content", [b"", b"not gzip at all", gzip.compress(b"no tar inside, but long enough" * 40, mtime=0)]
)
def test_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DamagedArchive):
        extract(io.BytesIO(content), tmp_path / "t", expected={"w.bin": 1})
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("expected", "text"), [({"w.bin": 3}, "has 2 bytes"), ({"w.bin": 2, "other": 1}, "is missing")]
)
def test_the_files_must_be_the_expected_ones(tmp_path: Path, expected: dict[str, int], text: str) -> None:
    with pytest.raises(DamagedArchive, match=text):
        extract(tar_of(("w.bin", b"12")), tmp_path / "t", expected=expected)
    assert left_in(tmp_path) == []


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    whole = bytearray(tar_of(("w.bin", b"12")).getvalue())
    whole[-6] ^= 1  # in the checksum: the same as a changed bit in what it covers
    with pytest.raises(DamagedArchive):
        extract(io.BytesIO(bytes(whole)), tmp_path / "t", expected={"w.bin": 2})
    assert left_in(tmp_path) == []


def test_an_occupied_target_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t/mine").write_text("x")
    with pytest.raises(InvalidInput, match="already exists"):
        extract(tar_of(("w.bin", b"12")), tmp_path / "t")
    assert left_in(tmp_path / "t") == ["mine"]


def test_an_empty_target_is_used(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    extract(tar_of(("w.bin", b"12")), tmp_path / "t")
    assert left_in(tmp_path / "t") == ["w.bin"]


def test_what_an_earlier_attempt_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".t.partial").mkdir()
    (tmp_path / ".t.partial/old").write_text("x")
    extract(tar_of(("w.bin", b"12")), tmp_path / "t")
    assert left_in(tmp_path) == ["t"]
    assert left_in(tmp_path / "t") == ["w.bin"]
