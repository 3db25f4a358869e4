"""Experiments that run elsewhere: registered, reported for, and as alive as they say."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.experiment import Experiment
from support.api import World, a_config, an_api

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
UUID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(BEGAN)


@pytest.fixture
async def world(tmp_path: Path, clock: FixedClock) -> AsyncIterator[World]:
    async with an_api(tmp_path, clock=clock) as made:
        yield made


def request() -> dict[str, Any]:
    config = a_config()
    del config["entrypoint"]
    return {"config": json.dumps(config), "unmanaged": True}


async def an_experiment(world: World) -> int:
    created = (await world.post("/api/v1/experiments", request()))["experiment"]
    id_: int = created["id"]
    assert (created["unmanaged"], created["state"], created["numTrials"]) == (True, "STATE_PAUSED", 0)
    return id_


async def a_trial(world: World, experiment: int) -> dict[str, Any]:
    body = {"experimentId": experiment, "hparams": {"lr": 0.1}, "unmanaged": True}
    trial: dict[str, Any] = (await world.post("/api/v1/trials", body))["trial"]
    return trial


async def states(world: World, experiment: int, trial: int) -> tuple[str, str]:
    shown = (await world.get(f"/api/v1/experiments/{experiment}"))["experiment"]["state"]
    return shown, (await world.get(f"/api/v1/trials/{trial}"))["trial"]["state"]


def metrics(trial: int, run: int, steps: int, loss: float) -> dict[str, Any]:
    values = {"trialId": trial, "trialRunId": run, "stepsCompleted": steps, "metrics": {"avgMetrics": {"loss": loss}}}
    return {"group": "validation", "metrics": values}


async def test_an_explanation_says_that_it_runs_elsewhere(world: World) -> None:
    experiment = await an_experiment(world)
    await a_trial(world, experiment)
    shown = (await world.get(f"/api/v1/experiments/{experiment}"))["experiment"]
    for asked in (experiment, shown["jobId"]):
        told = await world.get(f"/api/v1/jobs/{asked}/explain")
        assert told["reason"] == "Its trials run outside of the cluster: it is in no queue."


async def test_a_trial_runs_elsewhere_and_is_seen_here(world: World) -> None:
    experiment = await an_experiment(world)
    trial = await a_trial(world, experiment)
    id_, path = trial["id"], f"/api/v1/trials/{trial['id']}"
    started = await world.post(f"{path}/start", {"trialId": id_, "resume": True})
    assert (started["trialRunId"], started["stepsCompleted"], started["latestCheckpoint"]) == (1, 0, None)
    await world.post("/api/v1/runs/start", {"runId": id_, "checkpointStorage": {}})
    await world.call("PATCH", path, {"trialId": id_, "state": "STATE_RUNNING"})
    assert await states(world, experiment, id_) == ("STATE_RUNNING", "STATE_RUNNING")
    await world.post(f"{path}/metrics", metrics(id_, 1, 10, 0.5))
    await world.post("/task-logs", [{"task_id": trial["taskId"], "log": "hello\n", "rank": "0"}])
    report = {
        "uuid": UUID,
        "allocationId": trial["taskId"],
        "resources": {"w": "3"},
        "metadata": {"steps_completed": 10},
    }
    # The released client says it by its task; with an allocation, that is the same.
    for named in ({}, {"allocationId": "", "taskId": trial["taskId"]}):
        await world.post("/api/v1/checkpoints", {**report, **named})
    await world.call("PATCH", path, {"state": "STATE_COMPLETED"})
    assert await states(world, experiment, id_) == ("STATE_COMPLETED", "STATE_COMPLETED")
    shown = (await world.get(path))["trial"]
    assert (shown["totalBatchesProcessed"], shown["hparams"], shown["checkpointCount"]) == (10, {"lr": 0.1}, 1)
    assert [line["result"]["log"] for line in await world.lines(f"{path}/logs")] == ["hello\n"]
    assert (await world.get("/api/v1/job-queues-v2"))["jobs"] == []
    assert (await world.get("/api/v1/tasks"))["allocationIdToSummary"] == {}
    # It has ended, left the memory, and is taken up again.
    assert world.engine.state.get(Experiment, experiment) is None
    started = await world.post(f"{path}/start", {"resume": True})
    assert (started["trialRunId"], started["stepsCompleted"], started["latestCheckpoint"]) == (2, 10, UUID)
    await world.post(f"{path}/metrics", metrics(id_, 2, 20, 0.25))
    assert "run 1" in await world.error("POST", f"{path}/metrics", metrics(id_, 1, 30, 0.1), status=409)
    assert "started before" in await world.error("POST", f"{path}/start", {"resume": False}, status=400)


async def test_names_of_the_owner_find_the_same_things_again(world: World) -> None:
    path = "/api/v1/experiments/by-external-id/night%20run"
    first = (await world.call("PUT", path, request()))["experiment"]
    again = (await world.call("PUT", path, {**request(), "config": "not even YAML: ["}))["experiment"]
    assert first["id"] == again["id"] and first["externalExperimentId"] == "night run"
    body = {"createTrialRequest": {"experimentId": first["id"], "hparams": {"lr": 1}, "unmanaged": True},
            "externalTrialId": "t"}  # fmt: skip
    ids = {(await world.call("PUT", "/api/v1/trials", body))["trial"]["id"] for _ in range(3)}
    assert len(ids) == 1
    (id_,) = ids
    await world.post(f"/api/v1/trials/{id_}/start", {"resume": True})
    await world.call("PATCH", f"/api/v1/trials/{id_}", {"state": "STATE_COMPLETED"})
    assert (await world.call("PUT", "/api/v1/trials", body))["trial"]["id"] == id_
    found = await world.get("/api/v1/trials/by-external-id/night%20run/t")
    assert found["trial"]["id"] == id_
    await world.error("GET", "/api/v1/trials/by-external-id/night%20run/u", status=404)
    await world.call("DELETE", f"/api/v1/experiments/{first['id']}")
    assert (await world.call("PUT", path, request()))["experiment"]["id"] != first["id"]


async def test_silence_is_taken_for_the_end_until_the_trial_speaks_again(world: World, clock: FixedClock) -> None:
    experiment = await an_experiment(world)
    id_ = (await a_trial(world, experiment))["id"]
    path = f"/api/v1/trials/{id_}"
    await world.post(f"{path}/start", {"resume": True})
    clock.advance(200)
    await world.post(f"{path}/metrics", metrics(id_, 1, 1, 0.5))
    clock.advance(200)
    await world.engine.submit(Reconsider())
    assert await states(world, experiment, id_) == ("STATE_RUNNING", "STATE_RUNNING")
    clock.advance(101)
    await world.engine.submit(Reconsider())
    assert await states(world, experiment, id_) == ("STATE_ERROR", "STATE_ERROR")
    ended = (await world.get(path))["trial"]["endTime"]
    assert ended.startswith("2026-01-01T00:03:20")
    await world.call("PATCH", path, {"trialId": id_})
    assert await states(world, experiment, id_) == ("STATE_RUNNING", "STATE_RUNNING")
    await world.call("PATCH", path, {"state": "STATE_ERROR"})
    await world.call("PATCH", path, {"trialId": id_})
    assert await states(world, experiment, id_) == ("STATE_ERROR", "STATE_ERROR")


async def test_what_runs_elsewhere_is_not_controlled_from_here(world: World) -> None:
    experiment = await an_experiment(world)
    id_ = (await a_trial(world, experiment))["id"]
    for call in (f"experiments/{experiment}/activate", f"experiments/{experiment}/kill", f"trials/{id_}/kill"):
        assert "stop them where they were started" in await world.error("POST", f"/api/v1/{call}", status=400)
    managed, _, _ = await world.started(await world.agent())
    for method, path, body, named in (
        ("PATCH", f"/api/v1/trials/{managed.id}", {"state": "STATE_COMPLETED"}, "run by this cluster"),
        ("POST", f"/api/v1/trials/{managed.id}/start", {"resume": True}, "run by this cluster"),
        ("POST", "/api/v1/trials", {"experimentId": managed.experiment_id, "unmanaged": True}, "not unmanaged"),
        ("POST", "/api/v1/trials", {"experimentId": experiment}, "unmanaged true"),
        ("PATCH", f"/api/v1/trials/{id_}", {"state": "STATE_STOPPING_KILLED"}, "cannot be reported by a trial"),
    ):
        assert named in await world.error(method, path, body, status=400)
    assert "experiment '77'" in await world.error(
        "POST", "/api/v1/trials", {"experimentId": 77, "unmanaged": True}, status=404
    )


async def test_what_was_never_begun_can_be_deleted_and_what_runs_cannot(world: World) -> None:
    idle, running = await an_experiment(world), await an_experiment(world)
    id_ = (await a_trial(world, running))["id"]
    await world.post(f"/api/v1/trials/{id_}/start", {"resume": True})
    await world.call("DELETE", f"/api/v1/experiments/{idle}")
    await world.error("GET", f"/api/v1/experiments/{idle}", status=404)
    assert "ACTIVE" in await world.error("DELETE", f"/api/v1/experiments/{running}", status=400)
    await world.call("PATCH", f"/api/v1/trials/{id_}", {"state": "STATE_CANCELED"})
    await world.call("DELETE", f"/api/v1/experiments/{running}")
    await world.error("GET", f"/api/v1/trials/{id_}", status=404)
