"""Task output to log lines, batches and acknowledgements.

`LineSplitter` and `parse_line` are pure. `LogShipper` reads the output of every attached container from where it was
last stored, keeps at most `LOG_BATCHES_IN_FLIGHT` batches that the master has not stored yet, and reads no further
while they are: the output stays in its files. A batch is filled from all containers in turn, so one that writes much
holds up no other. What it sends can be sent again: a line is keyed by its container,
stream and byte offset, and splitting from a stored offset gives the same lines.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from resolute.clock import Clock
from resolute.wire.agent_link import LOG_BATCH_LINES, LOG_BATCHES_IN_FLIGHT, LogBatch, LogLine
from resolute_agent.last_error import Traceback
from resolute_agent.runtimes.base import STREAMS, Runtime

MAX_LINE_BYTES = 8 * 1024
"""The rest of a longer line becomes the next line."""

BATCH_BYTES = 1024 * 1024
"""A batch is closed at this many bytes of text: escaped as JSON it stays well under a frame."""

FLUSH_S = 0.25
"""A line waits at most this long for further lines of its batch."""

READ_BYTES = 64 * 1024

PENDING_LINES = 2 * LOG_BATCH_LINES
PENDING_BYTES = 512 * 1024
"""Output of one container that is held in memory beyond one read; the rest stays in its files."""

_BREAK = re.compile(rb"[\r\n]")
_RANK = re.compile(r"\[rank=(\d{1,9})\] ")
_LEVEL = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLine:
    """Bytes of one line without its break, and the offsets of its first byte and of what follows it."""

    offset: int
    end: int
    data: bytes


class LineSplitter:
    """Cuts a stream of bytes into lines, deterministically from any offset that it has returned as an `end`.

    `\\n`, `\\r\\n` and `\\r` end a line; nothing between two `\\r`, or before the first, is no line (progress bars
    start their updates with one). `previous` is the byte before `offset`, or empty at the start of the stream.
    """

    def __init__(self, offset: int = 0, previous: bytes = b"") -> None:
        self._buffer = b""
        self._offset = offset
        self._after_return = previous == b"\r"

    @property
    def read_to(self) -> int:
        """The offset of the next byte to feed."""
        return self._offset + len(self._buffer)

    def feed(self, data: bytes) -> Iterator[RawLine]:
        """The lines that `data` completes. The iterator must be exhausted before the next call."""
        buffer = self._buffer = self._buffer + data
        start = 0
        while start < len(buffer):
            if self._after_return and buffer[start] == 0x0A:
                start += 1  # the second half of a "\r\n"
                self._after_return = False
                continue
            found = _BREAK.search(buffer, start)
            end = len(buffer) if found is None else found.start()
            if end - start > MAX_LINE_BYTES:
                end = after = start + _whole_characters(buffer, start)
                self._after_return = False
                keep = True
            elif found is None:
                break
            else:
                after = end + 1
                self._after_return = buffer[end] == 0x0D
                keep = end > start or not self._after_return
            if keep:
                yield RawLine(offset=self._offset + start, end=self._offset + after, data=buffer[start:end])
            start = after
        self._offset += start
        self._buffer = buffer[start:]

    def finish(self) -> Iterator[RawLine]:
        """The last line, when the stream ended without a break."""
        data, offset = self._buffer, self._offset
        self._offset += len(data)
        self._buffer = b""
        if data:
            yield RawLine(offset=offset, end=offset + len(data), data=data)


def _whole_characters(buffer: bytes, start: int) -> int:
    """How many bytes from `start` to cut off: `MAX_LINE_BYTES`, or a little less so that no UTF-8 character is split."""
    for piece in range(MAX_LINE_BYTES, MAX_LINE_BYTES - 4, -1):
        if buffer[start + piece] & 0xC0 != 0x80:
            return piece
    return MAX_LINE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    text: str
    level: str
    rank: int | None


def parse_line(data: bytes) -> ParsedLine:
    """Text of a line with its newline; `[rank=N] ` and `LEVEL: ` prefixes become fields. Invalid UTF-8 is replaced."""
    text = data.decode("utf-8", errors="replace")
    rank = None
    level = "INFO"
    if match := _RANK.match(text):
        rank = int(match.group(1))
        text = text[match.end() :]
    if match := _LEVEL.match(text):
        level = match.group(1)
        text = text[match.end() :]
    return ParsedLine(text=text + "\n", level=level, rank=rank)


@dataclass(slots=True, kw_only=True, eq=False)
class _Source:
    """One container whose output is shipped. `outstanding` counts lines read and not yet stored."""

    container_id: str
    allocation_id: str
    task_id: str
    stored: dict[str, int]
    pending: deque[_Pending] = field(default_factory=deque)
    pending_bytes: int = 0
    outstanding: int = 0
    read_all: bool = False
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """The container has ended, and its last lines are to be sent at once."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    reader: asyncio.Task[None] | None = None
    tracebacks: dict[tuple[str, int | None], Traceback] = field(default_factory=dict)
    """By stream and rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    source: _Source
    end: int
    line: LogLine


@dataclass(slots=True, kw_only=True)
class _InFlight:
    batch: LogBatch
    lines: list[_Pending]
    stored: bool = False


class LogShipper:
    """Reads, batches, sends and re-sends. `send` is called with each batch while the link is up."""

    def __init__(self, *, runtime: Runtime, clock: Clock, send: Callable[[LogBatch], None]) -> None:
        self._runtime = runtime
        self._clock = clock
        self._send = send
        self._sources: dict[str, _Source] = {}
        self._pending_lines = 0
        self._pending_bytes = 0
        self._in_flight: dict[int, _InFlight] = {}
        self._next_batch = 1
        self._filled = asyncio.Event()
        self._enough = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._up = asyncio.Event()

    # ------------------------------------------------------------------------------------------------- from the agent

    def attach(self, container_id: str, *, allocation_id: str, task_id: str) -> None:
        """Begin to ship a container's output, from where it was last stored. Repeating it is harmless."""
        if container_id in self._sources:
            return
        stored = {stream: self._runtime.offsets(container_id).get(stream, 0) for stream in STREAMS}
        source = _Source(container_id=container_id, allocation_id=allocation_id, task_id=task_id, stored=stored)
        self._sources[container_id] = source
        source.reader = asyncio.create_task(self._read(source), name=f"output of {container_id}")

    async def detach(self, container_id: str) -> None:
        """Stop to ship; what was not stored is given up."""
        source = self._sources.pop(container_id, None)
        if source is None:
            return
        await _cancel(source.reader)
        self._take(source, len(source.pending))

    async def drain(self, container_id: str, limit_s: float) -> bool:
        """Wait until all output of an ended container is stored, for `limit_s` of time with a link. True when it is."""
        source = self._sources.get(container_id)
        if source is None:
            return True
        source.ended.set()
        self._measure()
        left_s = limit_s
        while left_s > 0 and not source.drained.is_set():
            await self._up.wait()
            slice_s = min(1.0, left_s)
            try:
                async with asyncio.timeout(slice_s):
                    await source.drained.wait()
            except TimeoutError:
                left_s -= slice_s
        return source.drained.is_set()

    def link_up(self) -> None:
        """A master listens: send again what it has not stored."""
        self._up.set()
        for in_flight in self._in_flight.values():
            if not in_flight.stored:
                self._send(in_flight.batch)

    def link_down(self) -> None:
        self._up.clear()

    def stored(self, number: int) -> None:
        """The master has stored batch `number`; offsets are persisted in the order of the batches."""
        in_flight = self._in_flight.get(number)
        if in_flight is None:
            return
        in_flight.stored = True
        touched: dict[str, _Source] = {}
        for key in sorted(self._in_flight):
            if not self._in_flight[key].stored:
                break
            for pending in self._in_flight.pop(key).lines:
                source = pending.source
                source.stored[pending.line.stdtype] = pending.end
                source.outstanding -= 1
                touched[source.container_id] = source
        for container_id in sorted(touched):
            source = touched[container_id]
            if self._sources.get(container_id) is source:
                self._runtime.save_offsets(container_id, source.stored)
            self._check_drained(source)
        self._room.set()

    async def run(self) -> None:
        """Close and send batches until cancelled."""
        while True:
            await self._filled.wait()
            await self._company()
            while len(self._in_flight) >= LOG_BATCHES_IN_FLIGHT:
                self._room.clear()
                await self._room.wait()
            self._close_batch()

    async def close(self) -> None:
        """Stop reading; the stored offsets define where to continue."""
        for container_id in sorted(self._sources):
            await self.detach(container_id)

    # ---------------------------------------------------------------------------------------------------- inside

    async def _read(self, source: _Source) -> None:
        runtime = self._runtime
        splitters: dict[str, LineSplitter] = {}
        for stream in STREAMS:
            offset = source.stored[stream]
            previous = runtime.read_output(source.container_id, stream, offset - 1, 1) if offset else b""
            splitters[stream] = LineSplitter(offset, previous)
        while True:
            ended = runtime.output_ended(source.container_id)  # asked first: what follows then reads the last bytes
            came: list[_Pending] = []
            read = 0
            for stream, splitter in splitters.items():
                data = runtime.read_output(source.container_id, stream, splitter.read_to, READ_BYTES)
                read += len(data)
                raw = splitter.feed(data) if data or not ended else splitter.finish()
                came += [_Pending(source=source, end=line.end, line=self._line(source, stream, line)) for line in raw]
            await self._add(source, _as_written(came))
            if not read:
                if ended:
                    break
                await self._grown(source, {stream: splitter.read_to for stream, splitter in splitters.items()})
        source.read_all = True
        self._check_drained(source)

    async def _grown(self, source: _Source, offsets: Mapping[str, int]) -> None:
        """Wait for more output, or for the end of its container: a runtime that looks at files now and then would see it late."""
        if source.ended.is_set():
            await self._runtime.output_grown(source.container_id, offsets)
            return
        waits = [
            asyncio.ensure_future(self._runtime.output_grown(source.container_id, offsets)),
            asyncio.ensure_future(source.ended.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]

    def _line(self, source: _Source, stream: str, raw: RawLine) -> LogLine:
        parsed = parse_line(raw.data)
        following = source.tracebacks.setdefault((stream, parsed.rank), Traceback())
        if following.holds(parsed.text.rstrip("\n")) and parsed.level == "INFO":
            parsed = replace(parsed, level="ERROR")
        return LogLine(
            task_id=source.task_id,
            allocation_id=source.allocation_id,
            container_id=source.container_id,
            stdtype=stream,
            offset=raw.offset,
            at=self._runtime.output_time(source.container_id, stream, raw.offset) or self._clock.now(),
            log=parsed.text,
            level=parsed.level,
            rank=parsed.rank,
        )

    async def _add(self, source: _Source, lines: list[_Pending]) -> None:
        """Queue lines, then wait while there are too many of this container."""
        source.pending.extend(lines)
        source.outstanding += len(lines)
        size = sum(len(pending.line.log) for pending in lines)
        source.pending_bytes += size
        self._pending_lines += len(lines)
        self._pending_bytes += size
        if lines:
            self._filled.set()
        self._measure()
        while len(source.pending) >= PENDING_LINES or source.pending_bytes >= PENDING_BYTES:
            source.room.clear()
            await source.room.wait()

    def _measure(self) -> None:
        full = self._pending_lines >= LOG_BATCH_LINES or self._pending_bytes >= BATCH_BYTES
        if full or any(source.ended.is_set() and source.pending for source in self._sources.values()):
            self._enough.set()
        else:
            self._enough.clear()

    async def _company(self) -> None:
        """Until there is a whole batch, or the last lines of a container: its slots wait for them. At most for `FLUSH_S`."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._enough.wait()
        except TimeoutError:
            pass

    def _take(self, source: _Source, count: int, size: int | None = None) -> list[_Pending]:
        """Its oldest lines, up to `size` bytes."""
        taken: list[_Pending] = []
        taken_bytes = 0
        while source.pending and len(taken) < count and (size is None or taken_bytes < size):
            taken.append(source.pending.popleft())
            taken_bytes += len(taken[-1].line.log)
        source.pending_bytes -= taken_bytes
        self._pending_lines -= len(taken)
        self._pending_bytes -= taken_bytes
        source.room.set()
        if not self._pending_lines:
            self._filled.clear()
        self._measure()
        return taken

    def _close_batch(self) -> None:
        """Send a batch: from each container its part, and what others leave over."""
        lines: list[_Pending] = []
        size = 0
        waiting = [source for source in self._sources.values() if source.pending]
        while waiting and len(lines) < LOG_BATCH_LINES and size < BATCH_BYTES:
            part = max(1, (LOG_BATCH_LINES - len(lines)) // len(waiting))
            for source in waiting:
                taken = self._take(
                    source, min(part, LOG_BATCH_LINES - len(lines)), max(1, (BATCH_BYTES - size) // len(waiting))
                )
                lines += taken
                size += sum(len(pending.line.log) for pending in taken)
            waiting = [source for source in waiting if source.pending]
        if lines:
            batch = LogBatch(batch=self._next_batch, lines=tuple(pending.line for pending in lines))
            self._next_batch += 1
            self._in_flight[batch.batch] = _InFlight(batch=batch, lines=lines)
            if self._up.is_set():
                self._send(batch)

    def _check_drained(self, source: _Source) -> None:
        if source.read_all and source.outstanding == 0:
            source.drained.set()


def _as_written(lines: list[_Pending]) -> list[_Pending]:
    """Lines of both streams in the order of their times; within a stream always in that of their offsets.

    A wall clock may be set back while a task writes. The order within a stream must not follow it: what is stored is
    remembered as one offset.
    """
    latest: dict[str, datetime] = {}
    keys: dict[tuple[str, int], datetime] = {}
    for pending in lines:
        line = pending.line
        latest[line.stdtype] = keys[line.stdtype, line.offset] = max(line.at, latest.get(line.stdtype, line.at))
    return sorted(lines, key=lambda pending: keys[pending.line.stdtype, pending.line.offset])


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None and not task.done():
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
