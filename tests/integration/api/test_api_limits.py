"""Each limit of the API at its edge: what fits is served, one more is refused in words, and nothing of it is stored."""

from __future__ import annotations

import asyncio
import io
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from resolute.errors import LimitExceeded
from resolute_master.api.app import ROUTES
from resolute_master.api.http import limits
from resolute_master.api.http.admission import Admission, ByteBudget
from resolute_master.api.http.connections import Listening, Timeouts, allow_open_files, runner_of
from resolute_master.api.http.protocol import prove
from resolute_master.api.resources.extensions import MAX_DECISIONS
from resolute_master.domain.change import Decision
from resolute_master.store.base import LogQuery
from resolute_master.store.memory import MemoryStore, MemoryTables
from support.api import a_config, an_api


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)


# -------------------------------------------------------------------------------------------------------- connections


@asynccontextmanager
async def a_server(handler: Any, *, limit: int = 100, **timeouts: float) -> AsyncIterator[tuple[Listening, int]]:
    app = web.Application()
    app.router.add_get("/", handler)
    runner = runner_of(app, stop_grace_s=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    listening = Listening(runner, limit=limit, timeouts=Timeouts(sweep_s=0.05, **timeouts))
    await listening.begin(listener)
    try:
        yield listening, listener.getsockname()[1]
    finally:
        await listening.end()
        await runner.cleanup()


async def hello(request: web.Request) -> web.Response:
    return web.Response(text="hello")


@asynccontextmanager
async def a_caller(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def known(request: web.Request) -> web.Response:
    prove(request)
    return web.Response(text="hello")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"b" * 20_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_what_cannot_be_read_is_one_line_of_the_log(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A stranger could fill the log with tracebacks."""
    caplog.set_level("INFO")
    async with a_server(hello) as (_, port), a_caller(port) as (reader, writer):
        writer.write(sent)
        assert (await reader.readline()).split()[1] == b"400"
    (line,) = [record for record in caplog.records if "127.0.0.1 cannot be read: " in record.message]
    assert "\n" not in line.message and len(line.message) < 400
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


async def test_a_body_that_nobody_asked_for_and_that_cannot_be_decoded_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: 15\r\n\r\n"
    async with a_server(hello) as (_, port), a_caller(port) as (reader, writer):
        writer.write(head + b"x\x9c not deflated")
        await reader.read()
    (line,) = [record for record in caplog.records if "127.0.0.1 cannot be read: " in record.message]
    assert "deflate" in line.message
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


async def test_one_connection_more_than_may_be_is_told_to_come_again() -> None:
    """Where each of the others is one on which a caller has logged in."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with a_server(known, limit=2) as (listening, port), ClientSession() as http, a_caller(port) as first:
        async with a_caller(port) as second:
            for reader, writer in (first, second):
                writer.write(request)
                await reader.readuntil(b"hello")
            async with http.get(f"http://127.0.0.1:{port}/") as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
                assert "as many connections as it may" in (await refused.json())["error"]["error"]
        await until(lambda: listening.connections.count == 1)
        async with http.get(f"http://127.0.0.1:{port}/") as served:
            assert await served.text() == "hello"


async def test_a_head_that_never_ends_is_cut_off_and_a_caller_between_requests_is_not() -> None:
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    async with a_server(hello, head_s=0.3) as (listening, port), a_caller(port) as slow, a_caller(port) as good:
        good[1].write(request)
        assert (await good[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        slow[1].write(b"GET / HTTP/1.1\r\n")
        while not slow[0].at_eof():
            slow[1].write(b"X-Slow: 1\r\n")
            await asyncio.wait([asyncio.create_task(ended(slow[0]))], timeout=0.05)
        assert listening.connections.count == 1
        good[1].write(request)
        assert (await good[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200")


async def test_a_further_head_that_never_ends_is_cut_off() -> None:
    async with a_server(hello, idle_s=0.3) as (listening, port), a_caller(port) as slow:
        slow[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n")
        assert (await slow[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        over = asyncio.create_task(ended(slow[0]))
        while not over.done():
            slow[1].write(b"X-Slow: 1\r\n")
            await asyncio.wait([over], timeout=0.05)
        await until(lambda: listening.connections.count == 0)


async def ended(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        reader.feed_eof()
        return b""


async def test_a_caller_who_takes_nothing_is_cut_off_and_a_slow_one_is_served() -> None:
    over: list[str] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1024 * 1024)
        finally:
            over.append(request.query["who"])

    async with a_server(endless, unread_s=0.5) as (_, port), a_caller(port) as deaf, a_caller(port) as slow:
        for who, (_, writer) in (("deaf", deaf), ("slow", slow)):
            writer.write(f"GET /?who={who} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        read = 0
        while not over:
            read += len(await slow[0].read(64 * 1024))
            await asyncio.sleep(0.001)
        assert over == ["deaf"] and read


def test_a_master_takes_as_many_connections_as_it_may_open_files() -> None:
    most = allow_open_files()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard
    assert most == (limits.MAX_CONNECTIONS if hard < 0 else min(limits.MAX_CONNECTIONS, hard - limits.SPARE_FILES))


async def test_heads_have_a_limit_for_their_first_line_and_for_each_field() -> None:
    async with a_server(hello) as (_, port), ClientSession() as http:
        url = f"http://127.0.0.1:{port}/"
        line = "x" * (limits.MAX_REQUEST_LINE_BYTES - 100)
        field = "x" * (limits.MAX_HEADER_BYTES - 100)
        async with http.get(f"{url}?{line}", headers={"X": field}) as response:
            assert response.status == 200
        async with http.get(f"{url}?{line}{line[:200]}") as response:
            assert response.status == 400
        async with http.get(url, headers={"X": field + field[:200]}) as response:
            assert response.status == 400


# ------------------------------------------------------------------------------------------------------------ requests


async def test_a_user_has_so_many_requests_at_once_and_no_more(tmp_path: Path) -> None:
    admission = Admission(per_user=3)
    async with an_api(tmp_path, admission=admission) as world:
        bob = await world.login("bob")
        agent = await world.agent()
        trial, _, task = await world.started(agent)
        path = f"/api/v1/trials/{trial.id}/logs?follow=true"
        followed = [await world.send("GET", path) for _ in range(3)]
        response = await world.send("GET", "/api/v1/me")
        text = (await response.json())["error"]["error"]
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert "user 'ada' has 3 open requests" in text
        # Neither another person nor the task is held up by it.
        assert (await world.send("GET", "/api/v1/me", token=bob)).status == 200
        assert (await world.send("GET", f"/api/v1/trials/{trial.id}", task=task)).status == 200
        followed.pop().close()
        await until(lambda: admission.requests == 2)
        await world.get("/api/v1/me")
        for response in followed:
            response.close()


async def test_a_task_has_so_many_requests_for_each_of_its_containers(tmp_path: Path) -> None:
    admission = Admission(per_container=2)
    async with an_api(tmp_path, admission=admission) as world:
        agent = await world.agent()
        _, allocation, task = await world.started(agent)
        path = f"/api/v1/allocations/{allocation.id}/signals/preemption?timeoutSeconds=60"
        polls = [asyncio.create_task(world.send("GET", path, task=task)) for _ in range(2)]
        await until(lambda: admission.requests == 2)
        text = await world.error("GET", path, task=task, status=429)
        assert f"task {allocation.task_id} has 2 open requests" in text
        await world.get("/api/v1/me")
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)


async def test_those_without_a_token_share_their_places(tmp_path: Path) -> None:
    admission = Admission(public=1)
    async with an_api(tmp_path, admission=admission) as world:
        await world.get("/api/v1/master", token="")
        with admission.request(None, "127.0.0.1"):
            assert "callers without a token" in await world.error("GET", "/api/v1/master", token="", status=429)
            await world.get("/api/v1/me")
        await world.get("/api/v1/master", token="")


async def test_without_other_orders_the_documented_limits_hold(tmp_path: Path) -> None:
    admission = Admission()
    async with an_api(tmp_path, admission=admission) as world, AsyncExitStack() as stack:
        _, allocation, task = await world.started(await world.agent())
        for caller, limit in (
            (None, limits.MAX_PUBLIC_REQUESTS_PER_ADDRESS),
            (world.context.tokens.read_bearer(world.token), limits.MAX_REQUESTS_PER_USER),
            (world.context.tokens.read_task(task), limits.MAX_REQUESTS_PER_CONTAINER * len(allocation.containers)),
        ):
            for _ in range(limit):
                stack.enter_context(admission.request(caller))
            with pytest.raises(LimitExceeded, match=str(limit)), admission.request(caller):
                pass


def test_addresses_share_the_public_places_and_each_has_a_first() -> None:
    admission = Admission()
    per_address, together = limits.MAX_PUBLIC_REQUESTS_PER_ADDRESS, limits.MAX_PUBLIC_REQUESTS
    with ExitStack() as stack:
        for number in range(together):
            stack.enter_context(admission.request(None, f"10.0.0.{number // per_address}"))
        with pytest.raises(LimitExceeded, match=f"your address have {per_address} open requests"):
            admission.request(None, "10.0.0.1")
        for number in range(limits.MAX_FIRST_PUBLIC_REQUESTS):
            stack.enter_context(admission.request(None, f"10.1.{number // 250}.{number % 250}"))
        with pytest.raises(LimitExceeded, match="together"):
            admission.request(None, "10.1.0.1")
        with pytest.raises(LimitExceeded, match="together"):
            admission.request(None, "10.2.0.1")
    assert admission.requests == 0


async def test_two_of_the_largest_uploads_are_held_at_once() -> None:
    bodies = Admission().bodies
    assert limits.MAX_BODIES_BYTES == 2 * limits.MAX_UPLOAD_BYTES
    async with bodies.held(limits.MAX_UPLOAD_BYTES):
        async with bodies.held(limits.MAX_UPLOAD_BYTES):
            third = asyncio.create_task(held(bodies, limits.MAX_UPLOAD_BYTES))
            await asyncio.sleep(0.05)
            assert not third.done()
        await third


async def test_a_caller_who_holds_a_share_of_the_bodies_does_not_keep_the_others_waiting() -> None:
    bodies = Admission().bodies
    assert limits.MAX_BODIES_BYTES_PER_CALLER == limits.MAX_UPLOAD_BYTES
    async with bodies.held(limits.MAX_UPLOAD_BYTES, "ada"):
        second = asyncio.create_task(held(bodies, limits.MAX_UPLOAD_BYTES, "ada"))
        await asyncio.sleep(0.05)
        assert not second.done()
        await held(bodies, limits.MAX_UPLOAD_BYTES, "bob")
    await second


async def held(bodies: ByteBudget, size: int, key: str | None = None) -> None:
    async with bodies.held(size, key):
        pass


def test_only_calls_that_carry_files_take_large_bodies() -> None:
    large = {f"{route.method} {route.path}" for route in ROUTES if route.max_body > limits.MAX_BODY_BYTES}
    assert large == {"POST /api/v1/experiments"}
    assert {route.max_body for route in ROUTES} == {
        limits.LARGE_BODY_BYTES,
        limits.MAX_BODY_BYTES,
        limits.MAX_UPLOAD_BYTES,
    }


# -------------------------------------------------------------------------------------------------------------- bodies


async def test_the_body_of_an_ordinary_call_and_of_one_without_a_token_have_limits_of_their_own(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        fits = json.dumps({"a": "x" * (limits.MAX_PUBLIC_BODY_BYTES - 9)}).encode()
        assert len(fits) == limits.MAX_PUBLIC_BODY_BYTES
        for extra, status in ((0, 401), (1, 413)):
            response = await world.http.post(
                world.server.make_url("/api/v1/auth/login"), data=io.BytesIO(fits + b" " * extra)
            )
            assert response.status in ((400, 401) if status == 401 else (413,)), await response.text()
        assert "64 KiB" in await response.text()
        await world.agent()
        created = (await world.create())["id"]
        for extra, status in ((0, 200), (1, 413)):
            response = await world.http.patch(
                world.server.make_url(f"/api/v1/experiments/{created}"),
                data=io.BytesIO(b" " * (limits.MAX_BODY_BYTES + extra)),
                headers={"Authorization": f"Bearer {world.token}"},
            )
            assert response.status == status, await response.text()
        assert "16 MiB" in await response.text()


async def test_a_body_without_a_length_is_counted_as_it_comes(tmp_path: Path) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65536

    async with an_api(tmp_path, max_request_bytes=1024 * 1024) as world:
        try:
            response = await world.http.post(
                world.server.make_url("/api/v1/experiments"),
                data=endless(),
                headers={"Authorization": f"Bearer {world.token}"},
            )
            assert response.status == 413
        except (ConnectionError, OSError):
            pass  # the answer was sent and the connection closed while the caller went on
        assert (await world.get("/api/v1/me"))["user"]["username"] == "ada"
        assert world.context.admission.requests == 0


async def test_compressed_bodies_are_not_read(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        text = await world.error("POST", "/api/v1/experiments", {}, status=400, headers={"Content-Encoding": "gzip"})
        assert "gzip" in text


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"[" * (limits.MAX_JSON_DEPTH + 1) + b"]" * (limits.MAX_JSON_DEPTH + 1), "more than 100 deep"),
        (b'{"a":[' + b"0," * limits.MAX_JSON_VALUES + b"0]}", "more than 1,000,000 values"),
    ],
)
async def test_bodies_that_are_built_to_be_large_are_refused(tmp_path: Path, raw: bytes, named: str) -> None:
    async with an_api(tmp_path) as world:
        response = await world.http.post(
            world.server.make_url("/api/v1/experiments"),
            data=io.BytesIO(raw),
            headers={"Authorization": f"Bearer {world.token}"},
        )
        assert response.status == 400 and named in await response.text()
        assert world.context.store.tables.contexts == {}  # type: ignore[attr-defined]


async def test_large_bodies_wait_for_their_turn_in_order_and_not_for_ever() -> None:
    mib = 1024 * 1024
    budget = ByteBudget(10 * mib, wait_s=0.2)
    order: list[str] = []

    async def upload(name: str, size: int, release: asyncio.Event) -> None:
        async with budget.held(size):
            order.append(name)
            await release.wait()

    first, second = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(upload("first", 8 * mib, first))]
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(upload("second", 9 * mib, second)))
    tasks.append(asyncio.create_task(upload("third", 2 * mib, second)))
    tasks.append(asyncio.create_task(upload("small", limits.LARGE_BODY_BYTES, second)))
    await asyncio.sleep(0.01)
    assert order == ["first", "small"]  # the third would fit, but not before the second
    first.set()
    await asyncio.sleep(0.01)
    assert order == ["first", "small", "second"]
    with pytest.raises(Exception, match="reading other uploads"):
        await tasks[2]
    second.set()
    await asyncio.gather(tasks[0], tasks[1], tasks[3])
    async with budget.held(1000 * mib):  # larger than all: alone, and it is the body's own limit that refuses it
        assert order[-1] == "second"


# ------------------------------------------------------------------------------------------------------ logs, metrics


async def test_lines_of_a_post_and_lines_from_the_end(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        trial, _, task = await world.started(await world.agent())

        async def stored() -> int:
            return len(await world.context.store.logs(LogQuery(task_ids=(trial.task_id,), sources=("task",))))

        def lines(count: int) -> dict[str, Any]:
            return {"logs": [{"taskId": trial.task_id, "log": "x\n"}] * count}

        most = limits.MAX_LOG_LINES_PER_POST
        text = await world.error("POST", "/api/v1/task/logs", lines(most + 1), status=400, task=task)
        assert f"{most + 1} lines are over the limit of {most}" in text and await stored() == 0
        await world.post("/api/v1/task/logs", lines(most), task=task)
        assert await stored() == most
        nothing = f"/api/v1/trials/{trial.id}/logs?sources=nobody"
        tail = f"{nothing}&orderBy=ORDER_BY_DESC&limit="
        assert await world.lines(f"{tail}{limits.MAX_LOG_TAIL}") == []
        for limit in (limits.MAX_LOG_TAIL + 1, 0):
            assert f"1 to {limits.MAX_LOG_TAIL}" in await world.error("GET", f"{tail}{limit}", status=400)
        searched = "x" * limits.MAX_SEARCH_LENGTH
        assert await world.lines(f"{nothing}&searchText={searched}") == []
        assert "searchText" in await world.error("GET", f"{nothing}&searchText={searched}x", status=400)


async def test_a_posted_line_that_is_too_long_goes_on_as_the_next(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        trial, _, task = await world.started(await world.agent())
        longest = "x" * limits.MAX_LINE_LENGTH
        for text, pieces in ((longest, [longest]), (longest + "yz\n", [longest, "yz"]), ("", [""]), ("a\n", ["a"])):
            before = len(await world.lines(f"/api/v1/tasks/{trial.task_id}/logs?sources=task"))
            await world.post("/api/v1/task/logs", {"logs": [{"taskId": trial.task_id, "log": text}]}, task=task)
            found = await world.lines(f"/api/v1/tasks/{trial.task_id}/logs?sources=task")
            assert [line["result"]["log"].removesuffix("\n") for line in found[before:]] == pieces


async def test_names_of_metrics_and_how_many_there_are(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        trial, _, task = await world.started(await world.agent())

        async def report(step: int, metrics: dict[str, float], group: str = "training", status: int = 200) -> str:
            body = {
                "group": group,
                "metrics": {
                    "trialId": trial.id,
                    "trialRunId": trial.run_id,
                    "stepsCompleted": step,
                    "metrics": {"avgMetrics": metrics},
                },
            }
            answer = await world.call("POST", f"/api/v1/trials/{trial.id}/metrics", body, task=task, status=status)
            return "" if status == 200 else str(answer["error"]["error"])

        many = {f"m{n}": 1.0 for n in range(limits.MAX_METRIC_NAMES)}
        await report(1, many)
        assert "over the limit" in await report(2, {**many, "one more": 1.0}, status=400)
        await report(3, {"x" * limits.MAX_METRIC_NAME_LENGTH: 1.0})
        assert "shorten" in await report(4, {"x" * (limits.MAX_METRIC_NAME_LENGTH + 1): 1.0}, status=400)
        await report(5, {"a": 1.0}, group="g" * limits.MAX_GROUP_LENGTH)
        assert "group" in await report(6, {"a": 1.0}, group="g" * (limits.MAX_GROUP_LENGTH + 1), status=400)
        stored = await world.context.store.metrics(trial.id)
        assert sorted(row.steps_completed or 0 for row in stored) == [1, 3, 5]
        ids = "&".join(f"trialIds={n}" for n in range(limits.MAX_TRIALS_PER_STREAM + 1))
        path = f"/api/v1/trials/metrics/training_metrics?{ids}"
        assert "trialIds" in await world.error("GET", path, status=400)


async def test_large_names_and_searches_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        created = (await world.create())["id"]
        searcher = {"name": "random", "metric": "loss", "max_trials": limits.MAX_TRIALS + 1}
        for changes, key in (
            ({"name": "x" * (limits.MAX_NAME_LENGTH + 1)}, "name"),
            ({"labels": ["x" * (limits.MAX_LABEL_LENGTH + 1)]}, "labels"),
            ({"searcher": searcher}, "searcher.max_trials"),
        ):
            body = {"config": json.dumps(a_config(**changes)), "activate": True}
            assert key in await world.error("POST", "/api/v1/experiments", body, status=400)
        patch = {"notes": "x" * (limits.MAX_NOTES_LENGTH + 1)}
        assert "notes" in await world.error("PATCH", f"/api/v1/experiments/{created}", patch, status=400)
        shown = await world.get("/api/v1/experiments")
        assert [row["id"] for row in shown["experiments"]] == [created] and not shown["experiments"][0]["notes"]


async def test_a_list_of_decisions_has_the_newest_of_so_many(tmp_path: Path) -> None:
    count = MAX_DECISIONS + 1
    made = [
        Decision(at=datetime(2026, 1, 1, tzinfo=UTC), pool="old", kind="place", subject=f"s{n}", reason="r")
        for n in range(count)
    ]
    async with an_api(tmp_path, store=MemoryStore(MemoryTables(decisions=made))) as world:

        async def subjects(limit: int) -> list[str]:
            found = (await world.get(f"/api/v1/decisions?limit={limit}"))["decisions"]
            return [each["subject"] for each in found]

        stored = [each.subject for each in await world.context.store.decisions(2 * count)]
        assert len(stored) >= count
        for limit, shown in (
            (MAX_DECISIONS - 1,) * 2,
            (MAX_DECISIONS,) * 2,
            (count, MAX_DECISIONS),
            (0, MAX_DECISIONS),
        ):
            assert await subjects(limit) == stored[-shown:]
