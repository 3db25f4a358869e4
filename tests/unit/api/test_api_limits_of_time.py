"""How long a caller may take, or may be held, where nobody gives another time: under virtual time, at the edge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from resolute.clock import LoopClock
from resolute.errors import InvalidInput, Unavailable
from resolute.ids import SeededIds
from resolute_master.api.auth.authenticate import Passwords, Tokens
from resolute_master.api.auth.authorise import Action, AllocationRef
from resolute_master.api.barriers import BARRIER_LIMIT_S, Barriers
from resolute_master.api.context import ApiContext
from resolute_master.api.http import limits
from resolute_master.api.http.admission import Admission
from resolute_master.api.http.bodies import read_body
from resolute_master.api.http.call import Call
from resolute_master.api.http.connections import Connections, protocol_of, runner_of
from resolute_master.api.http.serving import SERVING, Serving
from resolute_master.api.resources.allocations import MAX_POLL_S, preemption_signal
from resolute_master.api.resources.login import ROUTES as LOGIN_ROUTES
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId
from resolute_master.engine.reporting import Reporting
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.memory import MemoryStore
from support.agent_virtual import run_virtually
from support.api import KEY, master_config
from support.cluster import T0
from support.engines import AgentByHand, a_user, an_engine, an_experiment, running

REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Wire(asyncio.Transport):
    """The other end of a connection that stays open, and takes nothing of what is `unread`."""

    def __init__(self, unread: int = 0) -> None:
        super().__init__()
        self.unread = unread
        self.closed_at: float | None = None
        self.written = b""

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.closed_at = self.closed_at or asyncio.get_running_loop().time()

    def close(self) -> None:
        self.abort()


async def seconds(work: Coroutine[Any, Any, Any]) -> float:
    began = asyncio.get_running_loop().time()
    await work
    return asyncio.get_running_loop().time() - began


# -------------------------------------------------------------------------------------------------------- connections


@asynccontextmanager
async def swept(wire: Wire) -> AsyncIterator[asyncio.Protocol]:
    """A connection with nothing inside, looked at as often as in a master."""
    connections = Connections(asyncio.Protocol, limit=1)
    protocol = connections()
    protocol.connection_made(wire)
    assert isinstance(protocol, asyncio.Protocol)
    sweeping = asyncio.create_task(connections.sweep())
    try:
        yield protocol
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


def test_a_connection_without_a_head_is_closed_at_the_next_look_after_its_time() -> None:
    async def scenario() -> None:
        wire = Wire()
        async with swept(wire) as protocol:
            protocol.data_received(REQUEST[:-2])
            await asyncio.sleep(10 * limits.HEAD_S)
        assert wire.closed_at is not None
        assert limits.HEAD_S < wire.closed_at <= limits.HEAD_S + limits.SWEEP_S

    run_virtually(scenario())


def test_a_caller_who_takes_nothing_is_cut_off_at_the_next_look_after_its_time() -> None:
    async def scenario() -> None:
        wire, good = Wire(unread=100), Wire()
        async with swept(wire) as protocol, swept(good) as other:
            protocol.data_received(REQUEST)
            other.data_received(REQUEST)
            await asyncio.sleep(10 * limits.UNREAD_S)
        assert wire.closed_at is not None and good.closed_at is None
        # It is known to stand still from the second look on.
        assert limits.UNREAD_S < wire.closed_at <= limits.UNREAD_S + 3 * limits.SWEEP_S

    run_virtually(scenario())


def test_a_connection_between_requests_is_kept_so_long() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def scenario() -> None:
        app = web.Application()
        app.router.add_get("/", hello)
        runner = runner_of(app, stop_grace_s=0.1)
        await runner.setup()
        wire, protocol = Wire(), protocol_of(runner)()
        protocol.connection_made(wire)
        for _ in range(2):  # the second within the time of the first
            wire.written = b""
            protocol.data_received(REQUEST)
            await asyncio.sleep(limits.IDLE_S - 1)
            assert wire.written.endswith(b"hello") and wire.closed_at is None
        await asyncio.sleep(3)
        assert wire.closed_at is not None
        protocol.connection_lost(None)
        await runner.cleanup()

    run_virtually(scenario())


# ------------------------------------------------------------------------------------------------------------- bodies


def posted(declared: int, app: web.Application | None = None) -> tuple[web.Request, StreamReader]:
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.connection_made(Wire())
    payload = StreamReader(protocol, 2**20, loop=loop)
    headers = {"Content-Length": str(declared)}
    return make_mocked_request("POST", "/", headers=headers, payload=payload, app=app), payload


def test_a_body_has_its_time_and_a_second_more_for_so_many_bytes() -> None:
    declared = 10 * limits.BODY_BYTES_PER_S
    allowed_s = limits.BODY_FIRST_S + 10

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        for last_at, comes in ((allowed_s - 1, True), (10 * allowed_s, False)):
            request, payload = posted(declared)
            payload.feed_data(b"x" * (declared - 1))

            def last(payload: StreamReader = payload) -> None:
                payload.feed_data(b"x")
                payload.feed_eof()

            loop.call_later(last_at, last)
            began = loop.time()
            if comes:
                assert len(await read_body(request, declared)) == declared
            else:
                with pytest.raises(InvalidInput, match=f"within {allowed_s:.0f} s"):
                    await read_body(request, declared)
                assert loop.time() - began == pytest.approx(allowed_s, abs=0.001)

    run_virtually(scenario())


def test_a_body_that_falls_behind_its_rate_is_cut_off_long_before_the_time_of_all_of_it() -> None:
    """Declared as the largest upload, it would have more than an hour."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        request, payload = posted(limits.MAX_UPLOAD_BYTES)
        payload.feed_data(b"x" * limits.BODY_BYTES_PER_S)
        began = loop.time()
        with pytest.raises(InvalidInput, match="send it faster"):
            await read_body(request, limits.MAX_UPLOAD_BYTES)
        assert loop.time() - began == pytest.approx(limits.BODY_FIRST_S + 1)

    run_virtually(scenario())


