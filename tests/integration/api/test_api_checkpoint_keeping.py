"""The counts of a storage act by themselves: when an experiment ends, and while it runs as newer checkpoints come."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from resolute_master.domain.effects import ReviewCheckpoints
from resolute_master.engine import checkpoint_files
from support.api import World, a_config, an_api
from support.checkpoints import UUIDS, removing, settled, shown, with_checkpoints


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with an_api(tmp_path) as made:
        yield made


def kept(storage: Path) -> list[int]:
    """Numbers of the checkpoints that have files."""
    return [number for number, uuid in enumerate(UUIDS) if uuid in os.listdir(storage)]


@pytest.mark.parametrize(
    ("counts", "left"),
    [
        ({}, [4]),  # the defaults: the best, which is the newest here
        ({"save_trial_best": 0, "save_trial_latest": 2}, [3, 4]),
        ({"save_experiment_best": 3, "save_trial_best": 0, "save_trial_latest": 0}, [2, 3, 4]),
        ({"save_trial_best": 0, "save_trial_latest": 0}, []),
    ],
)
async def test_what_is_not_kept_is_removed_when_the_experiment_ends(
    world: World, tmp_path: Path, counts: Mapping[str, int], left: list[int]
) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 4, counts=counts)
    async with removing(world):
        await agent.run_all()
        await settled(world)
    assert kept(tmp_path) == left
    states = {number: (await shown(world, number))["state"] for number in range(1, 5)}
    assert states == {n: "STATE_COMPLETED" if n in left else "STATE_DELETED" for n in range(1, 5)}
    logs = await world.send("GET", f"/api/v1/trials/{trial.id}/logs?limit=100")
    told = [line for line in (await logs.text()).splitlines() if "is removed: its policy does not keep it" in line]
    assert len(told) == 4 - len(left)
    for number in range(1, 5):
        why = (await shown(world, number)).get("removal") or ""
        assert "its policy does not keep it (save_experiment_best" in str(why) if number not in left else why == ""


async def test_while_it_runs_two_stay_at_least(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_files, "REVIEW_S", 0.01)
    async with removing(world), asyncio.timeout(30):
        await with_checkpoints(world, tmp_path, 4, counts={"save_trial_best": 0, "save_trial_latest": 0})
        while kept(tmp_path) != [3, 4]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await settled(world)
    assert (await shown(world, 1))["state"] == "STATE_DELETED"
    assert (await shown(world, 3))["state"] == "STATE_COMPLETED"


async def test_the_order_of_the_end_waits_for_a_master_that_was_killed(world: World, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 3, counts={})
    await agent.run_all()
    assert ReviewCheckpoints(experiment=trial.experiment_id) in world.engine.outstanding()
    assert kept(tmp_path) == [1, 2, 3]
    async with removing(world):
        await settled(world)
    assert kept(tmp_path) == [3]


async def test_what_another_experiment_started_from_stays(world: World, tmp_path: Path) -> None:
    agent, _, _ = await with_checkpoints(world, tmp_path, 3, counts={})
    searcher = {"name": "single", "metric": "loss", "source_checkpoint_uuid": UUIDS[1]}
    other = await world.create(a_config(searcher=searcher))
    await world.post(f"/api/v1/experiments/{other['id']}/kill")
    async with removing(world):
        await agent.run_all()
        await settled(world)
    assert kept(tmp_path) == [1, 3]


async def test_what_another_experiment_starts_from_is_not_removed_by_hand_either(world: World, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 3, counts={})
    searcher = {"name": "single", "metric": "loss", "source_trial_id": trial.id}
    await agent.run_all()
    other = await world.create(a_config(searcher=searcher), activate=False)
    source = trial.experiment_id
    said = f"checkpoint '{UUIDS[3]}' is where trials of experiment {other['id']} start; end that experiment first"
    async with removing(world):
        asked = {"checkpointUuids": [UUIDS[3]]}
        assert said in await world.error("DELETE", "/api/v1/checkpoints", asked, status=400)
        assert said in await world.error(
            "POST", "/api/v1/checkpoints/rm", {**asked, "checkpointGlobs": ["**/*"]}, status=400
        )
        assert said in await world.error("DELETE", f"/api/v1/experiments/{source}", status=400)
        await settled(world)
        assert 3 in kept(tmp_path)
        await world.post(f"/api/v1/experiments/{other['id']}/kill")
        counts = {"saveExperimentBest": 0, "saveTrialBest": 0, "saveTrialLatest": 0}
        await world.call("PATCH", f"/api/v1/experiments/{source}", {"checkpointStorage": counts})
        await settled(world)
        assert kept(tmp_path) == [3], "other counts do not remove it; only who names it does"
        await world.call("DELETE", "/api/v1/checkpoints", asked)
        await settled(world)
    assert kept(tmp_path) == []
