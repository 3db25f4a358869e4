"""What tasks report: metrics, checkpoints, progress, metadata, step marks; and how it is shown."""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api.resources import checkpoint_download
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.trial import Trial
from support.api import World
from support.engines import AgentByHand

UUIDS = [f"00000000-0000-4000-8000-00000000000{i}" for i in range(10)]


def metrics(trial: Trial, run: int, steps: int | None, group: str = "validation", **values: Any) -> dict[str, Any]:
    return {
        "group": group,
        "metrics": {"trialId": trial.id, "trialRunId": run, "stepsCompleted": steps, "metrics": {"avgMetrics": values}},
    }


def checkpoint(allocation: Allocation, number: int, steps: int, **changes: Any) -> dict[str, Any]:
    return {
        "uuid": UUIDS[number],
        "allocationId": allocation.id,
        "resources": {"state": "10", "code/": "0"},
        "metadata": {"steps_completed": steps},
        "state": "STATE_COMPLETED",
        **changes,
    }


async def begun(world: World) -> tuple[AgentByHand, Trial, Allocation, str]:
    agent = await world.agent()
    return agent, *await world.started(agent)


async def test_a_report_is_stored_once_and_never_twice(world: World) -> None:
    _, trial, _, task = await begun(world)
    path = f"/api/v1/trials/{trial.id}/metrics"
    for _ in range(2):
        assert await world.post(path, metrics(trial, 1, 10, loss=0.5), task=task) == {}
    await world.post(path, metrics(trial, 1, 10, accuracy=0.9), task=task)
    text = await world.error("POST", path, metrics(trial, 1, 10, loss=0.4), task=task, status=400)
    assert "step 10" in text
    (line,) = await world.lines(f"/api/v1/trials/metrics/validation_metrics?trialIds={trial.id}")
    (report,) = line["result"]["metrics"]
    assert report["metrics"] == {"validation_metrics": {"loss": 0.5, "accuracy": 0.9}}
    assert (report["totalBatches"], report["trialRunId"], report["group"]) == (10, 1, "validation")


async def test_an_older_run_is_refused(world: World) -> None:
    agent, trial, allocation, task = await begun(world)
    await world.post(f"/api/v1/trials/{trial.id}/metrics", metrics(trial, 1, 10, loss=0.5), task=task)
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/pause")
    await world.post(f"/api/v1/allocations/{allocation.id}/signals/ack_preemption", task=task)
    await agent.run_all()
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/activate")
    trial, _, task = await world.next_run(agent, trial)
    assert trial.run_id == 2
    path = f"/api/v1/trials/{trial.id}/metrics"
    assert "run 1" in await world.error("POST", path, metrics(trial, 1, 11, loss=0.5), task=task, status=409)
    assert "run 2" in await world.error("POST", path, metrics(trial, 3, 11, loss=0.5), task=task, status=400)
    # The new run's first report puts what it does again aside.
    await world.post(path, metrics(trial, 2, 5, loss=0.6), task=task)
    (line,) = await world.lines(f"/api/v1/trials/metrics/trial_metrics?group=validation&trialIds={trial.id}")
    assert [(r["totalBatches"], r["archived"]) for r in line["result"]["metrics"]] == [(5, False), (10, True)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"group": ""}, "group"),
        ({"group": "a.b"}, "group"),
        ({"steps": None}, "stepsCompleted"),
        ({"steps": -1}, "stepsCompleted"),
        ({"epoch": "first"}, "epoch"),
    ],
)
async def test_a_report_that_means_nothing_is_refused(world: World, change: dict[str, Any], named: str) -> None:
    _, trial, _, task = await begun(world)
    steps = change.pop("steps", 1)
    body = metrics(trial, 1, steps, **{"group": "validation", **change})
    text = await world.error("POST", f"/api/v1/trials/{trial.id}/metrics", body, task=task, status=400)
    assert named in text


async def test_what_json_cannot_say_is_kept_as_it_was_sent(world: World) -> None:
    _, trial, _, task = await begun(world)
    await world.post(f"/api/v1/trials/{trial.id}/metrics", metrics(trial, 1, 1, loss="NaN"), task=task)
    await world.post(
        f"/api/v1/trials/{trial.id}/metrics", metrics(trial, 1, None, "gpu", **{"agent-1": {"util": 3.0}}), task=task
    )
    shown = (await world.get(f"/api/v1/trials/{trial.id}"))["trial"]
    assert shown["latestValidation"]["metrics"]["avgMetrics"] == {"loss": "NaN"}
    (line,) = await world.lines(f"/api/v1/trials/metrics/trial_metrics?group=gpu&trialIds={trial.id}")
    assert line["result"]["metrics"][0]["metrics"] == {"avg_metrics": {"agent-1": {"util": 3.0}}}


