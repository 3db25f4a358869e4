"""A download of a large checkpoint is read and packed in pieces: what the master holds does not depend on the size."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from resolute.storage import FileKind, StoredFile
from resolute_master.api.render.checkpoint_tar import layout_of, write_tar
from resolute_master.api.resources.checkpoint_download import CHUNK_BYTES, CHUNKS_AHEAD, PACKERS, Pack, packed

SIZE = 64 * CHUNK_BYTES
HELD = (CHUNKS_AHEAD + 8) * CHUNK_BYTES
"""The chunks that wait, and some that are on their way through the packer."""


class Zeros(io.RawIOBase):
    """So many of them, made as they are read."""

    def __init__(self) -> None:
        super().__init__()
        self._left = SIZE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        count = min(len(view), self._left)
        view[:count] = bytes(count)
        self._left -= count
        return count


class OneLargeFile:
    """A checkpoint."""

    def files(self) -> Iterator[StoredFile]:
        yield StoredFile(path="weights", kind=FileKind.FILE, size=SIZE, modified=1e9, mode=0o644)

    def open(self, file: StoredFile) -> tuple[BinaryIO, int]:
        return io.BufferedReader(Zeros()), SIZE

    def check(self) -> None: ...

    def close(self) -> None: ...

    def __enter__(self) -> OneLargeFile:
        return self

    def __exit__(self, *exc: object) -> None: ...


def tar(stored: OneLargeFile, out: io.RawIOBase) -> None:
    layout = layout_of(stored.files())
    write_tar(stored, stored.files(), layout, out, 0, layout.size)


@pytest.mark.parametrize("pack", [tar, *PACKERS.values()], ids=["tar", *PACKERS])
async def test_what_is_held_does_not_grow_with_the_checkpoint(pack: Pack) -> None:
    tracemalloc.start()
    try:
        sent = 0
        async for chunk in packed(OneLargeFile(), pack):
            sent += len(chunk)
        assert tracemalloc.get_traced_memory()[1] < HELD < SIZE / 2
    finally:
        tracemalloc.stop()
    assert sent > SIZE if pack is tar else sent > 0
