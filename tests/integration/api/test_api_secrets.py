"""No answer has a secret, for any caller: one is seeded in every place of a configuration, and every GET call is read.

The calls are those of the table of routes, so that a new one is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from resolute.config import ExperimentConfig
from resolute.config.base import MASK
from resolute.config.masking import secrets_of
from resolute.wire.rest.passwords import hash_password
from resolute_master.agents.container_spec import user_variables
from resolute_master.api.app import ALL_ROUTES
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.seal.join_token import JoinToken
from support.api import KEY, PASSWORD, World, a_config, an_api
from support.seeded_secrets import WORD, SecretSeeder
from support.seeded_world import MASTER, filled, seeded_world

PARAMETER = re.compile(r"\{(\w+)\}")
QUERIES = {
    "/api/v1/trials/metrics/trial_metrics": "?trialIds={trialId}&group=validation",
    "/api/v1/trials/metrics/training_metrics": "?trialIds={trialId}",
    "/api/v1/trials/metrics/validation_metrics": "?trialIds={trialId}",
    "/api/v1/allocations/{allocationId}/signals/preemption": "?timeoutSeconds=0",
    "/api/v1/resource-pools/{poolName}/snapshot": "",
    "/experiments/{experimentId}/preview_gc": "?save_experiment_best=0&save_trial_best=1&save_trial_latest=1",
}
ROUTES = sorted({route.path for route in ALL_ROUTES if route.method == "GET"})

JOIN_TOKEN = "/api/v1/agent-join-token"
"""The one call that shows a secret, to administrators."""


@pytest.fixture
def seeder() -> SecretSeeder:
    return SecretSeeder()


@pytest.fixture
async def world(tmp_path: Path, seeder: SecretSeeder) -> AsyncIterator[World]:
    join_token = JoinToken(seeder.secret("join token"), kept=None)
    async with an_api(tmp_path, config=filled(MASTER, seeder), join_token=join_token) as made:
        yield made


async def read_everything(world: World, given: dict[str, str], **caller: str) -> dict[str, tuple[int, str]]:
    """The status and the whole answer of every GET call."""
    found = {}
    for path in ROUTES:
        asked = PARAMETER.sub(lambda match: given.get(match[1], "1"), path + QUERIES.get(path, ""))
        response = await world.send("GET", asked, **caller)
        found[path] = response.status, await response.text(errors="replace") + str(dict(response.headers))
    return found


@pytest.mark.parametrize("caller", ["owner", "another", "administrator", "own task"])
async def test_no_answer_has_a_secret(world: World, seeder: SecretSeeder, caller: str) -> None:
    given, task = await seeded_world(world, seeder)
    names = {"owner": "ada", "another": "bob", "administrator": "root"}
    who = {"task": task} if caller == "own task" else {"token": await world.login(names[caller])}
    other = {**given, "experimentId": str(int(given["experimentId"]) + 1)}
    for parameters in (given, other):
        answers = await read_everything(world, parameters, **who)
        shown = {
            path: seeder.seeded[value]
            for path, (_, text) in answers.items()
            for value in re.findall(rf"{WORD}\d{{4}}", text)
        }
        assert shown == ({JOIN_TOKEN: "join token"} if caller == "administrator" else {})
        assert not any(WORD in text for path, (_, text) in answers.items() if path != JOIN_TOKEN)
        for secret in (KEY, "ab" * 32, hash_password(PASSWORD)):
            assert [path for path, (_, text) in answers.items() if secret in text] == []
        served = [path for path, (status, _) in answers.items() if status == 200]
        assert len(served) > 50, "the calls were refused, and this test has seen nothing"
    config = json.loads(answers["/api/v1/experiments/{experimentId}"][1].rpartition("{'")[0])["config"]
    assert "PLAIN=is shown" in config["environment"]["environment_variables"]["cpu"]
    assert f"HF_TOKEN={MASK}" in config["environment"]["environment_variables"]["cpu"]
    assert "access_key" not in config["checkpoint_storage"]
    master = answers["/api/v1/master/config"]
    assert (master[0] == 200 and MASK in master[1]) if caller == "administrator" else master[0] == 403


async def test_no_answer_to_what_is_submitted_has_a_secret(world: World, seeder: SecretSeeder) -> None:
    """Creating, checking, previewing, templates; accepted and refused."""
    await world.agent()
    block = seeder.block(secrets_of(ExperimentConfig))
    good = a_config(data=block["data"], environment=block["environment"])
    storage = {"type": "s3", "bucket": "b", "access_key": seeder.secret("s3"), "secret_key": seeder.secret("s3")}
    listed = {"environment": {"environment_variables": seeder.assignments("list")}}
    bad: list[dict[str, Any]] = [
        {"environment": {"environment_variables": [seeder.secret("no assignment")]}},
        {"environment": {"environment_variables": {"cpu": f"A_TOKEN={seeder.secret('no list')}"}}},
        {"environment": seeder.secret("a text for a block")},
        {"environment": [f"A_TOKEN={seeder.secret('a list for a block')}"]},
        {"environment": {"registry_auth": {"pasword": seeder.secret("unknown key")}}},
        {"environment": {"registry_auth": seeder.secret("a text for credentials")}},
        {"environment": {"registry_auth": {"password": [seeder.secret("a list for a text")]}}},
        {"data": {"secrets": MASK, "more": seeder.secret("beside")}},
        {"data": [seeder.secret("a list for data")]},
        {"checkpoint_storage": f"s3://{seeder.secret('a text for a storage')}@b"},
        {"checkpoint_storage": {**storage, "secret_key": [storage["secret_key"]]}},
    ]
    bodies = [
        {"config": json.dumps(config)} for config in (good, a_config(**listed), a_config(checkpoint_storage=storage))
    ]
    bodies += [{"config": json.dumps(a_config(**changes))} for changes in bad]
    bodies += [{"config": text} for text in (WORD, f"- {WORD}", f"a: !!int {WORD}", f"a: [{WORD}", f'"{WORD}\n')]
    statuses = []
    for body in bodies:
        for extra in ({"validateOnly": True}, {}):
            response = await world.send("POST", "/api/v1/experiments", {**body, **extra})
            statuses.append(response.status)
            assert WORD not in await response.text(), body
    assert statuses[:6] == [200] * 6 and set(statuses[6:]) == {400}
    for config in [good, *bad]:
        response = await world.send("POST", "/api/v1/preview-hp-search", {"config": config, "seed": 1})
        assert WORD not in await response.text()
        for method in ("POST", "PUT"):
            response = await world.send(method, "/api/v1/templates/t", {"config": config, "workspaceId": 1})
            assert WORD not in await response.text()
        assert WORD not in await (await world.send("PATCH", "/api/v1/templates/t", config)).text()
    renamed = await world.post("/api/v1/preview-hp-search", {"config": a_config(), "seed": 1})
    assert renamed["summary"]


async def test_the_text_of_who_submits_is_kept_where_it_has_no_secret(world: World) -> None:
    await world.agent()
    text = f"# why not\n{json.dumps(a_config())}\n"
    created = (await world.post("/api/v1/experiments", {"config": text}))["experiment"]
    assert created["originalConfig"] == text


# -------------------------------------------------------------------------------------------------------------- forks


def with_secrets() -> dict[str, Any]:
    return a_config(
        data={"secrets": {"a": f"{WORD}1"}},
        environment={
            "environment_variables": {"cpu": [f"A_TOKEN={WORD}2", f"PROXY=http://u:{WORD}3@h"]},
            "registry_auth": {"username": "u", "password": f"{WORD}4"},
        },
    )


def stored(world: World, id_: int) -> dict[str, Any]:
    found = world.engine.state.get(Experiment, ExperimentId(id_))
    assert found is not None
    return dict(found.config)


@pytest.mark.parametrize("shown_as", ["config", "originalConfig"])
@pytest.mark.parametrize("who", ["ada", "root"])
async def test_a_fork_takes_the_stored_secrets(world: World, shown_as: str, who: str) -> None:
    await world.agent()
    parent = await world.create(with_secrets())
    shown = parent[shown_as]
    text = shown if isinstance(shown, str) else json.dumps(shown)
    assert MASK in text and WORD not in text
    body = {"config": text, "parentId": parent["id"]}
    fork = (await world.post("/api/v1/experiments", body, token=await world.login(who)))["experiment"]
    first, second = (stored(world, one["id"]) for one in (parent, fork))
    assert second["data"] == first["data"]
    assert second["environment"]["registry_auth"] == first["environment"]["registry_auth"]
    assert user_variables(second, "cpu") == user_variables(first, "cpu")
    assert WORD in json.dumps(stored(world, fork["id"])) and WORD not in json.dumps(fork)


async def test_another_users_fork_gets_no_secret(world: World) -> None:
    await world.agent()
    parent = await world.create(with_secrets())
    bob = await world.login("bob")
    body = {"config": json.dumps(parent["config"]), "parentId": parent["id"]}
    said = await world.error("POST", "/api/v1/experiments", body, status=400, token=bob)
    for named in ("data.secrets.a", "environment_variables.cpu", "(variable A_TOKEN)", "registry_auth.password"):
        assert named in said
    assert f"experiment {parent['id']} may be used by its owner" in said and "write a value of your own" in said
    own = with_secrets()
    body = {"config": json.dumps(own), "parentId": parent["id"]}
    assert (await world.post("/api/v1/experiments", body, token=bob))["experiment"]["forkedFrom"] == parent["id"]


async def test_a_mask_of_something_else_is_refused_even_for_the_owner(world: World) -> None:
    await world.agent()
    parent = await world.create(with_secrets())
    config = a_config(environment={"environment_variables": [f"B_TOKEN={MASK}"]}, data={"secrets": {"b": MASK}})
    body = {"config": json.dumps(config), "parentId": parent["id"]}
    said = await world.error("POST", "/api/v1/experiments", body, status=400)
    assert "data.secrets.b: is ********" in said and "(variable B_TOKEN)" in said
    said = await world.error("POST", "/api/v1/experiments", {"config": json.dumps(parent["config"])}, status=400)
    assert "data.secrets.a: is ********, which is shown instead of a secret; write the value" in said
