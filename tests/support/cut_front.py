"""A proxy before a local server that forwards a limited number of bytes of a response, and then cuts or holds the connection."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

PIECE = 16 * 1024


@dataclass
class CutFront:
    """`cut_after` contains the number of forwarded bytes for each of the next downloads; later ones are complete."""

    address: str = ""
    marked: bytes = b"GET /checkpoints/"
    """Start of a download's request."""
    cut_after: deque[int] = field(default_factory=deque)
    hold: bool = False
    """A cut connection stays open, so that the client waits."""
    seen: list[str] = field(default_factory=list)
    """The heads of the downloads."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        to_server, limit = None, None
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(self.marked):
                self.seen.append(head.decode())
                limit = self.cut_after.popleft() if self.cut_after else None
            lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"connection:")]
            to_server.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
            sending = asyncio.create_task(_copy(reader, to_server))
            try:
                if await _copy(from_server, writer, limit) and self.hold:
                    await asyncio.sleep(3600)
            finally:
                sending.cancel()
        finally:
            for each in (writer, to_server):
                if each is not None:
                    each.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None = None) -> bool:
    """True when the limit was met."""
    while limit is None or limit > 0:
        piece = await reader.read(PIECE if limit is None else min(PIECE, limit))
        if not piece:
            return False
        writer.write(piece)
        await writer.drain()
        limit = None if limit is None else limit - len(piece)
    return True


@asynccontextmanager
async def cut_front(port: int) -> AsyncIterator[CutFront]:
    """A proxy before the server at `port`. Each request has its own connection."""
    front = CutFront()
    at_work: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await front.serve(reader, writer, port)
        at_work.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    front.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield front
    finally:
        server.close()
        for task in [*at_work]:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