def test_a_large_body_waits_so_long_for_its_turn() -> None:
    async def take(size: int) -> None:
        async with bodies.held(size):
            pass

    bodies = Admission().bodies

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        first = bodies.held(limits.MAX_BODIES_BYTES)
        await first.__aenter__()
        began = loop.time()
        with pytest.raises(Unavailable, match="other uploads"):
            await take(limits.MAX_UPLOAD_BYTES)
        assert loop.time() - began == limits.BODY_WAIT_S
        second = asyncio.create_task(seconds(take(limits.MAX_UPLOAD_BYTES)))
        await asyncio.sleep(limits.BODY_WAIT_S - 1)
        await first.__aexit__(None, None, None)
        assert await second == limits.BODY_WAIT_S - 1

    run_virtually(scenario())


# -------------------------------------------------------------------------------------------------------------- tasks


def test_members_of_a_gang_are_waited_for_so_long() -> None:
    async def scenario() -> None:
        loop, barriers, gang = asyncio.get_running_loop(), Barriers(), AllocationId("gang")
        with pytest.raises(Unavailable, match="1 of 2 members"):
            await barriers.gather(gang, "a", 2, {})
        assert loop.time() == BARRIER_LIMIT_S
        first = asyncio.create_task(barriers.gather(gang, "a", 2, {"n": 1}))
        await asyncio.sleep(BARRIER_LIMIT_S - 1)
        assert await barriers.gather(gang, "b", 2, {"n": 2}) == await first == ({"n": 1}, {"n": 2})

    run_virtually(scenario())


@asynccontextmanager
async def a_running_task(storage: Path) -> AsyncIterator[Callable[[int], Call]]:
    """Makes calls that ask for the preemption of its allocation, with the timeout that they name."""
    store, clock = MemoryStore(), LoopClock(T0, asyncio.get_running_loop())
    async with running(an_engine(store, clock=clock)) as engine:
        await AgentByHand(engine).register()
        await an_experiment(engine, await a_user(engine))
        reporting = Reporting(store, engine)
        context = ApiContext(
            engine=engine,
            store=store,
            reporting=reporting,
            clock=clock,
            ids=SeededIds(1),
            config=master_config(storage),
            tokens=Tokens(signing_key=KEY, engine=engine, clock=clock),
            passwords=Passwords(),
            cluster_id="c",
            master_id="m",
            version="0",
            join_token=JoinToken("the-token-of-the-cluster", kept=None),
        )

        def asking(timeout_s: int) -> Call:
            path = f"/?timeoutSeconds={timeout_s}"
            return Call(context, make_mocked_request("GET", path, transport=Wire()))

        yield asking
        await reporting.close()


def test_a_preemption_poll_is_held_as_long_as_it_asks_for_and_no_longer_than_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_running_task(tmp_path) as asking:
            for asked_s, held_s in ((0, 0), (MAX_POLL_S - 1, MAX_POLL_S - 1), (100 * MAX_POLL_S, MAX_POLL_S)):
                call = asking(asked_s)
                (allocation,) = call.api.engine.state.all(Allocation)
                assert await seconds(preemption_signal(call, AllocationRef(allocation.id))) == held_s

    run_virtually(scenario())


def test_the_body_of_a_call_without_a_token_is_waited_for_so_long(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with a_running_task(tmp_path) as asking:
            app = web.Application()
            app[SERVING] = Serving(asking(1).api)
            (login,) = [route for route in LOGIN_ROUTES if route.action is Action.PUBLIC]
            request, payload = posted(100, app)
            payload.feed_data(b"{")
            began = asyncio.get_running_loop().time()
            with pytest.raises(InvalidInput, match=f"within {limits.PUBLIC_BODY_FIRST_S:.0f} s"):
                await login.serve(request)
            assert asyncio.get_running_loop().time() - began == pytest.approx(limits.PUBLIC_BODY_FIRST_S, abs=0.001)

    run_virtually(scenario())