async def test_streams_of_metrics_name_what_is_missing(world: World) -> None:
    _, trial, _, _ = await begun(world)
    for path, status in (
        ("trial_metrics?group=validation", 400),
        (f"trial_metrics?trialIds={trial.id}", 400),
        ("training_metrics?trialIds=99", 404),
    ):
        await world.error("GET", f"/api/v1/trials/metrics/{path}", status=status)
    assert await world.lines(f"/api/v1/trials/metrics/training_metrics?trialIds={trial.id}") == []


async def test_the_timeline_and_the_summaries(world: World) -> None:
    _, trial, allocation, task = await begun(world)
    path = f"/api/v1/trials/{trial.id}"
    for steps in (1, 2):
        await world.post(f"{path}/metrics", metrics(trial, 1, steps, "training", loss=1.0 / steps), task=task)
    await world.post(f"{path}/metrics", metrics(trial, 1, 2, loss=0.4), task=task)
    await world.post("/api/v1/checkpoints", checkpoint(allocation, 1, 2), task=task)
    answer = await world.get(f"{path}/workloads")
    kinds = [next(kind for kind, value in w.items() if value is not None) for w in answer["workloads"]]
    assert kinds == ["training", "training", "validation", "checkpoint"]
    assert answer["pagination"]["total"] == 4
    assert all(sum(value is not None for value in w.values()) == 1 for w in answer["workloads"])
    only = await world.get(f"{path}/workloads?filter=FILTER_OPTION_CHECKPOINT&limit=5")
    assert [w["checkpoint"]["uuid"] for w in only["workloads"]] == [UUIDS[1]]
    last = await world.get(f"{path}/workloads?limit=1&orderBy=ORDER_BY_DESC")
    assert last["workloads"][0]["checkpoint"] and last["pagination"]["endIndex"] == 1
    shown = (await world.get(path))["trial"]
    assert shown["summaryMetrics"]["avg_metrics"]["loss"] == {
        "type": "number", "min": 0.5, "max": 1.0, "sum": 1.5, "count": 2, "mean": 0.75, "last": 0.5
    }  # fmt: skip
    assert (shown["totalBatchesProcessed"], shown["searcherMetricValue"]) == (2, 0.4)
    assert (shown["bestCheckpoint"]["uuid"], shown["totalCheckpointSize"]) == (UUIDS[1], "10")
    best = f"/api/v1/experiments/{trial.experiment_id}/searcher/best_searcher_validation_metric"
    assert await world.get(best, task=task, token="") == {"metric": 0.4}


async def test_there_is_no_best_metric_before_the_first(world: World) -> None:
    _, trial, _, _ = await begun(world)
    await world.error(
        "GET", f"/api/v1/experiments/{trial.experiment_id}/searcher/best_searcher_validation_metric", status=404
    )


async def test_checkpoints_are_listed_best_first(world: World) -> None:
    _, trial, allocation, task = await begun(world)
    for number, loss in ((1, 0.5), (2, 0.3), (3, 0.9)):
        await world.post(f"/api/v1/trials/{trial.id}/metrics", metrics(trial, 1, number, loss=loss), task=task)
        await world.post("/api/v1/checkpoints", checkpoint(allocation, number, number), task=task)
    await world.post("/api/v1/checkpoints", checkpoint(allocation, 4, 4), task=task)
    path = f"/api/v1/experiments/{trial.experiment_id}/checkpoints"

    async def order(query: str) -> list[int]:
        return [int(c["uuid"][-1]) for c in (await world.get(f"{path}?{query}"))["checkpoints"]]

    assert await order("") == [1, 2, 3, 4]
    assert await order("sortByAttr=SORT_BY_SEARCHER_METRIC") == [2, 1, 3, 4]
    assert await order("sortByAttr=SORT_BY_SEARCHER_METRIC&orderBy=ORDER_BY_DESC") == [3, 1, 2, 4]
    assert await order("sortByMetric=loss&limit=2") == [2, 1]
    assert await order("sortByAttr=SORT_BY_BATCH_NUMBER&orderBy=ORDER_BY_DESC&offset=1") == [3, 2, 1]
    assert await order("states=STATE_DELETED") == []
    assert len((await world.get(f"/api/v1/trials/{trial.id}/checkpoints"))["checkpoints"]) == 4
    (one,) = [c for c in (await world.get(path))["checkpoints"] if c["uuid"] == UUIDS[2]]
    assert one["training"]["searcherMetric"] == 0.3
    assert one["training"]["validationMetrics"]["avgMetrics"] == {"loss": 0.3}
    assert one["resources"] == {"state": "10", "code/": "0"}


