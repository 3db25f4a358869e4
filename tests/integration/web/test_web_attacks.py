"""The pages against those who may not: no secret, no crash, and nothing that is another's is changed by any form.

The pages are those of the interface's own table, so that a new one is attacked too.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hostile.values import name, number, query
from yarl import URL

from resolute.wire.rest.passwords import hash_password
from resolute_master.api.auth.authenticate import TASK_TOKEN_HEADER
from resolute_master.api.http.call import Route
from resolute_master.api.rights import NEEDS_NO_REST, Role, rows_of
from resolute_master.domain.agent import Agent
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId
from resolute_master.domain.job import Job
from resolute_master.domain.template import Template
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.seal.join_token import JoinToken
from resolute_web.interface import Interface
from support.api import KEY, PASSWORD, World, an_api
from support.seeded_secrets import WORD, SecretSeeder
from support.seeded_world import MASTER, filled, seeded_world
from support.web import HTML, with_pages

PARAMETER = re.compile(r"\{(\w+)\}")
STREAMS = ("/det/events", "/follow")
"""They do not end by themselves."""

ANYTHING = "/det/{rest:.+}"
QUERIES = ("", "?experiment=1&experiment=2", "?name=t", "?tab=configuration")
FIELDS: tuple[str, ...] = (
    "name",
    "config",
    "username",
    "password",
    "priority",
    "weight",
    "verb",
    "experiment",
    "next",
    "text",
    "kind",
)
EACH = 3
"""Requests of each page with extreme values, of each attacker."""


@pytest.fixture
def seeder() -> SecretSeeder:
    return SecretSeeder()


@pytest.fixture
async def world(tmp_path: Path, seeder: SecretSeeder) -> AsyncIterator[World]:
    join_token = JoinToken(seeder.secret("join token"), kept=None)
    options: dict[str, Any] = {"config": filled(MASTER, seeder), "join_token": join_token}
    async with an_api(tmp_path, application=with_pages, **options) as made:
        yield made


def pages(world: World, method: str) -> list[Route]:
    interface = Interface(world.context)
    interface.close()
    return [
        route
        for route in interface.routes
        if route.method == method and route.path != ANYTHING and not route.path.endswith(STREAMS)
    ]


def path_of(route: Route, given: Mapping[str, str]) -> str:
    def part(match: re.Match[str]) -> str:
        return quote(given.get(match[1], "kill").encode("utf-8", "surrogatepass"), safe="") or "%00"

    return PARAMETER.sub(part, route.path)


@pytest.mark.parametrize("caller", ["owner", "another", "administrator", "own task"])
async def test_no_page_has_a_secret(world: World, seeder: SecretSeeder, caller: str) -> None:
    given, task = await seeded_world(world, seeder)
    names = {"owner": "ada", "another": "bob", "administrator": "root"}
    who = {"task": task} if caller == "own task" else {"token": await world.login(names[caller])}
    other = {**given, "experimentId": str(int(given["experimentId"]) + 1)}
    seen, shown = 0, []
    for route in pages(world, "GET"):
        for parameters in (given, other):
            for asked in QUERIES:
                response = await world.send("GET", path_of(route, parameters) + asked, headers=HTML, **who)
                text = await response.text(errors="replace") + str(dict(response.headers))
                assert response.status < 500, f"{route.path}: {text[:2000]}"
                seen += response.status == 200
                secrets = (WORD, KEY, "ab" * 32, hash_password(PASSWORD))
                shown += [f"{route.path}{asked}: {secret}" for secret in secrets if secret in text]
    assert shown == []
    assert seen > 100, "the pages were refused, and this test has seen nothing"


KINDS = (Agent, Checkpoint, Experiment, Job, Project, Template, Trial, User, Workspace)


def what_is_others(world: World) -> dict[str, Any]:
    """Everything there is, but for bob's own entry."""
    found = {
        f"{kind.__name__} {each.id}": each
        for kind in KINDS
        for each in world.engine.state.all(kind)
        if not (isinstance(each, User) and each.username == "bob")
    }
    assert len(found) > len(KINDS)
    return found


def requests(route: Route, given: Mapping[str, str], draw: random.Random) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Path, form, and whether it is about what is another's."""
    form = dict.fromkeys(FIELDS, "1") if route.method == "POST" else {}
    yield path_of(route, given), form, True
    for _ in range(EACH):
        drawn = {key: name(draw) if draw.random() < 0.3 else number(draw) for key in given if draw.random() < 0.6}
        path = path_of(route, {**given, **drawn})
        pairs = [(_text(key), _text(value)) for key, value in query(draw, ("page", "sort", "filter", "tail", *FIELDS))]
        form = {each: _text(name(draw)) for each in draw.sample(FIELDS, 3)} if route.method == "POST" else {}
        yield f"{path}?{urlencode(pairs)}", form, False


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


ATTACKERS = {
    "nobody": Role.UNAUTHENTICATED,
    "a forged token": Role.UNAUTHENTICATED,
    "another user": Role.OTHER,
    "another user, from a task": Role.OTHER,
    "another's task": Role.OTHER_TASK,
}


@pytest.mark.parametrize("attacker", ATTACKERS)
async def test_no_attacker_ends_a_page_or_changes_what_is_anothers(
    world: World, seeder: SecretSeeder, attacker: str
) -> None:
    given, task = await seeded_world(world, seeder)
    bob = await world.login("bob")
    if attacker == "another's task":
        second = await world.agent("agent-2")
        _, _, task = await world.started(second)
    users = {user.username: user for user in world.users()}
    from_task = world.context.tokens.issue_task_user(AllocationId(given["allocationId"]), users["bob"].id)
    shown = {
        "nobody": {},
        "a forged token": {"Authorization": f"Bearer {bob[:-8]}AAAAAAAA"},
        "another user": {"Authorization": f"Bearer {bob}"},
        "another user, from a task": {"Authorization": f"Bearer {from_task}"},
        "another's task": {TASK_TOKEN_HEADER: f"Bearer {task}"},
    }[attacker]
    who = {**HTML, **shown}
    column, draw = ATTACKERS[attacker], random.Random(f"pages {attacker}")
    before, wrong, sent = what_is_others(world), [], 0
    for route in (*pages(world, "GET"), *pages(world, "POST")):
        refused = column not in rows_of(route)[0].granted
        for path, form, about_others in requests(route, given, draw):
            url = URL(str(world.server.make_url("/"))[:-1] + path, encoded=True)
            data = form if route.method == "POST" else None
            response = await world.http.request(route.method, url, headers=who, data=data, allow_redirects=False)
            text, sent = await response.text(errors="replace"), sent + 1
            to_login = response.status == 303 and response.headers["Location"].startswith("/det/login")
            if response.status >= 500 or WORD in text:
                wrong.append(f"{route.method} {path} {form}: {response.status} {text[-1500:]}")
            if refused and about_others and response.status < 400 and not to_login:
                wrong.append(f"{route.method} {path} {form} was granted: {response.status}")
            if column in NEEDS_NO_REST and refused:
                assert to_login or response.status >= 400, path
    assert wrong == [] and sent > 200
    assert {key: what_is_others(world)[key] for key in before} == before
