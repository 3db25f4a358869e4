"""Checkpoints lose files on request and by policy; who works with one is known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from resolute.storage.directory import DirectoryStorage
from resolute.storage.manifest import Manifest, Verify, verify
from resolute_master.domain.effects import RemoveFiles
from resolute_master.engine import checkpoint_files
from support.api import World, an_api
from support.checkpoints import UUIDS, removing, settled, shown, with_checkpoints


async def test_files_are_removed_by_pattern_and_the_rest_is_still_whole(world: World, tmp_path: Path) -> None:
    agent, _, _ = await with_checkpoints(world, tmp_path, 2)
    text = await world.error(
        "POST", "/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[2]], "checkpointGlobs": ["model/*"]}, status=400
    )
    assert "would resume" in text and (tmp_path / UUIDS[2] / "model" / "weights.pt").exists()
    await agent.run_all()
    async with removing(world):
        body = {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": ["**/optimizer.*"]}
        assert await world.post("/api/v1/checkpoints/rm", body) == {}
        await settled(world)
        left = await shown(world, 1)
        assert left["state"] == "STATE_PARTIALLY_DELETED"
        assert set(left["resources"]) == {"manifest.json", "model/", "model/weights.pt", "state.json"}  # type: ignore[call-overload]
        assert not (tmp_path / UUIDS[1] / "model" / "optimizer.pt").exists()
        manifest = Manifest.from_bytes(UUIDS[1], DirectoryStorage(tmp_path).manifest(UUIDS[1]))
        verify(manifest, tmp_path / UUIDS[1], Verify.FULL)
        assert set(manifest.files) == {"model/weights.pt", "state.json"}

        (tmp_path / UUIDS[1] / "state.json").write_bytes(b"{...}")
        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": []})
        await settled(world)
        assert (await shown(world, 1))["resources"]["state.json"] == "5"  # type: ignore[index]

        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": ["**/*"]})
        await settled(world)
        assert (await shown(world, 1))["state"] == "STATE_DELETED"
        assert not (tmp_path / UUIDS[1]).exists() and (tmp_path / UUIDS[2]).exists()
        assert "is deleted" in await world.error("POST", "/api/v1/checkpoints/rm", body, status=400)


async def test_a_pattern_cannot_leave_its_checkpoint(world: World, tmp_path: Path) -> None:
    await with_checkpoints(world, tmp_path, 2)
    for glob in ("../*", "a/../../*", "/etc/*", " "):
        body = {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": [glob]}
        assert "inside the checkpoint" in await world.error("POST", "/api/v1/checkpoints/rm", body, status=400)
    assert world.engine.outstanding() == ()
    for body, named in (
        ({"checkpointUuids": [], "checkpointGlobs": ["*"]}, "at least one"),
        ({"checkpointUuids": [UUIDS[1]], "checkpointGlobs": ["*"] * 101}, "more than 100"),
    ):
        assert named in await world.error("POST", "/api/v1/checkpoints/rm", body, status=400)
    unknown = {"checkpointUuids": [UUIDS[9]], "checkpointGlobs": ["*"]}
    assert UUIDS[9] in await world.error("POST", "/api/v1/checkpoints/rm", unknown, status=404)


async def test_an_order_that_was_not_carried_out_is_after_a_restart(world: World, tmp_path: Path) -> None:
    agent, _, _ = await with_checkpoints(world, tmp_path, 2)
    await agent.run_all()
    body = {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": ["state.json"]}
    await world.post("/api/v1/checkpoints/rm", body)
    (order,) = (effect for effect in world.engine.outstanding() if isinstance(effect, RemoveFiles))
    # As a master does that was killed in between: files are gone, and nobody was told.
    (tmp_path / UUIDS[1] / "state.json").unlink()
    async with removing(world):
        await settled(world)
    assert order.key.startswith(f"remove-files:{UUIDS[1]}:")
    assert (await shown(world, 1))["state"] == "STATE_PARTIALLY_DELETED"


async def test_a_changed_policy_removes_at_once_what_it_does_not_keep(world: World, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 4)
    await agent.run_all()
    path = f"/api/v1/experiments/{trial.experiment_id}"
    counts = {"saveExperimentBest": 0, "saveTrialBest": 1, "saveTrialLatest": 2}
    preview = await world.get(
        f"/experiments/{trial.experiment_id}/preview_gc?save_experiment_best=0&save_trial_best=1&save_trial_latest=2"
    )
    assert preview["metric_name"] == "loss"
    assert [(c["UUID"], c["ValidationMetrics"]["loss"]) for c in preview["checkpoints"]] == [
        (UUIDS[1], 1.0),
        (UUIDS[2], 0.5),
    ]
    assert all((tmp_path / UUIDS[n]).exists() for n in (1, 2, 3, 4))
    async with removing(world):
        changed = (await world.call("PATCH", path, {"checkpointStorage": counts}))["experiment"]
        assert changed["config"]["checkpoint_storage"]["save_trial_latest"] == 2
        await settled(world)
    for listing in (f"{path}/checkpoints", f"/api/v1/trials/{trial.id}/checkpoints"):
        states = {c["uuid"]: c["state"] for c in (await world.get(listing))["checkpoints"]}
        assert [states[UUIDS[n]] for n in (1, 2)] == ["STATE_DELETED"] * 2
        assert [states[UUIDS[n]] for n in (3, 4)] == ["STATE_COMPLETED"] * 2
        kept = (await world.get(f"{listing}?states=STATE_COMPLETED"))["checkpoints"]
        assert sorted(c["uuid"] for c in kept) == [UUIDS[3], UUIDS[4]]
    assert [n for n in (1, 2, 3, 4) if (tmp_path / UUIDS[n]).exists()] == [3, 4]
    refused = {"checkpointStorage": {"saveTrialBest": -1}}
    assert "save_trial_best: -1" in await world.error("PATCH", path, refused, status=400)


async def test_the_checkpoint_that_a_running_trial_needs_is_kept_by_every_policy(world: World, tmp_path: Path) -> None:
    _, trial, _ = await with_checkpoints(world, tmp_path, 3)
    counts = {"saveExperimentBest": 0, "saveTrialBest": 0, "saveTrialLatest": 0}
    async with removing(world):
        await world.call("PATCH", f"/api/v1/experiments/{trial.experiment_id}", {"checkpointStorage": counts})
        await settled(world)
    assert [n for n in (1, 2, 3) if (tmp_path / UUIDS[n]).exists()] == [3]


async def test_tensorboard_files_are_removed_on_request_and_with_the_experiment(world: World, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 1)
    await agent.run_all()
    events = tmp_path / world.context.cluster_id / "tensorboard" / "experiment" / str(trial.experiment_id)
    other = events.parent / "77" / "trial" / "1"
    other.mkdir(parents=True)
    path = f"/api/v1/experiments/{trial.experiment_id}"
    async with removing(world):
        for request in (f"{path}/tensorboard-files", path):
            (events / "trial" / "1").mkdir(parents=True)
            (events / "trial" / "1" / "events.out").write_bytes(b"e")
            assert await world.call("DELETE", request) == {}
            await settled(world)
            assert not events.exists() and other.exists()
    await world.error("GET", path, status=404)


# ------------------------------------------------------------------------------------------------------------ lineage


async def test_who_works_with_a_checkpoint_is_known_with_what_it_reports(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        agent, _, _ = await with_checkpoints(world, tmp_path, 2)
        await agent.run_all()
        user, _, task = await world.started(await world.agent("agent-2"))
        info = {
            "checkpointUuid": UUIDS[1],
            "trialId": user.id,
            "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE",
        }
        for _ in range(2):
            answer = await world.post("/api/v1/trial-source-info", {"trialSourceInfo": info}, task=task)
            assert answer == {"checkpointUuid": UUIDS[1], "trialId": user.id}
        values = {"trialId": user.id, "trialRunId": 1, "stepsCompleted": 5, "metrics": {"avgMetrics": {"acc": 0.9}}}
        await world.post(f"/api/v1/trials/{user.id}/metrics", {"group": "inference", "metrics": values}, task=task)
        path = f"/api/v1/checkpoints/{UUIDS[1]}/metrics"
        (report,) = (await world.get(f"{path}?metricGroup=inference"))["metrics"]
        assert (report["trialId"], report["metrics"], report["group"]) == (
            user.id, {"avg_metrics": {"acc": 0.9}}, "inference",
        )  # fmt: skip
        assert (await world.get(f"{path}?metricGroup=validation"))["metrics"] == []
        wanted = "trialSourceInfoType=TRIAL_SOURCE_INFO_TYPE_FINE_TUNING"
        assert (await world.get(f"{path}?{wanted}"))["metrics"] == []
        assert (await world.get(f"/api/v1/checkpoints/{UUIDS[2]}/metrics"))["metrics"] == []
        model = {"trialSourceInfo": {**info, "modelId": 1, "modelVersion": 2}}
        assert "model registry" in await world.error("POST", "/api/v1/trial-source-info", model, status=400, task=task)
        unknown = {"trialSourceInfo": {**info, "checkpointUuid": UUIDS[8]}}
        assert UUIDS[8] in await world.error("POST", "/api/v1/trial-source-info", unknown, status=404, task=task)
        stranger = {"trialSourceInfo": {**info, "trialId": 1}}
        await world.error("POST", "/api/v1/trial-source-info", stranger, status=403, task=task)
        assert json.loads((tmp_path / UUIDS[1] / "manifest.json").read_bytes())["uuid"] == UUIDS[1]


def unmount(storage: Path, way: str) -> Path:
    """The file system is taken away from where it was: with its directory, or from an empty one. Gives where it is now."""
    elsewhere = storage.with_name(f"{storage.name}-unmounted")
    storage.rename(elsewhere)
    if way == "from an empty directory":
        storage.mkdir()
    return elsewhere


def mount(elsewhere: Path, storage: Path) -> None:
    if storage.exists():
        storage.rmdir()
    elsewhere.rename(storage)


async def says(world: World, words: str) -> dict[str, object]:
    """The line of the trial's log with these words, once it is there."""
    async with asyncio.timeout(20):
        while True:
            lines = await world.lines("/api/v1/trials/1/logs")
            if found := [line["result"] for line in lines if words in line["result"]["log"]]:
                assert len(found) == 1, "it is said once"
                return found[0]
            await asyncio.sleep(0.01)


