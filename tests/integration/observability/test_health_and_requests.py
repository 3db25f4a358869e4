"""Probes at any time of a master's life, and what surrounds each request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import BaseTestServer, TestServer

from resolute import logs
from resolute.clock import FixedClock, SystemClock
from resolute.errors import Unavailable
from resolute.ids import SeededIds
from resolute_master.agents.websocket import add_agent_link
from resolute_master.api.app import ROUTES, build_complete
from resolute_master.api.http.doors import add_routes, build_doors
from resolute_master.api.http.opening import Opening
from resolute_master.api.http.requests import REQUEST_ID_HEADER, UNKNOWN_ROUTE, Answered, Surroundings, Unobserved
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.api.resources.health import readiness, store_health
from resolute_master.store.memory import MemoryStore
from support.api import an_api


@asynccontextmanager
async def doors(opening: Opening) -> AsyncIterator[tuple[TestServer, ClientSession]]:
    surroundings = Surroundings(clock=SystemClock(), ids=SeededIds(5), observer=Unobserved())
    async with TestServer(build_complete(opening, surroundings)) as server, ClientSession() as http:
        yield server, http


async def asked(server: BaseTestServer, http: ClientSession, path: str) -> tuple[int, dict[str, Any]]:
    async with http.get(server.make_url(path)) as answer:
        return answer.status, json.loads(await answer.text())


# ------------------------------------------------------------------------------------------------------------- start


async def test_probes_are_heardbefore_the_master_has_started_and_others_wait(tmp_path: Path) -> None:
    opening = Opening(cluster_name="default")
    opening.doing = "the state is being loaded"
    async with an_api(tmp_path) as world, doors(opening) as (server, http):
        status, body = await asked(server, http, "/ready")
        assert (status, body["ready"], body["stage"]) == (503, False, "starting")
        assert body["parts"] == {"start": {"ok": False, "message": "the state is being loaded"}}
        assert (await asked(server, http, "/health"))[0] == 503
        early = asyncio.create_task(asked(server, http, "/info"))
        assert (await asked(server, http, "/ready"))[0] == 503 and not early.done()
        opening.open(world.context)
        status, body = await early
        assert (status, body["cluster_id"]) == (200, "cluster-1")
        status, body = await asked(server, http, "/ready")
        assert (status, body["ready"], body["stage"]) == (200, True, "serving")
        assert set(body["parts"]) == {"start", "engine", "store"} and all(part["ok"] for part in body["parts"].values())
        assert await asked(server, http, "/health") == (
            200,
            {"status": "up", "database": "up", "resource_managers": [{"cluster_name": "default", "status": "up"}]},
        )
        opening.stop()
        status, body = await asked(server, http, "/ready")
        assert (status, body["stage"]) == (503, "stopping")
        assert (await asked(server, http, "/info"))[0] == 200  # what is under way is finished


async def test_those_who_have_waited_come_in_in_turn_and_who_comes_meanwhile_stands_behind_them(tmp_path: Path) -> None:
    opening = Opening()
    came: list[str] = []

    async def come(name: str) -> None:
        await opening.context()
        came.append(name)

    async with an_api(tmp_path) as world:
        early = [asyncio.create_task(come(f"early {number}")) for number in range(20)]
        gone = asyncio.create_task(come("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        opening.open(world.context)
        assert opening.free is None and opening.now is world.context
        await asyncio.sleep(0)
        late = asyncio.create_task(come("late"))
        await asyncio.sleep(0)
        assert "late" not in came and len(came) < 20, "all of them in one turn"
        await asyncio.gather(*early, late)
        assert came == [*(f"early {number}" for number in range(20)), "late"]
        assert opening.free is world.context, "nobody waits any more"


async def test_who_waits_too_long_is_told_to_come_again() -> None:
    opening = Opening(wait_s=0.0)
    opening.doing = "the database does not answer yet"
    async with doors(opening) as (server, http):
        status, body = await asked(server, http, "/api/v1/experiments")
        assert status == 503 and "still starting (the database does not answer yet)" in str(body)
        opening.stop()
        status, body = await asked(server, http, "/api/v1/experiments")
        assert status == 503 and "stops before it has started" in str(body)


class Counted(Unobserved):
    def __init__(self) -> None:
        self.heard: list[Answered] = []

    def answered(self, answered: Answered) -> None:
        self.heard.append(answered)


async def test_who_is_refused_during_a_start_is_counted_with_the_wait_and_under_no_route_and_nothing_is_kept() -> None:
    opening, clock, counted = Opening(), FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), Counted()
    surroundings = Surroundings(clock=clock, ids=SeededIds(5), observer=counted)
    async with TestServer(build_doors(opening, surroundings)) as server, ClientSession() as http:
        early = [asyncio.create_task(asked(server, http, f"/api/v1/trials/{number}")) for number in range(10)]
        async with asyncio.timeout(30):
            while len(opening._waiting) < len(early):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
        clock.advance(7.0)
        opening.stop()
        assert {status for status, _ in await asyncio.gather(*early)} == {503}
    assert {(each.route, each.status, each.seconds) for each in counted.heard} == {(UNKNOWN_ROUTE, 503, 7.0)}
    assert len(surroundings._routes) == 1


async def test_paths_and_methods_that_nobody_serves_are_told_apart_at_the_doors_and_behind_them(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world, doors(Opening.opened(world.context)) as (server, http):
        for method, path, status in (
            ("POST", "/ready", 405),
            ("PUT", "/info", 405),
            ("GET", "/api/v1/nothing", 404),
            ("GET", "/", 404),
        ):
            async with http.request(method, server.make_url(path)) as answer:
                assert answer.status == status, path


@pytest.mark.parametrize("stage", ["starting", "serving"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("HEAD", "/health"), ("POST", "/health"), ("POST", "/agents/link")],
)
async def test_methods_that_the_doors_do_not_serve_are_told_at_once_at_any_time(
    tmp_path: Path, stage: str, method: str, path: str
) -> None:
    opening = Opening(wait_s=0.0)  # who waits is refused with 503
    surroundings = Surroundings(clock=SystemClock(), ids=SeededIds(5), observer=Unobserved())
    app = build_doors(opening, surroundings)
    add_agent_link(app, asyncio.Event().wait)  # type: ignore[arg-type]  # nobody gets in
    async with an_api(tmp_path) as world, TestServer(app) as server, ClientSession() as http:
        if stage == "serving":
            add_routes(app, ROUTES)
            opening.open(world.context)
        async with http.request(method, server.make_url(path)) as answer:
            assert answer.status == 405


@pytest.mark.parametrize(("enable_cors", "status"), [(True, 200), (False, 404)])
async def test_who_asks_what_a_page_of_another_site_may_do_need_not_wait_for_the_start(
    *, enable_cors: bool, status: int
) -> None:
    surroundings = Surroundings(clock=SystemClock(), ids=SeededIds(5), observer=Unobserved())
    app = build_doors(Opening(wait_s=0.0), surroundings, enable_cors=enable_cors)
    asks = {"Access-Control-Request-Method": "GET"}
    async with TestServer(app) as server, ClientSession() as http:
        async with http.options(server.make_url("/api/v1/master"), headers=asks) as answer:
            assert answer.status == status
        async with http.get(server.make_url("/api/v1/master")) as answer:
            assert answer.status == 503


class HangingStore(MemoryStore):
    async def ping(self) -> None:
        await asyncio.Event().wait()


class LostStore(MemoryStore):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def ping(self) -> None:
        raise self.error


async def test_a_store_that_hangs_or_fails_makes_the_master_unready() -> None:
    hanging = await store_health(HangingStore(), within_s=0.0)
    assert not hanging.ok and "has not answered within 0 s" in hanging.message
    told = await store_health(LostStore(Unavailable("the database is away")))
    assert (told.ok, told.message) == (False, "the database is away")
    driver = await store_health(LostStore(OSError("cannot connect to 10.0.0.7 as resolute with hunter2")))
    assert not driver.ok and "hunter2" not in driver.message


async def test_an_engine_that_has_stopped_makes_the_master_unready(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        opening = Opening.opened(world.context)
    # The world's engine ends with it.
    found = await readiness(opening)
    assert not found.ready and not found.parts["engine"].ok and "has stopped" in found.parts["engine"].message


# ---------------------------------------------------------------------------------------------------------- requests


@asynccontextmanager
async def lines_of(name: str) -> AsyncIterator[LogRing]:
    """What is logged below a name, as the master would keep it."""
    ring, logger = LogRing(), logging.getLogger(name)
    ring.addFilter(logs.Stamp())
    before = logger.level
    logger.addHandler(ring)
    logger.setLevel(logging.DEBUG)
    try:
        yield ring
    finally:
        logger.removeHandler(ring)
        logger.setLevel(before)


async def test_each_request_has_an_id_that_is_returned_and_logged(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world, lines_of("resolute_master.api.access") as ring:
        drawn = (await world.send("GET", "/api/v1/me")).headers[REQUEST_ID_HEADER]
        given = await world.send("GET", "/api/v1/me", headers={REQUEST_ID_HEADER: "from-a-proxy:7"})
        assert given.headers[REQUEST_ID_HEADER] == "from-a-proxy:7"
        refused = await world.send("GET", "/api/v1/experiments/77", headers={REQUEST_ID_HEADER: "a b\tc"})
        assert refused.status == 404 and refused.headers[REQUEST_ID_HEADER] not in ("", "a b\tc")
        stream = await world.send("GET", "/api/v1/master/logs", headers={REQUEST_ID_HEADER: "streamed"})
        assert stream.headers[REQUEST_ID_HEADER] == "streamed"
        await stream.read()
        lines = ring.after(0)
    assert [line.fields["request_id"] for line in lines] == [
        drawn,
        "from-a-proxy:7",
        refused.headers[REQUEST_ID_HEADER],
        "streamed",
    ]
    assert {line.fields["user"] for line in lines} == {"ada"}


async def test_what_the_access_log_holds_and_how_loudly(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world, lines_of("resolute_master.api.access") as ring:
        agent = await world.agent()
        trial, allocation, token = await world.started(agent)
        mark = {"steps_completed": 1, "at": "2026-01-01T00:00:00Z", "checkpointing_s": 0.0}
        await world.send("POST", f"/api/v1/allocations/{allocation.id}/step_marks", {"marks": [mark]}, task=token)
        await world.get(f"/api/v1/trials/{trial.id}?secret=of-the-query")
        await world.error("GET", "/api/v1/nothing", status=404)
        lines = ring.after(0)
    created, marked, read, nothing = lines
    assert (created.level, created.fields["user"]) == ("INFO", "ada")
    assert created.message.startswith("resolute_master.api.access: POST /api/v1/experiments 200 in ")
    assert (marked.level, marked.fields["allocation"]) == ("DEBUG", allocation.id)
    assert (read.level, read.fields["trial"]) == ("DEBUG", str(trial.id))
    assert "of-the-query" not in read.message
    assert nothing.level == "DEBUG" and "user" not in nothing.fields


async def test_no_password_and_no_token_is_logged(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world, lines_of("resolute_master") as ring:
        await world.login("ada")
        body = {"username": "ada", "password": "planted-secret", "isHashed": False}
        assert (await world.send("POST", "/api/v1/auth/login", body)).status == 401
        agent = await world.agent()
        _, _, token = await world.started(agent)
        await world.send("GET", f"/api/v1/me?token={token}", token="planted-secret")
        await world.send("GET", "/api/v1/me", headers={"Cookie": "auth=planted-secret"}, token="")
        text = "\n".join(f"{line.message} {line.fields}" for line in ring.after(0))
    assert text and "planted-secret" not in text and token not in text and world.token not in text


@pytest.mark.parametrize("since, expected", [("before", 2), ("between", 1), ("after", 0)])
async def test_the_master_s_log_since_a_time(tmp_path: Path, since: str, expected: int) -> None:
    clock = SystemClock()
    async with an_api(tmp_path) as world:
        ring = world.context.master_log
        ring.addFilter(logs.Stamp())
        logger = logging.getLogger("resolute_master.test")
        logger.addHandler(ring)
        try:
            times = {"before": clock.now()}
            with logs.about(experiment=7):
                logger.warning("one")
            times["between"] = clock.now()
            logger.warning("two")
            times["after"] = clock.now()
        finally:
            logger.removeHandler(ring)
        moment = times[since].isoformat().replace("+00:00", "Z")
        found = await world.lines(f"/api/v1/master/logs?timestampAfter={moment}")
        assert len(found) == expected
        if expected == 2:
            entry = found[0]["result"]["logEntry"]
            assert (entry["logger"], entry["fields"]) == ("resolute_master.test", {"experiment": "7"})
