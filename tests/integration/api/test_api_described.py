"""The description of the REST API: it is current, says what the contract says, and the API does what it says."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api import openapi
from support.api import World, an_api
from support.effort import NIGHT
from support.rest_schema import contract
from support.stores import STORE_HOMES

FILE = Path(openapi.__file__).parents[2] / "resolute_web" / "assets" / "openapi.json"

WITHOUT_MESSAGE = {
    "/api/v1/task/logs",
    "/api/v1/allocations/{allocationId}/signals/ack_preemption",
    "/api/v1/allocations/{allocationId}/signals/pending_preemption",
    "/api/v1/allocations/{allocationId}/resources/{resourcesId}/daemon",
    "/api/v1/allocations/{allocationId}/ready",
    "/api/v1/allocations/{allocationId}/waiting",
    "/api/v1/templates/{templateName}",
    "/api/v1/users/{userId}/password",
}
"""Calls whose body says nothing, or is read without a message of its own."""


def test_the_description_is_current_and_valid() -> None:
    assert FILE.read_text() == openapi.text("1"), f"run: python -m resolute_master.api.openapi {FILE}"
    from openapi_spec_validator import validate  # takes two seconds, which each worker would spend

    validate(json.loads(FILE.read_text()))


def test_every_call_has_a_summary_in_words() -> None:
    summaries = [
        (method, path, operation["summary"])
        for path, operations in json.loads(FILE.read_text())["paths"].items()
        for method, operation in operations.items()
    ]
    assert [each for each in summaries if not each[2].endswith(".") or " " not in each[2]] == []


def _name(content: dict[str, Any]) -> str:
    ((kind, described),) = content.items()
    schema = described["schema"]
    reference: str = (schema["properties"]["result"] if kind.endswith("ndjson") else schema).get("$ref", "")
    return reference.rpartition("/")[2]


def test_the_messages_of_the_description_are_those_of_the_contract() -> None:
    paths = json.loads(FILE.read_text())["paths"]
    wrong, checked = [], 0
    for endpoint in contract().endpoints:
        operation = paths.get(endpoint.path, {}).get(endpoint.method.lower())
        if operation is None:
            continue
        wanted = (endpoint.response_type or "").removeprefix("stream[").removesuffix("]").removeprefix("v1")
        if wanted:
            checked += 1
            if _name(operation["responses"]["200"].get("content", {"": {"schema": {}}})) != wanted:
                wrong.append((endpoint.method, endpoint.path, wanted))
        if endpoint.body_type and endpoint.path not in WITHOUT_MESSAGE and "requestBody" not in operation:
            wrong.append((endpoint.method, endpoint.path, endpoint.body_type))
    assert wrong == [] and checked > 80


HELD = (
    "signals/preemption|rendezvous|all_gather|/logs$|metrics-stream|logs/fields|auth/logout|users/.userId.($|/password)"
)
"""Paths of calls that are held or followed, and of those that end the session of the test or change its user."""

ANSWERED = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", 501]\n'
"""501 is the answer of the contract's calls that are not served."""

EXAMPLES, SECONDS = 3, 40
PHASES = "coverage,fuzzing" if NIGHT else "coverage"
"""The first calls each limit of each parameter, the second makes random calls."""
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


@pytest.mark.timeout(300)
async def test_no_call_that_the_description_allows_is_answered_otherwise(tmp_path: Path) -> None:
    """Schemathesis makes them: a few of each, in about a minute; on SQLite, for errors of values are a database's."""
    store = await STORE_HOMES["memory"](None)  # type: ignore[arg-type]
    async with an_api(tmp_path, store=await store.open()) as world:
        world.token = await world.login("root")
        agent = await world.agent()
        trial, allocation, _ = await world.started(agent)
        there = {
            "experimentId": trial.experiment_id,
            "trialId": trial.id,
            "runId": trial.id,
            "taskId": trial.task_id,
            "allocationId": allocation.id,
            "agentId": agent.id,
            "resourcePoolName": "default",
            "poolName": "default",
            "workspaceId": 1,
            "projectId": 1,
        }
        known = "".join(f'"path.{name}" = {json.dumps(value)}\n' for name, value in there.items())
        config = tmp_path / "schemathesis.toml"
        config.write_text(f"[parameters]\n{known}{ANSWERED}")
        code, said = await _schemathesis(world, config)
    assert code == 0, said[-60000:]


async def _schemathesis(world: World, config: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", str(FILE)),
        *("--url", str(world.server.make_url("/")).rstrip("/"), "-H", f"Authorization: Bearer {world.token}"),
        *("--checks", CHECKS, "--phases", PHASES, "--max-examples", str(EXAMPLES), "--seed", "1"),
        *("--exclude-path-regex", HELD, "--request-timeout", "20", "--max-time", str(SECONDS), "--no-color"),
        cwd=config.parent,  # it keeps what it found in the directory it runs in
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode(errors="replace")
