"""No call answers 500 for a number beyond 63 bits or a NUL, wherever it stands: path, query, body, or a configuration."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from resolute.errors import InvalidInput
from resolute.wire.codec import wire_names
from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from support.api import World, a_config, an_api
from support.stores import STORE_HOMES

STORES = [pytest.param("postgres", marks=pytest.mark.needs("postgres")), pytest.param("sqlite")]
PART = re.compile(r"\{(\w+)\}")
TOO_LARGE = (str(2**63), str(2**64), "9" * 400)
NUL = ("\0", "a\0b")
OTHERS = ("-1", str(-(2**63) - 1), "\u0663", "1e400", "\ufffe", "%", "x" * 3000)
VALUES = (*TOO_LARGE, *NUL, *OTHERS)


@pytest.fixture(params=STORES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    store = await (await STORE_HOMES[request.param](request)).open()
    try:
        async with an_api(tmp_path / "storage", store=store) as made:
            made.token = await made.login("root")
            yield made
    finally:
        await store.close()


async def known(world: World) -> dict[str, str]:
    """What stands for the parts of paths: what there is."""
    agent = await world.agent()
    trial, allocation, _ = await world.started(agent)
    await world.post("/api/v1/templates/t", {"config": {"name": "n"}, "workspaceId": 1})
    return {
        "experimentId": str(trial.experiment_id),
        "trialId": str(trial.id),
        "runId": str(trial.id),
        "taskId": trial.task_id,
        "allocationId": allocation.id,
        "resourcesId": allocation.containers[0].id,
        "agentId": "agent-1",
        "slotId": "0",
        "resourcePoolName": "default",
        "poolName": "default",
        "username": "ada",
        "userId": str(world.owner_id),
        "templateName": "t",
    }


def path_of(route: Route, parts: dict[str, str]) -> str:
    return PART.sub(lambda match: quote(parts.get(match[1], "1"), safe=""), route.path)


def fields_of(cls: type, before: str = "") -> list[str]:
    """Names on the wire of all fields of a message, those of messages inside it too."""
    hints, found = typing.get_type_hints(cls), []
    for name, key in wire_names(cls).items():
        inner = hints[name]
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            found += fields_of(inner, f"{before}{key}.")
        else:
            found.append(before + key)
    return found


async def messages_of(
    world: World, reads: str, parts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> dict[Route, list[str]]:
    """The fields that each call reads by `Call.query` or `Call.body`, seen by asking it."""
    seen: list[type] = []

    def note(cls: type) -> InvalidInput:
        seen.append(cls)
        return InvalidInput("noted")

    def query(call: Call, cls: type) -> Any:
        raise note(cls)

    async def body(call: Call, cls: type) -> Any:
        raise note(cls)

    found: dict[Route, list[str]] = {}
    with monkeypatch.context() as patched:
        patched.setattr(Call, reads, query if reads == "query" else body)
        for route in ROUTES:
            if route.action is Action.LOG_OUT:
                continue
            seen.clear()
            (await world.send(route.method, path_of(route, parts), None if route.method == "GET" else {})).release()
            if seen:
                found[route] = fields_of(seen[0])
    return found


async def status(world: World, method: str, path: str, body: Any = None) -> tuple[int, str]:
    """Status and text of one call whose answer may be an endless stream."""
    answer = await world.send(method, path, body)
    text = "" if answer.status == 200 else (await answer.text())[:200]
    answer.close()
    return answer.status, text


async def test_parts_of_paths(world: World) -> None:
    wrong: list[str] = []
    there = await known(world)
    asked = 0
    for route in ROUTES:
        for part in PART.findall(route.path):
            for value in VALUES:
                path = path_of(route, {**there, part: value})
                code, text = await status(world, route.method, path, None if route.method == "GET" else {})
                asked += 1
                if code >= 500 or (value in NUL and code < 400):
                    wrong.append(f"{route.method} {path[:120]}: {code} {text}")
    assert not wrong, "\n".join(wrong)
    assert asked > 1000
    await world.get("/api/v1/me")


async def test_parameters_of_queries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    there = await known(world)
    wrong: list[str] = []
    routes = await messages_of(world, "query", there, monkeypatch)
    for route, fields in routes.items():
        for field in fields:
            for value in VALUES:
                path = f"{path_of(route, there)}?{field}={quote(value, safe='')}"
                code, text = await status(world, route.method, path, None if route.method == "GET" else {})
                if code >= 500 or (value in NUL and code < 400):
                    wrong.append(f"{route.method} {path[:160]}: {code} {text}")
    assert not wrong, "\n".join(wrong)
    assert len(routes) > 20 and sum(map(len, routes.values())) > 100


async def test_fields_of_bodies(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    there = await known(world)
    wrong: list[str] = []
    routes = await messages_of(world, "body", there, monkeypatch)
    for route, fields in routes.items():
        for field in fields:
            for value in (2**63, 2**64, -(2**63) - 1, 10**400, "\0", str(2**63), [2**63], ["\0"], {"a": 2**64}, 1e308):
                body: Any = value
                for name in reversed(field.split(".")):
                    body = {name: body}
                code, text = await status(world, route.method, path_of(route, there), body)
                if code >= 500:
                    wrong.append(f"{route.method} {route.path} {field}={str(value)[:30]!r}: {code} {text}")
    assert not wrong, "\n".join(wrong)
    assert len(routes) > 20 and sum(map(len, routes.values())) > 100
    await world.get("/api/v1/me")


CONFIGURATIONS = [
    "searcher: {name: single, metric: loss, max_length: {batches: %s}}",
    "max_restarts: %s",
    "resources: {slots_per_trial: %s}",
    "resources: {priority: -%s}",
    "hyperparameters: {x: %s}",
    "hyperparameters: {x: {type: int, minval: 0, maxval: %s}}",
    "data: {n: [%s]}",
    "data: {%s: 1}",
    "min_validation_period: {batches: 0x%s}",
    "environment: {environment_variables: {A: %s}}",
    "checkpoint_policy: best\nsave_experiment_best: %s",
    "labels: ['a\0%s']",
]


@pytest.mark.parametrize(
    "number", [str(2**63), "9" * 4000, "9" * 10_000], ids=["64 bits", "4000 digits", "10000 digits"]
)
async def test_configurations(world: World, number: str) -> None:
    """Refused with words, by each call that reads one; or taken, where the value is data of the user."""
    there = await known(world)
    wrong: list[str] = []
    before = (await world.get("/api/v1/experiments"))["pagination"]["total"]
    for text in CONFIGURATIONS:
        written = text % number
        others = {key: value for key, value in a_config().items() if not written.startswith(f"{key}:")}
        whole = f"{yaml.safe_dump(others)}\n{written}"
        parsed = {written.partition(":")[0]: 10**400}
        for method, path, body in (
            ("POST", "/api/v1/experiments", {"config": whole, "validateOnly": True, "projectId": 1}),
            ("POST", "/api/v1/experiments", {"config": written, "parentId": int(there["experimentId"])}),
            ("POST", "/api/v1/templates/another", {"config": parsed, "workspaceId": 1}),
            ("POST", "/api/v1/preview-hp-search", {"config": written, "seed": 1}),
        ):
            code, said = await status(world, method, path, body)
            if code >= 500:
                wrong.append(f"{method} {path} {written[:60]!r}: {code} {said}")
    assert not wrong, "\n".join(wrong)
    assert (await world.get("/api/v1/experiments"))["pagination"]["total"] >= before
