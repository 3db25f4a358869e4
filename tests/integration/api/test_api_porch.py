"""Who comes while the master starts: looked at on real sockets, let in in the right order, and never lost."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from resolute_master.api.http import porch as porches
from resolute_master.api.http.porch import Porch

FIRST = ("/first", "/ready")


class House:
    """Notes what the first line of each who is in was, in the order in which they came in; they are answered with `in`."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.inside = 0

    def enter(self) -> asyncio.Protocol:
        self.inside += 1
        return _Guest(self)


class _Guest(asyncio.Protocol):
    def __init__(self, house: House) -> None:
        self._house = house

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._house.came.append(data.decode().split()[1])
        self._transport.write(b"in")


class World:
    def __init__(self, listener: socket.socket, house: House, porch: Porch, running: asyncio.Task[None]) -> None:
        self.address = listener.getsockname()
        self.house = house
        self.porch = porch
        self.running = running
        self.callers: list[socket.socket] = []

    def call(self, said: str) -> socket.socket:
        caller = socket.create_connection(self.address)
        caller.setblocking(False)
        caller.send(said.encode())
        self.callers.append(caller)
        return caller

    async def until(self, came: Sequence[str]) -> None:
        async with asyncio.timeout(30):
            while len(self.house.came) < len(came):  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.001)
        assert self.house.came == list(came)


@asynccontextmanager
async def a_porch(
    *, room: int = 1000, wait_s: float = porches.WAIT_S, listener: socket.socket | None = None
) -> AsyncIterator[World]:
    house, listener = House(), listener or socket.create_server(("127.0.0.1", 0), backlog=1000)
    listener.setblocking(False)
    porch = Porch(listener, house.enter, first=FIRST, room=lambda: room, wait_s=wait_s)
    world = World(listener, house, porch, asyncio.create_task(porch.run()))
    try:
        yield world
    finally:
        world.running.cancel()
        with suppress(asyncio.CancelledError):
            await world.running
        for caller in world.callers:
            caller.close()
        listener.close()


def get(path: str) -> str:
    return f"GET {path} HTTP/1.1\r\n\r\n"


async def test_who_goes_first_is_let_in_while_the_master_starts_past_all_who_came_before() -> None:
    async with a_porch() as world:
        for number in range(200):
            world.call(get(f"/other/{number}"))
        world.call(get("/first/1"))
        world.call(get("/ready"))
        await world.until(["/first/1", "/ready"])
        assert world.house.inside == 2 and not world.running.done()


async def test_when_the_master_has_started_everybody_comes_in_in_order_and_nobody_is_lost() -> None:
    async with a_porch() as world:
        others = [f"/other/{number}" for number in range(100)]
        for path in others:
            world.call(get(path))
        world.call(get("/ready"))
        await world.until(["/ready"])
        world.porch.open()
        await world.running
        await world.until(["/ready", *others])


async def test_who_goes_first_is_served_before_the_others_may_come_in() -> None:
    async with a_porch() as world:
        first = [f"/first/{number}" for number in range(40)]
        world.call(get("/other"))
        for path in first:
            world.call(get(path))
        world.porch.open_to_first()
        await world.until(first)
        assert world.house.inside == len(first) and not world.running.done()
        world.porch.open()
        await world.running
        await world.until([*first, "/other"])


async def test_who_goes_first_overtakes_the_others_and_does_not_keep_them_out() -> None:
    async with a_porch() as world:
        for number in range(50):
            world.call(get(f"/other/{number}"))
        for number in range(40):
            world.call(get(f"/first/{number}"))
        world.porch.open()
        await world.running
        async with asyncio.timeout(30):
            while len(world.house.came) < 90:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.001)
        came = world.house.came
        last_of_the_first = came.index("/first/39")
        before = [path for path in came[:last_of_the_first] if path.startswith("/other")]
        # Four of the first in a turn and one of the others, and the last turn of the first may be a part of one.
        assert 0 < len(before) <= 40 // porches.FIRST_AT_ONCE + 1


async def test_who_says_nothing_or_has_gone_is_let_in_for_others_to_deal_with() -> None:
    async with a_porch() as world:
        silent = world.call("")
        world.call(get("/other/gone")[:2]).close()
        await asyncio.wait_for(_inside(world.house, 2), 30)
        silent.send(get("/late").encode())
        await world.until(["/late"])


async def _inside(house: House, number: int) -> None:
    while house.inside < number:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(0.001)


async def test_who_waits_for_too_long_is_let_in_to_be_told() -> None:
    async with a_porch(wait_s=0.0) as world:
        world.call(get("/other/1"))
        world.call(get("/other/2"))
        await world.until(["/other/1", "/other/2"])
        assert not world.running.done()


async def test_there_is_room_for_so_many_and_the_others_stay_in_the_kernel_until_there_is() -> None:
    async with a_porch(room=3) as world:
        others = [f"/other/{number}" for number in range(10)]
        for path in (*others, "/first"):
            world.call(get(path))
        await asyncio.sleep(0.1)
        assert world.house.inside == 0, "one was looked at who stands behind more than there is room for"
        world.porch.open()
        await world.running
        async with asyncio.timeout(30):
            while len(world.house.came) < 11:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.001)
        assert [path for path in world.house.came if path != "/first"] == others


async def test_who_still_waits_when_the_master_stops_is_sent_away() -> None:
    async with a_porch() as world:
        caller = world.call(get("/other"))
        world.call(get("/ready"))
        await world.until(["/ready"])
        world.running.cancel()
        await asyncio.gather(world.running, return_exceptions=True)
        with suppress(ConnectionResetError):
            assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""


class Exhausted(socket.socket):
    """Takes so many callers; then no file descriptor is left until `more`."""

    left = 0

    def accept(self) -> tuple[socket.socket, object]:
        if not self.left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.left -= 1
        return super().accept()


async def test_who_stands_here_goes_in_although_no_further_caller_can_be_taken() -> None:
    listener = Exhausted()
    listener.bind(("127.0.0.1", 0))
    listener.listen(100)
    listener.left = 20
    async with a_porch(listener=listener) as world:
        others = [f"/other/{number}" for number in range(40)]
        for path in others:
            world.call(get(path))
        world.porch.open()
        await world.until(others[:20])
        assert not world.running.done()
        listener.left = 1000
        await world.running
        await world.until(others)