WAYS = ["with its directory", "from an empty directory"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("globs", [["**/*"], ["state.json"], []])
async def test_a_storage_that_is_not_mounted_keeps_its_checkpoints_and_is_asked_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, globs: list[str]
) -> None:
    monkeypatch.setattr(checkpoint_files, "RETRY_S", 0.05)
    agent, _, _ = await with_checkpoints(world, tmp_path, 2)
    await agent.run_all()
    elsewhere = unmount(tmp_path, way)
    async with removing(world):
        await world.post("/api/v1/checkpoints/rm", {"checkpointUuids": [UUIDS[1]], "checkpointGlobs": globs})
        line = await says(world, "is not mounted")
        assert str(tmp_path) in str(line["log"]) and line["level"] == "LOG_LEVEL_WARNING"
        assert len(world.engine.outstanding()) == 1
        assert (await shown(world, 1))["state"] == "STATE_COMPLETED"
        mount(elsewhere, tmp_path)
        await settled(world)
    expected = {"**/*": "STATE_DELETED", "state.json": "STATE_PARTIALLY_DELETED"}
    assert (await shown(world, 1))["state"] == expected.get("".join(globs), "STATE_COMPLETED")
    assert (tmp_path / UUIDS[1]).exists() == (globs != ["**/*"])


