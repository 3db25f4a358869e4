"""Probes, and what surrounds each request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import BaseTestServer, TestServer

from resolute import logs
from resolute.clock import SystemClock
from resolute.errors import Unavailable
from resolute.ids import SeededIds
from resolute_master.api.app import ROUTES
from resolute_master.api.http.application import build_application
from resolute_master.api.http.requests import REQUEST_ID_HEADER, Surroundings, Unobserved
from resolute_master.api.http.serving import Serving
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.api.resources.health import readiness, store_health
from resolute_master.store.memory import MemoryStore
from support.api import an_api


@asynccontextmanager
async def a_server(serving: Serving) -> AsyncIterator[tuple[BaseTestServer, ClientSession]]:
    surroundings = Surroundings(clock=SystemClock(), ids=SeededIds(5), observer=Unobserved())
    app = build_application(serving, surroundings, ROUTES)
    async with TestServer(app) as server, ClientSession() as http:
        yield server, http


async def asked(server: BaseTestServer, http: ClientSession, path: str) -> tuple[int, dict[str, Any]]:
    async with http.get(server.make_url(path)) as answer:
        return answer.status, json.loads(await answer.text())


# ------------------------------------------------------------------------------------------------------------ probes


async def test_probes_say_how_each_part_is_until_the_master_stops(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        serving = Serving(world.context)
        async with a_server(serving) as (server, http):
            status, body = await asked(server, http, "/ready")
            assert (status, body["ready"], body["stage"]) == (200, True, "serving")
            assert set(body["parts"]) == {"master", "engine", "store"}
            assert all(part["ok"] for part in body["parts"].values())
            assert await asked(server, http, "/health") == (
                200,
                {"status": "up", "database": "up", "resource_managers": [{"cluster_name": "default", "status": "up"}]},
            )
            serving.stop()
            status, body = await asked(server, http, "/ready")
            assert (status, body["stage"]) == (503, "stopping")
            assert body["parts"]["master"] == {"ok": False, "message": "the master is stopping"}
            assert (await asked(server, http, "/info"))[0] == 200  # what is under way is finished


async def test_unknown_paths_and_methods_are_told_apart(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world, a_server(Serving(world.context)) as (server, http):
        for method, path, status in (
            ("POST", "/ready", 405),
            ("HEAD", "/health", 405),
            ("PUT", "/info", 405),
            ("GET", "/api/v1/nothing", 404),
            ("GET", "/", 404),
        ):
            async with http.request(method, server.make_url(path)) as answer:
                assert answer.status == status, path


@pytest.mark.parametrize(("enable_cors", "status"), [(True, 200), (False, 405)])
async def test_a_preflight_of_another_site_is_answered_where_the_configuration_allows_it(
    tmp_path: Path, *, enable_cors: bool, status: int
) -> None:
    surroundings = Surroundings(clock=SystemClock(), ids=SeededIds(5), observer=Unobserved())
    asks = {"Access-Control-Request-Method": "GET"}
    async with an_api(tmp_path) as world:
        app = build_application(Serving(world.context), surroundings, ROUTES, enable_cors=enable_cors)
        async with (
            TestServer(app) as server,
            ClientSession() as http,
            http.options(server.make_url("/api/v1/master"), headers=asks) as answer,
        ):
            assert answer.status == status


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
        serving = Serving(world.context)
    # The world's engine ends with it.
    found = await readiness(serving)
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
        body = {"username": "ada", "password": "seeded-secret", "isHashed": False}
        assert (await world.send("POST", "/api/v1/auth/login", body)).status == 401
        agent = await world.agent()
        _, _, token = await world.started(agent)
        await world.send("GET", f"/api/v1/me?token={token}", token="seeded-secret")
        await world.send("GET", "/api/v1/me", headers={"Cookie": "auth=seeded-secret"}, token="")
        text = "\n".join(f"{line.message} {line.fields}" for line in ring.after(0))
    assert text and "seeded-secret" not in text and token not in text and world.token not in text


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
