"""What a call and its connection leave behind is freed by the last reference: no garbage collection has to find it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from resolute_master.api.app import build_api
from resolute_master.api.http.connections import Listening, runner_of
from support.api import World

CALLS = 30
ALLOWED = 3 * CALLS
"""A dead cycle of every call holds an exception, its traceback and a frame at least. A few cycles more are of no call's shape:
a connection that is reset at one certain moment leaves one."""


@contextmanager
def collection_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def call(port: int, said: bytes, *, hear: bool = True) -> bytes:
    """One connection, one call, and the status line; in a thread, for a client in this event loop would leave traces of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as caller:
        caller.sendall(said)
        return caller.makefile("rb").readline() if hear else b""


def request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: master", *headers, "", "")).encode()


async def left_by(world: World, said: bytes, status: bytes, *, hear: bool = True) -> int:
    """Objects in dead cycles, after `CALLS` such calls."""
    runner = runner_of(build_api(world.context), stop_grace_s=0.1)
    await runner.setup()
    listening = Listening(runner, limit=100)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await listening.begin(listener)

    async def once() -> None:
        assert status in await asyncio.to_thread(call, port, said, hear=hear)

    async def all_gone() -> None:
        assert runner.server is not None
        async with asyncio.timeout(20):
            while listening.connections.count or runner.server.requests_count <= CALLS:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)

    try:
        await once()  # what is made once is made now
        with collection_by_hand():
            for _ in range(CALLS):
                await once()
            await all_gone()
            return gc.collect()
    finally:
        await listening.end()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/me", b"200"), ("/api/v1/experiments", b"200"), ("/api/v1/experiments/999", b"404")],
)
async def test_calls_and_closed_connections_leave_no_dead_cycles(world: World, path: str, status: bytes) -> None:
    said = request(f"GET {path}", f"Authorization: Bearer {world.token}")
    assert await left_by(world, said, status) < ALLOWED


@pytest.mark.parametrize(
    ("said", "status"),
    [
        pytest.param(request("GET /nowhere"), b"404", id="no such path"),
        pytest.param(request("DELETE /api/v1/me"), b"405", id="no such method"),
        pytest.param(request("GET /api/v1/me", "Expect: a miracle"), b"417", id="an expectation"),
        pytest.param(b"GARBAGE\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(request(f"GET /{'a' * 70_000}"), b"400", id="a long line"),
    ],
)
async def test_who_is_not_known_leaves_no_dead_cycles(world: World, said: bytes, status: bytes) -> None:
    assert await left_by(world, said, status) < ALLOWED


async def test_a_body_that_is_cut_leaves_no_dead_cycles(world: World) -> None:
    said = request("POST /api/v1/experiments", f"Authorization: Bearer {world.token}", "Content-Length: 20000") + b"{"
    assert await left_by(world, said, b"", hear=False) < ALLOWED