async def test_a_checkpoint_is_reported_once_and_fenced(world: World) -> None:
    _, _, allocation, task = await begun(world)
    body = checkpoint(allocation, 1, 3)
    for _ in range(2):
        assert await world.post("/api/v1/checkpoints", body, task=task) == {}
    await world.error("POST", "/api/v1/checkpoints", {**body, "resources": {"x": "1"}}, task=task, status=409)
    for change, named in (
        ({"uuid": "no"}, "UUID"),
        ({"metadata": {}}, "steps_completed"),
        ({"state": "STATE_ACTIVE"}, "state"),
        ({"resources": {"x": "-1"}}, "resources"),
        ({"allocationId": None}, "allocationId"),
    ):
        bad = {**checkpoint(allocation, 2, 3), **change}
        assert named in await world.error("POST", "/api/v1/checkpoints", bad, task=task, status=400)


async def test_metadata_and_what_is_left_of_a_checkpoint(world: World) -> None:
    _, _, allocation, task = await begun(world)
    for number in (1, 2):
        await world.post("/api/v1/checkpoints", checkpoint(allocation, number, number), task=task)
    path = f"/api/v1/checkpoints/{UUIDS[1]}"
    body = {"checkpoint": {**checkpoint(allocation, 1, 1), "metadata": {"note": "best"}, "state": "STATE_UNSPECIFIED"}}
    changed = (await world.post(f"{path}/metadata", body))["checkpoint"]
    assert changed["metadata"] == {"note": "best", "steps_completed": 1}
    patch = {"checkpoints": [{"uuid": UUIDS[1], "resources": {"resources": {"state": "10"}}}]}
    await world.call("PATCH", "/api/v1/checkpoints", patch, task=task)
    assert (await world.get(path))["checkpoint"]["state"] == "STATE_PARTIALLY_DELETED"
    # The one that the trial would resume from stays while it may run.
    await world.error("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [UUIDS[2]]}, status=400)
    await world.error("DELETE", "/api/v1/checkpoints", {"checkpointUuids": []}, status=400)
    assert await world.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [UUIDS[1]]}) == {}
    assert f"remove-checkpoint:{UUIDS[1]}" in world.engine.state.outbox
    await world.error("GET", f"/api/v1/checkpoints/{UUIDS[9]}", status=404)


async def test_a_checkpoint_is_downloaded_as_one_archive(world: World, tmp_path: Path) -> None:
    _, _, allocation, task = await begun(world)
    await world.post("/api/v1/checkpoints", checkpoint(allocation, 1, 1), task=task)
    directory = tmp_path / UUIDS[1]
    path = f"/checkpoints/{UUIDS[1]}"
    text = await world.error("GET", path, status=400)
    assert str(directory) in text
    (directory / "code").mkdir(parents=True)
    (directory / "state").write_bytes(b"0123456789" * 300_000)
    (directory / "code" / "train.py").write_text("x = 1\n")
    (directory / "link").symlink_to("/etc/passwd")
    for accept, mode in (("application/gzip", "r:gz"), ("application/x-tar", "r:"), ("*/*", "r:gz")):
        response = await world.send("GET", path, headers={"Accept": accept})
        assert response.status == 200 and "Content-Encoding" not in response.headers
        with tarfile.open(fileobj=io.BytesIO(await response.read()), mode=mode) as archive:  # type: ignore[call-overload]
            assert archive.getnames() == ["code", "code/train.py", "state"]
            assert archive.extractfile("state").read() == b"0123456789" * 300_000  # type: ignore[union-attr]
    response = await world.send("GET", path, headers={"Accept": "application/zip"})
    with zipfile.ZipFile(io.BytesIO(await response.read())) as zipped:
        assert zipped.read("code/train.py") == b"x = 1\n"
    response = await world.send("GET", path, headers={"Accept": "image/png"})
    assert response.status == 415 and "application/gzip" in (await response.json())["message"]
    await world.error("GET", "/checkpoints/no", status=400)
    await world.error("GET", f"/checkpoints/{UUIDS[9]}", status=404)


