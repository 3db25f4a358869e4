"""A proxy before a server that can lose data, like a network."""

from __future__ import annotations

import asyncio
from types import TracebackType


class LossyRelay:
    """`async with LossyRelay(port) as relay:` listens on `relay.port` of 127.0.0.1."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._connections: set[asyncio.Task[None]] = set()
        self._lose_answers = False
        self.lost = 0
        """Number of lost responses, each with its connection."""

    async def __aenter__(self) -> LossyRelay:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._listener.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def lose_next_answer(self) -> None:
        """Drops the server's next response to any client and cuts that connection. The server has received the request."""
        self._lose_answers = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            there = asyncio.create_task(_pump(reader, server_writer))
            back = asyncio.create_task(self._answers(server_reader, writer))
            try:
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in (there, back):
                    pump.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
                for end in (writer, server_writer):
                    end.transport.abort()
        except OSError:
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self._lose_answers:
                self._lose_answers = False
                self.lost += 1
                return
            writer.write(data)
            await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
