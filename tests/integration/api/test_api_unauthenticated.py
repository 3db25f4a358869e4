"""A stranger who holds the door does not lock others out: half-sent bodies, crowds of connections, guessed passwords."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientSession, TCPConnector, web

from resolute.clock import FixedClock
from resolute.errors import LimitExceeded
from resolute.wire.rest.passwords import hash_password
from resolute_master.api.http import limits
from resolute_master.api.http.addresses import Addresses
from resolute_master.api.http.admission import Admission
from resolute_master.api.http.connections import Listening, Timeouts, runner_of
from support.api import PASSWORD, World, an_api

HALF = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n{"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def callers(port: int, count: int, *, at: str = "127.0.0.1") -> AsyncIterator[list[Streams]]:
    """Connections from one address, on which nothing is said yet."""
    opened: list[Streams] = []
    try:
        for _ in range(count):
            opened.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(at, 0)))
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened), return_exceptions=True)


async def log_in(world: World, *, at: str, name: str = "ada", password: str = PASSWORD) -> int:
    """The status of a login from this address."""
    async with ClientSession(connector=TCPConnector(local_addr=(at, 0))) as http:
        body = {"username": name, "password": hash_password(password), "isHashed": True}
        async with http.post(world.server.make_url("/api/v1/auth/login"), json=body) as response:
            await response.read()
            return response.status


async def until_unread(world: World, count: int, admission: Admission | None = None) -> None:
    unread = (admission or world.context.admission).unread
    async with asyncio.timeout(30):
        while unread.count != count:  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)


async def test_half_sent_bodies_take_no_login_away(world: World) -> None:
    """Neither from other addresses nor from those who share the stranger's."""
    count = limits.MAX_PUBLIC_REQUESTS + 10
    assert world.server.port is not None
    async with callers(world.server.port, count) as strangers:
        for _, writer in strangers:
            writer.write(HALF)
        await until_unread(world, count)
        assert await log_in(world, at="127.0.0.2") == 200
        assert await log_in(world, at="127.0.0.1") == 200
    await until_unread(world, 0)
    assert world.context.admission.requests == 0


async def test_the_most_crowded_address_loses_its_oldest_body_first(tmp_path: Path) -> None:
    admission = Admission(unread=3)
    async with an_api(tmp_path, admission=admission) as world:
        assert world.server.port is not None
        async with (
            callers(world.server.port, 1, at="127.0.0.2") as (other,),
            callers(world.server.port, 3) as crowd,
        ):
            other[1].write(HALF)
            await until_unread(world, 1, admission)
            for number, (_, writer) in enumerate(crowd):
                writer.write(HALF)
                await until_unread(world, min(3, number + 2), admission)
            oldest = await asyncio.wait_for(crowd[0][0].readuntil(b"\r\n\r\n"), 30)
            assert oldest.startswith(b"HTTP/1.1 429") and b"Retry-After: 1" in oldest
            assert other[0]._buffer == b""  # type: ignore[attr-defined]  # nothing was said to the other one
            other[1].write(b" " * 59)
            assert (await other[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")


async def test_so_many_bodies_are_waited_for_at_once() -> None:
    unread, release = Admission().unread, asyncio.Event()

    async def wait(address: str) -> None:
        async with unread.waiting(address):
            await release.wait()

    crowd = [asyncio.create_task(wait("crowd")) for _ in range(limits.MAX_UNREAD_PUBLIC_BODIES)]
    await asyncio.sleep(0)
    assert unread.count == len(crowd)
    clean = asyncio.create_task(wait("clean"))
    with pytest.raises(LimitExceeded, match="most of them from your address"):
        await crowd[0]
    assert unread.count == limits.MAX_UNREAD_PUBLIC_BODIES
    release.set()
    await asyncio.gather(clean, *crowd[1:])
    assert unread.count == 0


async def test_a_body_in_two_pieces_is_served(world: World) -> None:
    assert world.server.port is not None
    body = json.dumps({"username": "ada", "password": hash_password(PASSWORD), "isHashed": True}).encode()
    async with callers(world.server.port, 1) as ((reader, writer),):
        writer.write(b"POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body[:10])
        await until_unread(world, 1)
        writer.write(body[10:])
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


# -------------------------------------------------------------------------------------------------------- connections


async def test_when_all_connections_are_taken_the_most_crowded_address_loses_one_of_nobody() -> None:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    runner = runner_of(app, stop_grace_s=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    listening = Listening(runner, limit=5, timeouts=Timeouts(sweep_s=0.05))
    await listening.begin(listener)
    port = listener.getsockname()[1]
    try:
        async with (
            callers(port, 1, at="127.0.0.2") as (quiet,),
            callers(port, 4) as crowd,
            callers(port, 1, at="127.0.0.3") as (newcomer,),
        ):
            newcomer[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await newcomer[0].readuntil(b"hello")
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await crowd[0][0].readexactly(1)
            quiet[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await quiet[0].readuntil(b"hello")
            assert listening.connections.count == 5
    finally:
        await listening.end()
        await runner.cleanup()


# ------------------------------------------------------------------------------------------------------------- logins


async def test_guesses_are_slowed_down_and_the_user_gets_in_from_a_clean_address(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock) as world:
        for name in ("ada", "nobody"):  # a user and no user are told the same
            for _ in range(limits.FAILED_LOGINS):
                assert await log_in(world, at="127.0.0.2", name=name, password="guess") == 401
            assert await log_in(world, at="127.0.0.2", name=name, password="guess") == 429
        assert await log_in(world, at="127.0.0.2") == 429  # the right one is not told apart while the pause lasts
        assert await log_in(world, at="127.0.0.3") == 200
        clock.advance(limits.FIRST_LOGIN_PAUSE_S)
        assert await log_in(world, at="127.0.0.2") == 200
        assert await log_in(world, at="127.0.0.2", password="guess") == 401


async def test_many_guesses_at_once_are_no_more_guesses(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock) as world:
        answers = await asyncio.gather(*(log_in(world, at="127.0.0.2", password="guess") for _ in range(40)))
        assert answers.count(401) == limits.FAILED_LOGINS and answers.count(429) == 40 - limits.FAILED_LOGINS


async def test_many_right_logins_at_once_all_get_in(world: World) -> None:
    assert await asyncio.gather(*(log_in(world, at="127.0.0.2") for _ in range(20))) == [200] * 20


async def test_a_proxy_is_believed_only_where_it_is_named(tmp_path: Path) -> None:
    async with an_api(tmp_path, addresses=Addresses(["127.0.0.9/32"])) as world, AsyncExitStack() as stack:
        body = {"username": "ada", "password": "guess"}
        for at, refused in (("127.0.0.9", False), ("127.0.0.8", True)):
            http = await stack.enter_async_context(ClientSession(connector=TCPConnector(local_addr=(at, 0))))
            statuses = []
            for number in range(limits.FAILED_LOGINS + 1):
                headers = {"X-Forwarded-For": f"10.0.0.{number}"}
                async with http.post(
                    world.server.make_url("/api/v1/auth/login"), json=body, headers=headers
                ) as response:
                    statuses.append(response.status)
            assert (429 in statuses) is refused, at
