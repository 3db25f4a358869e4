"""A checkpoint as a tar with reproducible bytes, so that an interrupted download can continue in its middle.

The same files give the same bytes: first they are listed, which gives the length and an entity tag, then the requested part is
written. Files before that part are not read.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from resolute.errors import FailedPrecondition
from resolute.storage import FileKind, OpenCheckpoint, StoredFile

PIECE_BYTES = 1024 * 1024
END = bytes(2 * tarfile.BLOCKSIZE)


class Writable(Protocol):
    def write(self, data: bytes, /) -> object: ...


class ChangedMeanwhile(FailedPrecondition):
    """The checkpoint differs from its list of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TarLayout:
    """The content of the tar. `size` in bytes."""

    files: tuple[StoredFile, ...]
    size: int
    etag: str


def layout_of(files: Iterable[StoredFile]) -> TarLayout:
    """The layout of a tar of these files. Blocks while the storage is read."""
    kept = tuple(_as_listed(file) for file in files)
    digest, size = hashlib.sha256(), 0
    for file in kept:
        header = _header(file)
        digest.update(header)
        size += len(header) + _padded(file.size)
    size = _whole_records(size + len(END))
    return TarLayout(files=kept, size=size, etag=digest.hexdigest())


def write_tar(
    stored: OpenCheckpoint, files: Iterable[StoredFile], layout: TarLayout, out: Writable, start: int, stop: int
) -> None:
    """The bytes from `start` to before `stop`. `files` lists the checkpoint again; raises `ChangedMeanwhile`."""
    at = 0
    for file, expected in zip(_and_then_none(files), _and_then_none(layout.files), strict=False):
        if file is None or _as_listed(file) != expected:
            if file is expected is None:
                break
            raise ChangedMeanwhile(f"{(file or expected).path!r} has changed while it was read; read it again")  # type: ignore[union-attr]
        header = _header(file)
        _cut(out, header, at, start, stop)
        at += len(header)
        if file.size and at < stop and at + file.size > start:
            _content(stored, file, out, max(0, start - at), min(file.size, stop - at))
        padding = _padded(file.size) - file.size
        _cut(out, bytes(padding), at + file.size, start, stop)
        at += file.size + padding
    _cut(out, bytes(layout.size - at), at, start, stop)


def _content(stored: OpenCheckpoint, file: StoredFile, out: Writable, first: int, end: int) -> None:
    stream, size = stored.open(file)
    with stream:
        if size != file.size:
            raise ChangedMeanwhile(f"{file.path!r} has {size} bytes and had {file.size}; read it again")
        for piece in _pieces(stream, first, end):
            out.write(piece)


def _pieces(stream: BinaryIO, first: int, end: int) -> Iterator[bytes]:
    if first:
        stream.seek(first)
    left = end - first
    while left > 0:
        piece = stream.read(min(PIECE_BYTES, left))
        if not piece:
            raise ChangedMeanwhile("a file has become shorter while it was read; read it again")
        left -= len(piece)
        yield piece


def _cut(out: Writable, data: bytes, at: int, start: int, stop: int) -> None:
    """Writes the part of `data` between the offsets `start` and `stop`, where `data` begins at offset `at`."""
    part = data[max(0, start - at) : max(0, stop - at)]
    if part:
        out.write(part)


def _as_listed(file: StoredFile) -> StoredFile:
    """The file without the fields that only the storage needs to open it."""
    return StoredFile(path=file.path, kind=file.kind, size=file.size, modified=file.modified, mode=file.mode)


def _header(file: StoredFile) -> bytes:
    member = tarfile.TarInfo(file.path)
    member.type = tarfile.DIRTYPE if file.kind is FileKind.DIRECTORY else tarfile.REGTYPE
    member.size, member.mode, member.mtime = file.size, file.mode, int(file.modified)
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _whole_records(size: int) -> int:
    return -(-size // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def _and_then_none(files: Iterable[StoredFile]) -> Iterator[StoredFile | None]:
    yield from files
    yield None
