"""Pure: the engine's stream of a container's output, taken apart.

A frame is one byte for the stream, three of nothing, four for the length, and the entry. With timestamps asked for, an
entry begins with the time at which the engine took it, as RFC 3339 with nanoseconds, and a space.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import datetime

_HEADER = struct.Struct(">BxxxL")
_STREAMS = {1: "stdout", 2: "stderr"}
MAX_ENTRY_BYTES = 64 * 1024 * 1024
"""The engine cuts entries at 16 KiB; something far larger is no such stream."""


class NotFrames(ValueError):
    """What the engine sent is not the output of a container without a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Some bytes of one stream, up to a line's end or to where the engine cut a long line. `time` is the engine's text."""

    stream: str
    time: str
    data: bytes

    def seconds(self) -> float:
        """When the engine took it, in seconds since 1970."""
        whole, _, fraction = self.time.removesuffix("Z").partition(".")
        return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or '0'}")


class FrameReader:
    """Takes the stream in any pieces and gives the entries that are complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Entry]:
        """Raises `NotFrames` for what cannot be such a stream."""
        data = self._rest + data
        entries = []
        at = 0
        while len(data) - at >= _HEADER.size:
            number, length = _HEADER.unpack_from(data, at)
            if number not in _STREAMS or length > MAX_ENTRY_BYTES:
                raise NotFrames(f"the engine's output has a frame of stream {number} with {length} bytes")
            if len(data) - at < _HEADER.size + length:
                break
            at += _HEADER.size
            time, space, body = data[at : at + length].partition(b" ")
            if not space or not time.endswith(b"Z"):
                raise NotFrames(f"an entry of the engine's output begins with {time[:40]!r} instead of a time")
            entries.append(Entry(stream=_STREAMS[number], time=time.decode(), data=body))
            at += length
        self._rest = data[at:]
        return entries


def after(entries: list[Entry], last: Entry | None) -> list[Entry] | None:
    """The entries that follow `last`; all when there was none, `None` when `last` is not among them."""
    if last is None:
        return entries
    for index in range(len(entries) - 1, -1, -1):
        if entries[index] == last:
            return entries[index + 1 :]
    return None
