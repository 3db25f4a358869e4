"""What a call and its connection leave behind is freed by the last reference: no garbage collection has to find it."""

from __future__ import annotations

import asyncio
import gc
import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from resolute_master.api.app import build_api
from resolute_master.api.connections import Listening, runner_of
from support.api import World

CALLS = 30


@contextmanager
def collection_by_hand() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def call(port: int, path: str, token: str) -> int:
    """One connection, one call; in a thread, for a client in this event loop would leave traces of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@pytest.mark.parametrize(
    ("path", "status"),
    [("/api/v1/me", 200), ("/api/v1/experiments", 200), ("/api/v1/experiments/999", 404)],
)
async def test_calls_and_closed_connections_leave_no_dead_cycles(world: World, path: str, status: int) -> None:
    runner = runner_of(build_api(world.context), stop_grace_s=0.1)
    await runner.setup()
    listening = Listening(runner, limit=100)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listening.begin(listener)
    listening.open()
    try:
        assert await asyncio.to_thread(call, port, path, world.token) == status  # what is made once is made now
        with collection_by_hand():
            for _ in range(CALLS):
                assert await asyncio.to_thread(call, port, path, world.token) == status
            async with asyncio.timeout(20):
                while listening.connections.count:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            assert gc.collect() < CALLS
    finally:
        await listening.end()
        await runner.cleanup()
