"""What people's scripts and the released client look for in answers and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute.wire.agent_link import Exit
from resolute.wire.rest.passwords import hash_password
from resolute.wire.states import ContainerState
from resolute_master.api.contract import CONTRACT_VERSION
from resolute_master.domain.trial import Trial
from support.api import PASSWORD, World, a_config, an_api, settled
from support.engines import AgentByHand


async def fails(world: World, agent: AgentByHand, code: int) -> None:
    await settled(world)
    (container,) = agent.containers()
    await agent.report(container, ContainerState.RUNNING)
    await agent.report(container, ContainerState.TERMINATED, Exit(code=code))


async def log_of(world: World, trial: Trial) -> list[str]:
    return [line["result"]["log"].rstrip("\n") for line in await world.lines(f"/api/v1/tasks/{trial.task_id}/logs")]


async def test_restarts_are_shown_up_to_their_limit_and_failures_in_the_words_of_the_original(world: World) -> None:
    agent = await world.agent()
    experiment = await world.create(a_config(max_restarts=1))
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    await fails(world, agent, 3)
    assert (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]["restarts"] == 1
    await fails(world, agent, 7)
    shown = (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]
    assert (shown["state"], shown["restarts"]) == ("STATE_ERROR", 1)
    (listed,) = (await world.get(f"/api/v1/experiments/{experiment['id']}/trials"))["trials"]
    assert listed["restarts"] == 1
    log = await log_of(world, trial)
    assert sum("container failed with non-zero exit code: 3" in line for line in log) == 1
    assert sum("container failed with non-zero exit code: 7" in line for line in log) == 1
    started = f"Resources for Trial {trial.id} (Experiment {experiment['id']}) have started"
    assert sum(started in line for line in log) == 2


async def test_a_nul_in_a_line_comes_back_as_it_was(world: World) -> None:
    trial, allocation, task = await world.started(await world.agent())
    line = {
        "taskId": trial.task_id,
        "allocationId": allocation.id,
        "log": "bar \x00 50 %\n",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    await world.post("/task-logs", [line], task=task)
    assert "bar \x00 50 %" in await log_of(world, trial)


async def test_profiling_is_accepted_and_the_log_says_that_it_has_no_effect(world: World) -> None:
    await world.agent()
    experiment = await world.create(a_config(profiling={"enabled": True}))
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    assert experiment["config"]["profiling"]["enabled"] is True
    assert any("config.profiling.enabled: has no effect here" in line for line in await log_of(world, trial))


async def test_an_agent_is_of_the_contract_s_version_as_the_master_is(world: World) -> None:
    await world.agent()
    (agent,) = (await world.get("/api/v1/agents"))["agents"]
    assert agent["version"] == CONTRACT_VERSION == (await world.get("/api/v1/master"))["version"]
    assert agent["resoluteVersion"] != CONTRACT_VERSION


@pytest.mark.parametrize("name", ["bob", "BOB", " Ada Lovelace ", "ada lovelace"])
async def test_nobody_is_shown_by_the_name_of_another(tmp_path: Path, name: str) -> None:
    async with an_api(tmp_path) as world:
        root = await world.login("root")
        ids = {user.username: user.id for user in world.users()}
        path = "/api/v1/users/{}"
        await world.call("PATCH", path.format(ids["ada"]), {"displayName": "Ada Lovelace"}, token=root)
        # One's own name, in any case, is nobody else's.
        await world.call("PATCH", path.format(ids["ada"]), {"displayName": "ADA LOVELACE"}, token=root)
        created: dict[str, Any] = {
            "user": {"username": "eve", "displayName": name, "active": True, "admin": False},
            "password": hash_password(PASSWORD),
            "isHashed": True,
        }
        assert "display name of user" in await world.error("POST", "/api/v1/users", created, status=409, token=root)
        change = {"displayName": name}
        text = await world.error("PATCH", path.format(ids["root"]), change, status=409, token=root)
        assert text.startswith("displayName: ")
        assert {user.username for user in world.users()} == {"root", "ada", "bob"}


async def test_work_for_one_machine_that_none_could_hold_is_refused_or_warned_of(tmp_path: Path) -> None:
    resources = {"slots_per_trial": 4, "is_single_node": True}
    for launch_error in (True, False):
        async with an_api(tmp_path / str(launch_error), config={"launch_error": launch_error}) as world:
            for number in range(4):
                await AgentByHand(world.engine, f"agent-{number}", slots=2).register()
            body = {"config": str(a_config(resources=resources))}
            if launch_error:
                text = await world.error("POST", "/api/v1/experiments", body, status=400)
                assert "4 slots on one machine (is_single_node)" in text
            else:
                answer = await world.post("/api/v1/experiments", body)
                assert answer["warnings"] == ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]
