"""Experiments that start from a checkpoint of another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.trial import Trial
from support.api import World, a_config, settled
from support.checkpoints import UUIDS, removing, with_checkpoints
from support.checkpoints import settled as removed


def starting_from(**source: Any) -> dict[str, Any]:
    return a_config(searcher={"name": "single", "metric": "loss", **source})


async def checkpoint_of_first_run(world: World, experiment: dict[str, Any]) -> str | None:
    await settled(world)
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    (allocation,) = world.engine.state.find(Allocation, "allocations_of_task", trial.task_id)
    assert allocation.resumed_steps == 0
    return allocation.resumed_checkpoint


async def test_a_source_trial_means_its_newest_checkpoint_and_beats_a_uuid(world: World, tmp_path: Path) -> None:
    _, source, _ = await with_checkpoints(world, tmp_path, 3)
    from_trial = await world.create(starting_from(source_trial_id=source.id, source_checkpoint_uuid=UUIDS[1]))
    assert await checkpoint_of_first_run(world, from_trial) == UUIDS[3]
    assert from_trial["config"]["searcher"]["source_trial_id"] == source.id
    from_uuid = await world.create(starting_from(source_checkpoint_uuid=UUIDS[1].upper()))
    assert await checkpoint_of_first_run(world, from_uuid) == UUIDS[1]


async def test_a_deleted_checkpoint_is_no_source(world: World, tmp_path: Path) -> None:
    agent, source, _ = await with_checkpoints(world, tmp_path, 3)
    # The source is over, and in the store alone.
    await agent.run_all()
    async with removing(world):
        await world.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [UUIDS[3]]})
        await removed(world)
    later = await world.create(starting_from(source_trial_id=source.id))
    assert await checkpoint_of_first_run(world, later) == UUIDS[2]
    gone = {"config": str(starting_from(source_checkpoint_uuid=UUIDS[3]))}
    assert "is DELETED" in await world.error("POST", "/api/v1/experiments", gone, status=400)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"source_trial_id": 77}, "config.searcher.source_trial_id: there is no trial 77"),
        ({"source_trial_id": -1}, "config.searcher.source_trial_id: there is no trial -1"),
        ({"source_checkpoint_uuid": UUIDS[9]}, f"config.searcher.source_checkpoint_uuid: there is no checkpoint '{UUIDS[9]}'"),
        ({"source_checkpoint_uuid": "newest"}, "config.searcher.source_checkpoint_uuid: there is no checkpoint 'newest'"),
    ],
)  # fmt: skip
async def test_an_unknown_source_is_refused_before_anything_is_stored(
    world: World, source: dict[str, Any], named: str
) -> None:
    await world.agent()
    for more in ({}, {"validateOnly": True}):
        body = {"config": str(starting_from(**source)), **more}
        assert named in await world.error("POST", "/api/v1/experiments", body, status=400)
    assert (await world.get("/api/v1/experiments"))["experiments"] == []


async def test_a_source_trial_without_a_checkpoint_is_refused(world: World) -> None:
    trial, _, _ = await world.started(await world.agent())
    body = {"config": str(starting_from(source_trial_id=trial.id))}
    text = await world.error("POST", "/api/v1/experiments", body, status=400)
    assert f"trial {trial.id} has no completed checkpoint" in text