async def test_a_download_that_is_left_early_leaves_no_thread(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, allocation, task = await begun(world)
    await world.post("/api/v1/checkpoints", checkpoint(allocation, 1, 1), task=task)
    (tmp_path / UUIDS[1]).mkdir()
    (tmp_path / UUIDS[1] / "state").write_bytes(bytes(range(256)) * 200_000)
    response = await world.send("GET", f"/checkpoints/{UUIDS[1]}", headers={"Accept": "application/x-tar"})
    await response.content.read(1000)
    response.close()
    async with asyncio.timeout(20):
        while any(_packs(thread) for thread in threading.enumerate()):  # noqa: ASYNC110  # threads set no event
            await asyncio.sleep(0.01)
    assert "failed" not in caplog.text


def _packs(thread: threading.Thread) -> bool:
    """Whether the thread is in the middle of packing."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == checkpoint_download.__file__:
            return True
        frame = frame.f_back
    return False


async def test_progress_state_metadata_and_early_exits(world: World) -> None:
    _, trial, allocation, task = await begun(world)
    path = f"/api/v1/trials/{trial.id}"
    assert await world.post(f"{path}/progress", {"progress": 0.25, "is_raw": True}, task=task) == {}
    assert (await world.get(f"/api/v1/experiments/{trial.experiment_id}"))["experiment"]["progress"] == 0.25
    assert "isRaw" in await world.error("POST", f"{path}/progress", {"progress": 5}, task=task, status=400)
    await world.error("POST", f"{path}/progress", {"progress": "NaN", "is_raw": True}, task=task, status=400)
    await world.post(f"{path}/runner/metadata", {"state": "validating"}, task=task)
    assert (await world.get(path))["trial"]["runnerState"] == "validating"
    first = await world.post("/api/v1/runs/start", {"runId": trial.id, "checkpointStorage": {"a": 1}}, task=task)
    again = await world.post("/api/v1/runs/start", {"runId": trial.id, "checkpointStorage": {"a": 1}}, task=task)
    assert first == again != {"storageId": None}
    await world.error("POST", "/api/v1/runs/start", {"runId": 99}, status=404)
    run = f"/api/v1/runs/{trial.id}/metadata"
    assert await world.post(run, {"metadata": {"a": {"b_c": [1]}}}, task=task) == {"metadata": {"a": {"b_c": [1]}}}
    assert await world.get(run, task=task, token="") == {"metadata": {"a": {"b_c": [1]}}}
    assert "metadata.a" in await world.error("POST", run, {"metadata": {"a": {"b.c": 1}}}, task=task, status=400)
    await world.error("POST", f"{path}/early_exit", {"reason": "EXITED_REASON_UNSPECIFIED"}, task=task, status=400)
    for _ in range(2):
        assert await world.post(f"{path}/early_exit", {"reason": "EXITED_REASON_INVALID_HP"}, task=task) == {}
    marks = {"marks": [{"steps": 3, "at": "2026-01-01T00:00:00Z", "checkpointingS": 0.5}]}
    for _ in range(2):
        assert await world.post(f"/api/v1/allocations/{allocation.id}/step_marks", marks, task=task) == {}
    assert [m.steps_completed for m in await world.context.store.step_marks([allocation.id])] == [3]


async def test_the_attempts_at_a_trial_are_told(world: World) -> None:
    agent, trial, allocation, task = await begun(world)
    marks = {"marks": [{"steps": s, "at": f"2026-01-01T00:00:0{s}Z"} for s in (1, 4)]}
    await world.post(f"/api/v1/allocations/{allocation.id}/step_marks", marks, task=task)
    await world.post("/api/v1/checkpoints", checkpoint(allocation, 1, 3), task=task)
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/pause")
    await world.post(f"/api/v1/allocations/{allocation.id}/signals/ack_preemption", task=task)
    await agent.run_all()
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/activate")
    await world.next_run(agent, trial)
    first, second = (await world.get(f"/api/v1/trials/{trial.id}/allocations"))["allocations"]
    assert (first["stepsAtStart"], first["stepsAtEnd"], first["stepsKept"], first["preempted"]) == (0, 4, 3, True)
    assert (second["stepsAtStart"], second["agentIds"], second["state"]) == (3, ["agent-1"], "STATE_RUNNING")
    task_ = (await world.get(f"/api/v1/tasks/{trial.task_id}"))["task"]
    assert [a["allocationId"] for a in task_["allocations"]] == [second["allocationId"], first["allocationId"]]