@pytest.mark.parametrize("way", WAYS)
async def test_an_experiment_whose_storage_is_not_mounted_is_deleted_when_it_is_back(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(checkpoint_files, "RETRY_S", 0.05)
    agent, trial, _ = await with_checkpoints(world, tmp_path, 2)
    await agent.run_all()
    events = tmp_path / world.context.cluster_id / "tensorboard" / "experiment" / str(trial.experiment_id)
    events.mkdir(parents=True)
    path = f"/api/v1/experiments/{trial.experiment_id}"
    elsewhere = unmount(tmp_path, way)
    async with removing(world):
        await world.call("DELETE", path)
        await says(world, "is not mounted")
        assert len(world.engine.outstanding()) == 3
        assert (await world.get(path))["experiment"]["state"] == "STATE_DELETING"
        mount(elsewhere, tmp_path)
        await settled(world)
    await world.error("GET", path, status=404)
    assert not any((tmp_path / uuid).exists() for uuid in UUIDS) and not events.exists()


async def test_an_experiment_that_never_saved_needs_no_storage_to_be_deleted(world: World, tmp_path: Path) -> None:
    agent, trial, _ = await with_checkpoints(world, tmp_path, 0)
    await agent.run_all()
    unmount(tmp_path, "with its directory")
    async with removing(world):
        await world.call("DELETE", f"/api/v1/experiments/{trial.experiment_id}")
        await settled(world)
