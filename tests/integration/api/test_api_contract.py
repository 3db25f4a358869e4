"""Every route against the contract: known paths, complete answers, and one gate for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api.app import ALL_ROUTES, ROUTES, build_api
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Route
from resolute_master.api.resources import not_yet
from resolute_master.api.resources.health import Probe
from resolute_master.api.resources.monitoring import Scrape
from resolute_master.domain.change import Decision
from resolute_master.domain.instance import Instance
from resolute_master.store.memory import MemoryStore
from support.api import World, a_config, a_file, an_api
from support.rest_schema import Endpoint, contract

EXTENSIONS = {
    ("GET", "/api/v1/instances"),
    ("GET", "/api/v1/decisions"),
    ("GET", "/api/v1/ledger"),
    ("GET", "/api/v1/cost"),
    ("GET", "/api/v1/budgets"),
    ("PUT", "/api/v1/resource-pools/{}/budget"),
    ("PUT", "/api/v1/workspaces/{}/budget"),
    ("PUT", "/api/v1/experiments/{}/max_cost"),
    ("GET", "/api/v1/experiments/{}/cost"),
    ("GET", "/api/v1/jobs/{}/explain"),
    ("GET", "/api/v1/resource-pools/{}/starts"),
    ("GET", "/api/v1/resource-pools/{}/snapshot"),
    ("GET", "/api/v1/resource-pools/{}/offers"),
    ("GET", "/api/v1/resource-pools/{}/advice"),
    ("GET", "/api/v1/trials/{}/allocations"),
    ("POST", "/api/v1/allocations/{}/step_marks"),
    ("POST", "/api/v1/trials/{}/metrics/batch"),
    ("GET", "/api/v1/agent-join-token"),
    ("GET", "/tasks"),
    ("POST", "/api/v1/agent-join-token/rotate"),
    ("POST", "/api/v1/agents/{}/forget"),
    ("GET", "/api/v1/trials/{}/searcher/operation"),
    ("POST", "/api/v1/trials/{}/searcher/completed_operation"),
    ("GET", "/api/v1/experiments/{}/search"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/prom/det-state-metrics"),
    ("GET", "/debug/prom/metrics"),
    ("GET", "/prom/det-http-sd-config"),
}
"""What this master serves beyond the contract."""


NEEDED_QUERIES = {"/api/v1/trials/time-series": "?trialIds={trialId}&metricNames=loss"}
"""Queries of calls that need one."""


def shape(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def test_every_route_is_in_the_contract_or_a_named_extension() -> None:
    known = {(e.method, shape(e.path)) for e in contract().endpoints} | EXTENSIONS
    known |= {(method, shape(path)) for method, path in contract().uncalled}
    assert [f"{r.method} {r.path}" for r in ROUTES if (r.method, shape(r.path)) not in known] == []


def test_the_main_path_is_served() -> None:
    served = {(r.method, shape(r.path)) for r in ROUTES}
    missing = {
        e.operation or e.path for e in contract().endpoints if e.tier == "A" and (e.method, shape(e.path)) not in served
    }
    assert missing == set()


def test_no_route_is_listed_twice() -> None:
    paths = [(r.method, shape(r.path)) for r in ROUTES]
    assert len(paths) == len(set(paths))


async def test_the_application_serves_the_table_and_nothing_else(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        app = build_api(world.context)
    handlers = [r.handler for r in app.router.routes() if r.method != "HEAD"]
    assert {getattr(h, "__self__", None) for h in handlers} == set(ALL_ROUTES)
    assert {getattr(h, "__func__", None) for h in handlers} == {Route.serve, Probe.serve, Scrape.serve}


def test_every_other_call_of_the_contract_is_known_as_not_served_yet() -> None:
    served = {(r.method, shape(r.path)) for r in ROUTES}
    wanted = {(e.method, e.path) for e in contract().endpoints if e.tier != "C" and e.method != "ANY"}
    wanted |= set(contract().uncalled)
    missing = {(method, path) for method, path in wanted if (method, shape(path)) not in served}
    assert {(r.method, r.path) for r in not_yet.ROUTES} == missing


async def test_what_is_not_served_yet_says_so(world: World) -> None:
    """No parameter of another call takes its path."""
    for route in not_yet.ROUTES:
        path = re.sub(r"\{[^}]*\}", "1", route.path)
        answer = await world.call(route.method, path, status=501)
        assert f"does not serve {route.method} {path} yet" in str(answer)
        if path.startswith("/api/"):
            assert (answer["error"]["code"], answer["error"]["reason"]) == (12, "Unimplemented")
        assert "token missing" in str(await world.call(route.method, path, status=401, token=""))


# ------------------------------------------------------------------------------------------------------------- gate

PUBLIC = {"/info", "/health", "/ready", "/api/v1/master", "/api/v1/auth/login"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
async def test_every_route_asks_who_is_there(world: World, route: Route) -> None:
    """Without a token, and with a wrong one, only the public routes do anything."""
    path = re.sub(r"\{[^}]*\}", "1", route.path)
    if route.action is Action.PUBLIC:
        assert route.path in PUBLIC
        return
    for headers, text in (({}, "token missing"), ({"Authorization": "Bearer x.y.z"}, "invalid credentials")):
        answer = await world.call(route.method, path, status=401, token="", headers=headers)
        assert text in str(answer)


# ---------------------------------------------------------------------------------------------------------- answers


def check(value: Any, type_: str, where: str) -> None:
    """Required keys are there and not null; enums have names that the contract knows."""
    schema = contract()
    if type_.startswith("list["):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            check(item, type_[5:-1], f"{where}[{index}]")
    elif type_ in schema.enums:
        assert value in schema.enums[type_], f"{where}: {value}"
    elif type_ in schema.types:
        assert isinstance(value, dict), f"{where}: {value!r}"
        for name, field in schema.types[type_].items():
            if field["required"]:
                assert value.get(name) is not None, f"{where}.{name} is missing"
            if value.get(name) is not None:
                check(value[name], field["type"], f"{where}.{name}")
    else:
        kinds = {"string": str, "boolean": bool, "int": int, "float": (int, float, str), "object": dict}
        if type_ in kinds:
            assert isinstance(value, kinds[type_]), f"{where}: {value!r} is no {type_}"


def endpoint(method: str, path: str) -> Endpoint:
    (found,) = [e for e in contract().endpoints if (e.method, shape(e.path)) == (method, shape(path))]
    return found


async def test_answers_have_what_the_contract_requires(world: World) -> None:
    agent = await world.agent()
    trial, allocation, task = await world.started(agent)
    await world.post(
        f"/api/v1/trials/{trial.id}/metrics",
        {"group": "validation", "metrics": {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": 1,
                                            "metrics": {"avgMetrics": {"loss": 0.5}}}},
        task=task,
    )  # fmt: skip
    uuid = "00000000-0000-4000-8000-000000000001"
    report = {"uuid": uuid, "allocationId": allocation.id, "resources": {"a": "3"}, "metadata": {"steps_completed": 1}}
    await world.post("/api/v1/checkpoints", report, task=task)
    values = {
        "experimentId": trial.experiment_id, "trialId": trial.id, "runId": trial.id, "taskId": trial.task_id,
        "allocationId": allocation.id, "agentId": agent.id, "slotId": "0", "checkpointUuid": uuid, "userId": "1",
        "username": "ada", "id": "1",
    }  # fmt: skip
    root = await world.login("root")
    checked = 0
    for route in ROUTES:
        names = re.findall(r"\{([^}]*)\}", route.path)
        if route.method != "GET" or (route.method, shape(route.path)) in EXTENSIONS:
            continue
        if (route.method, route.path) in contract().uncalled:
            continue
        known = endpoint(route.method, route.path)
        if known.stream or not known.response_type or not set(names) <= set(values):
            continue
        path = route.path.format(**values) + NEEDED_QUERIES.get(route.path, "").format(**values)
        check(await world.get(path, token=root), known.response_type, path)
        checked += 1
    assert checked > 25


async def test_created_things_have_what_the_contract_requires(world: World) -> None:
    await world.agent()
    body = {"config": str(a_config()), "modelDefinition": [a_file("a.py")]}
    check(await world.post("/api/v1/experiments", body), "v1CreateExperimentResponse", "created")
    check(
        await world.post("/api/v1/experiments", {**body, "validateOnly": True}), "v1CreateExperimentResponse", "drawn"
    )


async def test_both_spellings_and_any_label_are_read(world: World) -> None:
    await world.agent()
    snake = {"config": str(a_config()), "model_definition": [a_file("a.py")], "validate_only": True}
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        answer = await world.post("/api/v1/experiments", snake, headers={"Content-Type": kind})
        assert answer["experiment"]["id"] == 0


async def test_bodies_that_are_no_json_are_refused_in_words(world: World) -> None:
    for raw, named in ((b"{", "not JSON"), (b"[1]", "JSON object"), (b'{"a": 1' + b"0" * 30 + b"}", "64 bits")):
        response = await world.http.post(
            world.server.make_url("/api/v1/experiments"), data=raw, headers={"Authorization": f"Bearer {world.token}"}
        )
        assert response.status == 400
        assert named in (await response.json())["error"]["error"]


async def test_a_request_that_is_too_large_is_refused_with_its_limit(tmp_path: Path) -> None:
    async with an_api(tmp_path, max_request_bytes=1024 * 1024) as world:
        body = {"config": "x", "modelDefinition": [a_file("big", b"\0" * 2 * 1024 * 1024)]}
        text = await world.error("POST", "/api/v1/experiments", body, status=413)
        assert "1 MiB" in text and ".detignore" in text
        assert world.context.store.tables.contexts == {}  # type: ignore[attr-defined]


async def test_unknown_calls_and_methods_say_so(world: World) -> None:
    assert "unknown call GET /api/v1/roles" in await world.error("GET", "/api/v1/roles", status=404)
    assert "use GET" in await world.error("POST", "/api/v1/me", status=405)
    assert "unknown call" in await world.error("GET", "/nothing", status=404)


class BrokenStore(MemoryStore):
    """Fails in a way that nobody foresaw."""

    async def instances(self) -> tuple[Instance, ...]:
        raise RuntimeError("the disk is on fire")

    async def decisions(self, limit: int) -> tuple[Decision, ...]:
        raise RuntimeError("the disk is on fire")

    async def ping(self) -> None:
        raise RuntimeError("the disk is on fire")


async def test_a_fault_of_ours_is_logged_under_a_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with an_api(tmp_path, store=BrokenStore()) as world:
        text = await world.error("GET", "/api/v1/instances", status=500)
        number = text.split()[-1]
        assert "fire" not in text
        assert f"request {number}" in caplog.text and "the disk is on fire" in caplog.text
        health = await world.call("GET", "/health", status=503, token="")
        assert (health["status"], health["database"]) == ("down", "down")


async def test_other_sites_are_let_in_only_where_configured(tmp_path: Path) -> None:
    ask = {"Origin": "http://a.example", "Access-Control-Request-Method": "GET"}
    async with an_api(tmp_path, config={"enable_cors": True}) as world:
        response = await world.send("OPTIONS", "/api/v1/me", headers=ask)
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert (await world.send("GET", "/api/v1/me")).headers["Access-Control-Allow-Origin"] == "*"
    async with an_api(tmp_path) as world:
        assert "Access-Control-Allow-Origin" not in (await world.send("GET", "/api/v1/me")).headers
