"""What is changed of an experiment: all of a request or nothing, and each of many at once."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from resolute_master.domain.commands import PatchExperiment, SetCheckpointPolicy, UpdateJob
from resolute_master.domain.ids import ExperimentId, JobId
from resolute_master.domain.job import Job
from resolute_master.engine.journal import decode_commands, journaled, written_down
from resolute_master.lifecycle.experiments import MAX_LABELS
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


async def shown(world: World, path: str) -> dict[str, Any]:
    experiment: dict[str, Any] = (await world.get(path))["experiment"]
    return experiment


# ---------------------------------------------------------------------------------------------------------- labels


async def test_labels_that_are_set_and_removed_at_once_all_are(world: World) -> None:
    path, _ = await an_experiment(world)
    numbers = range(20)
    await world.call("PATCH", path, {"labels": [f"old{n}" for n in numbers] + ["kept"]})
    await asyncio.gather(
        *(world.call("PUT", f"{path}/labels/new{n}") for n in numbers),
        *(world.call("DELETE", f"{path}/labels/old{n}") for n in numbers),
    )
    assert (await shown(world, path))["labels"] == sorted(["kept", *(f"new{n}" for n in numbers)])


async def test_counts_of_checkpoints_that_are_changed_at_once_all_are(world: World) -> None:
    path, _ = await an_experiment(world)
    counts = {"saveExperimentBest": 4, "saveTrialBest": 5, "saveTrialLatest": 6}
    await asyncio.gather(
        *(world.call("PATCH", path, {"checkpointStorage": {name: count}}) for name, count in counts.items())
    )
    storage = (await shown(world, path))["config"]["checkpoint_storage"]
    assert [storage[f"save_{name}"] for name in ("experiment_best", "trial_best", "trial_latest")] == [4, 5, 6]


async def test_no_more_labels_than_may_be_come_one_by_one(world: World) -> None:
    path, _ = await an_experiment(world)
    labels = [f"{n:03}" for n in range(MAX_LABELS - 1)]
    await world.call("PATCH", path, {"labels": labels})
    answers = await asyncio.gather(*(world.send("PUT", f"{path}/labels/new{n}") for n in range(3)))
    assert sorted(answer.status for answer in answers) == [200, 400, 400]
    refused = await world.error("PUT", f"{path}/labels/another", status=400)
    assert f"labels: would be {MAX_LABELS + 1}, over the limit of {MAX_LABELS}" in refused
    assert len((await world.call("PUT", f"{path}/labels/{labels[0]}"))["labels"]) == MAX_LABELS
    assert len((await world.call("DELETE", f"{path}/labels/{labels[0]}"))["labels"]) == MAX_LABELS - 1


async def test_blank_labels_are_refused(world: World) -> None:
    path, _ = await an_experiment(world)
    for labels in (["", "a", "a"], ["a", " "]):
        assert "must not be blank" in await world.error("PATCH", path, {"labels": labels}, status=400)
    assert "must not be blank" in await world.error("PUT", f"{path}/labels/%20", status=400)
    assert (await shown(world, path))["labels"] == []


# ------------------------------------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        ({"checkpointStorage": {"saveExperimentBest": -1}}, "save_experiment_best: -1"),
        ({"resources": {"priority": 7, "maxSlots": -1}}, "max_slots: -1"),
        ({"labels": [""]}, "labels: ''"),
    ],
)
async def test_of_a_refused_change_nothing_is_stored(world: World, refused: dict[str, Any], told: str) -> None:
    path, job = await an_experiment(world)
    what = ("name", "notes", "labels", "config")
    before = await shown(world, path)
    whole = {
        "name": "half",
        "notes": "n",
        "labels": ["l"],
        "resources": {"priority": 7},
        "checkpointStorage": {"saveTrialBest": 5},
    }
    assert told in await world.error("PATCH", path, {**whole, **refused}, status=400)
    after = await shown(world, path)
    assert [after[key] for key in what] == [before[key] for key in what]
    assert the_job(world, job.id) == job
    await world.call("PATCH", path, whole)
    changed = await shown(world, path)
    assert (changed["name"], changed["notes"], changed["labels"]) == ("half", "n", ["l"])
    assert changed["config"]["resources"]["priority"] == the_job(world, job.id).priority == 7
    assert changed["config"]["checkpoint_storage"]["save_trial_best"] == 5
    assert the_job(world, job.id).name == "half"


def test_a_change_of_an_older_journal_is_read() -> None:
    body = b'[{"type":"PatchExperiment","body":{"experiment":1,"name":"n","description":null,"notes":null,"labels":["a"]}}]'
    assert decode_commands(body) == (PatchExperiment(experiment=ExperimentId(1), name="n", labels=("a",)),)


def test_a_change_with_all_its_parts_is_read_again_from_the_journal() -> None:
    experiment = ExperimentId(1)
    policy = SetCheckpointPolicy(
        experiment=experiment, experiment_best=1, trial_best=1, trial_latest=0, metrics={"a": math.inf, "b": None}
    )
    job = UpdateJob(job=JobId("j"), priority=7)
    change = PatchExperiment(
        experiment=experiment, add_labels=("a",), remove_labels=("b",), job=job, checkpoint_policy=policy
    )
    assert decode_commands(journaled([written_down(change)[1]])) == (change,)
