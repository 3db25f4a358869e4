"""When a container's output came, read from the times that its supervisor wrote beside it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from resolute_agent.supervisor import STAMP

_BLOCK = 256


class StampReader:
    """Answers for growing offsets of one stream, with one look at the file for many lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index: int | None = None  # of the record after `_current`
        self._current: tuple[float, int] | None = None
        self._ahead: list[tuple[float, int]] = []

    def at(self, offset: int) -> datetime | None:
        """When the byte at `offset` came; `None` when no record covers it."""
        if self._index is None:
            self._index = self._search(offset)
        while self._ahead or self._read_on():
            if self._ahead[0][1] > offset:
                break
            self._current = self._ahead.pop(0)
        if self._current is None or self._current[1] > offset:
            return None
        return datetime.fromtimestamp(self._current[0], UTC)

    def _read_on(self) -> bool:
        assert self._index is not None
        self._ahead = self._records(self._index, _BLOCK)
        self._index += len(self._ahead)
        return bool(self._ahead)

    def _search(self, offset: int) -> int:
        """The first record to read: the last one that is not past `offset`."""
        low, high = 0, self._count()
        while low < high:
            middle = (low + high) // 2
            found = self._records(middle, 1)
            if found and found[0][1] <= offset:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1)

    def _count(self) -> int:
        try:
            return self._path.stat().st_size // STAMP.size
        except FileNotFoundError:
            return 0

    def _records(self, index: int, count: int) -> list[tuple[float, int]]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            data = os.pread(descriptor, count * STAMP.size, index * STAMP.size)
        finally:
            os.close(descriptor)
        whole = len(data) - len(data) % STAMP.size
        return [(seconds, offset) for seconds, offset in STAMP.iter_unpack(data[:whole])]
