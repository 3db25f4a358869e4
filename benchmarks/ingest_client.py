"""Sends prepared requests over persistent connections, with little processor time of its own.

    python -m benchmarks.ingest_client PORT CONNECTIONS FILE

FILE contains the requests, each after its length (8 bytes). Prints the seconds from the first byte sent to the last response read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path


class Sender(asyncio.Protocol):
    """Sends the requests sequentially. Every response must have status 200 and a length."""

    def __init__(self, waiting: deque[bytes], done: asyncio.Future[None]) -> None:
        self._waiting = waiting
        self._done = done
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def begin(self) -> None:
        if self._waiting:
            self._transport.write(self._waiting.popleft())
        elif not self._done.done():
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if not head.startswith(b"HTTP/1.1 200 "):
            self._done.set_exception(RuntimeError(self._answer.decode(errors="replace")))
            return
        self._answer = b""
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server has closed the connection"))


async def send(port: int, connections: int, requests: list[bytes]) -> float:
    """Seconds until all requests are answered."""
    loop = asyncio.get_running_loop()
    waiting = deque(requests)
    senders: list[tuple[Sender, asyncio.Future[None]]] = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        _, sender = await loop.create_connection(partial(Sender, waiting, done), "127.0.0.1", port)
        senders.append((sender, done))
    began = time.perf_counter()
    for sender, _ in senders:
        sender.begin()
    await asyncio.gather(*(done for _, done in senders))
    return time.perf_counter() - began


def write_requests(path: Path, requests: list[bytes]) -> None:
    path.write_bytes(b"".join(len(request).to_bytes(8, "big") + request for request in requests))


def read_requests(path: Path) -> list[bytes]:
    data, at, requests = path.read_bytes(), 0, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "big")
        requests.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return requests


if __name__ == "__main__":
    print(asyncio.run(send(int(sys.argv[1]), int(sys.argv[2]), read_requests(Path(sys.argv[3])))))
