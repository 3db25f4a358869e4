"""What is changed of an experiment: all of a request or nothing, and each of many at once."""

from __future__ import annotations

import pytest

from resolute_master.domain.ids import ExperimentId, JobId
from resolute_master.domain.job import Job
from support.api import World, a_config


async def an_experiment(world: World, *, slots: int = 1) -> tuple[str, Job]:
    """Its path, and its job."""
    await world.agent()
    created = await world.create(a_config(resources={"slots_per_trial": slots}))
    return f"/api/v1/experiments/{ExperimentId(created['id'])}", the_job(world, JobId(created["jobId"]))


def the_job(world: World, id_: JobId) -> Job:
    found = world.engine.state.get(Job, id_)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("max_slots", "told"),
    [
        (-1, "max_slots: -1 must not be negative"),
        (0, "max_slots: 0 is less than slots_per_trial 2"),
        (1, "max_slots: 1 is less than slots_per_trial 2"),
    ],
)
async def test_a_cap_under_which_no_trial_could_run_is_refused(world: World, max_slots: int, told: str) -> None:
    path, job = await an_experiment(world, slots=2)
    assert told in await world.error("PATCH", path, {"resources": {"maxSlots": max_slots}}, status=400)
    assert the_job(world, job.id) == job
    await world.get("/api/v1/resource-pools/default/snapshot")
    await world.call("PATCH", path, {"resources": {"maxSlots": 2}})
    assert the_job(world, job.id).max_slots == 2


async def test_who_takes_no_slots_may_be_left_none(world: World) -> None:
    path, job = await an_experiment(world, slots=0)
    await world.call("PATCH", path, {"resources": {"maxSlots": 0}})
    assert the_job(world, job.id).max_slots == 0
