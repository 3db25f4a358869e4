"""Every call of the API as every caller, compared with the table in `docs/authorisation.md`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authorise import Policy
from resolute_master.api.http.call import Route
from resolute_master.api.resources import not_yet
from resolute_master.api.rights import NEEDS_NO_REST, Role, Row, rows_of, table
from support.rights import TIMEOUT_S, Scene, a_scene

UNAUTHENTICATED, FORBIDDEN, NOT_SERVED = 401, 403, 501


async def statuses(scene: Scene, row: Row) -> dict[Role, int]:
    """Those who are refused go first, since a call that is made may end what it is about."""
    found = {}
    for role in sorted(Role, key=lambda role: role in row.granted):
        async with asyncio.timeout(TIMEOUT_S):
            found[role] = await scene.status(row, role)
    return found


def expected(row: Row, role: Role) -> str:
    if role in row.granted:
        return "granted"
    return "401" if role in NEEDS_NO_REST else "403"


def told(status: int) -> str:
    return str(status) if status in (UNAUTHENTICATED, FORBIDDEN) or status >= 500 else "granted"


def of_route(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", ROUTES, ids=of_route)
async def test_each_call_is_made_by_those_whom_the_table_names(tmp_path: Path, route: Route) -> None:
    for number, row in enumerate(rows_of(route)):
        async with a_scene(tmp_path / str(number)) as scene:
            found = await statuses(scene, row)
        cells = {role: told(status) for role, status in found.items()}
        assert cells == {role: expected(row, role) for role in Role}, (row.call, row.when, found)


async def test_calls_that_are_not_served_yet_say_so_to_those_with_a_token_alone(tmp_path: Path) -> None:
    unknown = {"notebookId", "shellId", "commandId", "tensorboardId", "modelName", "modelVersionNum", "projectId"}
    unknown |= {"tokenId", "groupId", "workloadType", "labels_trialId", "key"}
    unknown |= {"trainingMetrics_trialId", "validationMetrics_trialId"}
    async with a_scene(tmp_path) as scene:
        for row in table(not_yet.ROUTES):
            path = row.path
            for name in unknown:
                path = path.replace("{" + name + "}", "1")
            found = await statuses(scene, Row(method=row.method, path=path, granted=row.granted))
            wanted = {role: UNAUTHENTICATED if role in NEEDS_NO_REST else NOT_SERVED for role in Role}
            assert found == wanted, row.call


OPENED = [
    ("POST", "/api/v1/experiments/{experimentId}/pause"),
    ("POST", "/api/v1/experiments/{experimentId}/kill"),
    ("DELETE", "/api/v1/experiments/{experimentId}"),
    ("POST", "/api/v1/trials/{trialId}/metrics"),
    ("PUT", "/api/v1/templates/{templateName}"),
    ("POST", "/api/v1/job-queues"),
    ("PATCH", "/api/v1/users/{userId}"),
    ("POST", "/api/v1/agents/{agentId}/disable"),
]


@pytest.mark.parametrize(("method", "path"), OPENED)
async def test_the_open_rules_are_those_of_the_original(tmp_path: Path, method: str, path: str) -> None:
    (route,) = [one for one in ROUTES if (one.method, one.path) == (method, path)]
    for number, row in enumerate(rows_of(route, Policy(open=True))):
        async with a_scene(tmp_path / str(number), config={"security": {"authz": {"type": "open"}}}) as scene:
            found = await statuses(scene, row)
        assert {role: told(status) for role, status in found.items()} == {role: expected(row, role) for role in Role}
