"""The page of a trial: its curves, its life, its checkpoints and its log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from resolute.storage import MANIFEST_NAME, FileEntry, Manifest
from resolute.storage.manifest import resources
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import TrialId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.store.base import MetricQuery
from resolute_master.store.memory import MemoryStore
from resolute_web.words import number
from support.checkpoints import removing, settled
from support.engines import AgentByHand
from support.stores import a_report
from support.web import Browser, a_web


async def _with_reports(browser: Browser) -> tuple[Trial, str]:
    agent = await browser.world.agent()
    trial, _, task = await browser.world.started(agent, hyperparameters={"lr": 0.125})
    for group, step, loss in (("training", 10, 0.75), ("validation", 10, 0.5), ("validation", 20, 0.25)):
        metrics = {"trialId": trial.id, "trialRunId": trial.run_id, "stepsCompleted": step}
        body = {"group": group, "metrics": {**metrics, "metrics": {"avgMetrics": {"loss": loss}}}}
        await browser.world.post(f"/api/v1/trials/{trial.id}/metrics", body, token="", task=task)
    return trial, task


def path_of(trial: Trial) -> str:
    return f"/det/experiments/{trial.experiment_id}/trials/{trial.id}"


async def test_a_trial_is_found_under_its_experiment_and_by_its_id(browser: Browser) -> None:
    trial, _ = await _with_reports(browser)
    page = await browser.open(f"/det/trials/{trial.id}")
    assert page.path == path_of(trial)
    assert "lr 0.125" in page.words and "goodput" in page.words and "No checkpoint was saved yet." in page.words
    assert "loss validation 0.25 0.5 0.25" in page.words
    other = await browser.world.create()
    await browser.open(f"/det/experiments/{other['id']}/trials/{trial.id}", status=404)


async def test_a_chart_gets_one_metric_of_every_group(browser: Browser) -> None:
    trial, _ = await _with_reports(browser)
    for query in ("?metric=loss", ""):
        found = await browser.open(f"{path_of(trial)}/curves{query}")
        assert found.text.startswith('{"charts":{"loss":{"title":"loss"')
    assert '"label":"training"' in found.text and '"step":[10,20]' in found.text and '"value":[0.5,0.25]' in found.text
    assert '"lines":[]' in (await browser.open(f"{path_of(trial)}/curves?metric=other")).text


class _Counting(MemoryStore):
    """Counts the reports that were read."""

    read = 0

    def _counted(self, found: tuple[MetricReport, ...]) -> tuple[MetricReport, ...]:
        self.read += len(found)
        return found

    async def metrics(self, *args: Any, **options: Any) -> tuple[MetricReport, ...]:
        return self._counted(await super().metrics(*args, **options))

    async def ordered_metrics(self, query: MetricQuery) -> tuple[MetricReport, ...]:
        return self._counted(await super().ordered_metrics(query))

    async def metrics_at(self, trial: TrialId, group: str, steps: Collection[int]) -> tuple[MetricReport, ...]:
        return self._counted(await super().metrics_at(trial, group, steps))


async def test_pages_of_a_trial_that_has_reported_much_read_little_of_it(tmp_path: Path) -> None:
    """Its summary is exact, and a spike of one report is drawn."""
    store = _Counting()
    async with a_web(tmp_path, config={"launch_error": False}, store=store) as browser:
        await browser.log_in("ada")
        trial, _ = await _with_reports(browser)
        reports = [
            a_report(
                step,
                {"loss": 999.0 if step == 12_345 else 1 / step, **({"rate": 0.5} if step == 700 else {})},
                trial_id=trial.id,
                run_id=trial.run_id,
            )
            for step in range(11, 20_011)
        ]
        await store.append_metrics(reports)
        store.read = 0
        page = await browser.open(path_of(trial))
        assert f"loss training {number(1 / 20_010)} 999 {number(1 / 20_010)}" in page.words
        assert "rate training 0.5 0.5 0.5" in page.words
        assert store.read <= 1000  # of the one chunk that has `rate`
        store.read = 0
        charts = json.loads((await browser.open(f"{path_of(trial)}/curves?metric=loss")).text)["charts"]
        (line,) = [each for each in charts["loss"]["lines"] if each["label"] == "training"]
        assert line["value"][line["step"].index(12_345)] == 999 and line["step"] == sorted(line["step"])
        compared = json.loads((await browser.open(f"/det/compare/curves?trial={trial.id}&metric=rate")).text)
        assert compared["lines"][0]["value"] == [0.5]
        assert store.read < 4000


async def _write(browser: Browser, trial: Trial, task: str, *texts: str) -> None:
    lines = [{"taskId": trial.task_id, "log": f"{text}\n", "level": "LOG_LEVEL_ERROR"} for text in texts]
    await browser.world.post("/api/v1/task/logs", {"logs": lines}, token="", task=task)


async def test_the_log_is_shown_searched_and_followed(browser: Browser) -> None:
    trial, task = await _with_reports(browser)
    await _write(browser, trial, task, "first <b>line</b>", "second line")
    page = await browser.open(f"{path_of(trial)}/logs")
    assert "first <b>line</b>" in page.words and "<b>line" not in page.text and "level-error" in page.text
    found = await browser.open(f"{path_of(trial)}/logs?q=second")
    assert "second line" in found.words and "first" not in found.words
    (last,) = {part.split("after=")[1] for part in page.text.split('"') if "/logs/follow?after=" in part}
    url = browser.world.server.make_url(f"{path_of(trial)}/logs/follow?after={last}")
    async with browser.http.get(url) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        await _write(browser, trial, task, "third line")
        told = b"".join([await stream.content.readline() for _ in range(3)]).decode()
    assert told.startswith("event: line\n") and '"text":"third line"' in told and "second" not in told


async def test_a_log_is_read_by_level_and_rank_and_from_its_first_error(browser: Browser) -> None:
    trial, task = await _with_reports(browser)
    path = f"{path_of(trial)}/logs"
    assert "No line reports an error." in (await browser.open(f"{path}?first=error")).words
    levels = ["INFO"] * 5 + ["WARNING", "ERROR", "INFO", "ERROR"]
    lines = [
        {"taskId": trial.task_id, "log": f"line {n} of {level}\n", "level": f"LOG_LEVEL_{level}", "rankId": n % 2}
        for n, level in enumerate(levels)
    ]
    await browser.world.post("/api/v1/task/logs", {"logs": lines}, token="", task=task)
    found = await browser.open(f"{path}?level=error")
    assert "line 6 of ERROR" in found.words and "line 8 of ERROR" in found.words and "WARNING" not in found.words
    assert "line 5 of WARNING" in (await browser.open(f"{path}?level=warning&rank=1")).words
    assert "line 6" not in (await browser.open(f"{path}?level=error&rank=1")).words
    first = await browser.open(f"{path}?first=error")
    assert "?at=" in first.path and "line 0 of INFO" in first.words
    (here,) = [values for tag, values in first.elements if tag == "p" and "here" in (values.get("class") or "").split()]
    assert here["id"] == f"line-{first.path.split('at=')[1]}" and here["class"] == "level-error here"
    assert "level: 'loud' is not known" in (await browser.open(f"{path}?level=loud", status=400)).words
    assert "rank: 'x' is not a number" in (await browser.open(f"{path}?rank=x", status=400)).words


async def test_the_first_error_of_programs_that_say_no_level(browser: Browser) -> None:
    trial, task = await _with_reports(browser)
    texts = ("loss 0.5", "Traceback (most recent call last):", "terrors are no errors")
    lines = [{"taskId": trial.task_id, "log": f"{text}\n"} for text in texts]
    await browser.world.post("/api/v1/task/logs", {"logs": lines}, token="", task=task)
    first = await browser.open(f"{path_of(trial)}/logs?first=error")
    marked = first.text.split(' here">')[1]
    assert marked.index("Traceback") < marked.index("terrors")


async def _checkpoint(browser: Browser, storage: Path, trial: Trial, task: str) -> str:
    """One that lies in the storage as the harness leaves it."""
    uuid = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
    folder = storage / uuid
    folder.mkdir(parents=True)
    content = b"weights"
    (folder / "model.pt").write_bytes(content)
    entry = FileEntry(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    manifest = Manifest(
        uuid=uuid, steps_completed=20, trial_id=trial.id, trial_run_id=1, world_size=1, created="2026-01-01T00:00:00Z",
        parent=None, files={"model.pt": entry},
    )  # fmt: skip
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    (allocation,) = [a for a in browser.world.engine.state.all(Allocation) if a.trial_id == trial.id]
    body = {
        "taskId": trial.task_id,
        "allocationId": allocation.id,
        "uuid": uuid,
        "reportTime": "2026-01-01T00:00:00Z",
        "resources": {name: str(size) for name, size in resources(manifest, manifest.to_bytes()).items()},
        "metadata": {"steps_completed": 20, "framework": "<b>torch"},
        "state": "STATE_COMPLETED",
    }
    await browser.world.post("/api/v1/checkpoints", body, token="", task=task)
    return uuid


async def test_a_removed_checkpoint_is_shown_with_the_reason(browser: Browser, tmp_path: Path) -> None:
    trial, task = await _with_reports(browser)
    uuid = await _checkpoint(browser, tmp_path, trial, task)
    assert "Removed checkpoints" not in (await browser.open(path_of(trial))).words
    agent = AgentByHand(browser.world.engine)
    agent.sequence = 100
    await agent.run_all()
    await browser.world.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [uuid]})
    assert "on request" in (await browser.open(path_of(trial))).words
    async with removing(browser.world):
        await settled(browser.world)
    for path in (path_of(trial), f"/det/experiments/{trial.experiment_id}"):
        page = await browser.open(path)
        assert "Removed checkpoints" in page.words and "on request" in page.words and uuid in page.words
    assert "Removed: on request" in (await browser.open(f"/det/checkpoints/{uuid}")).words


async def test_a_checkpoint_is_shown_downloaded_and_verified(browser: Browser, tmp_path: Path) -> None:
    trial, task = await _with_reports(browser)
    uuid = await _checkpoint(browser, tmp_path, trial, task)
    path = f"/det/checkpoints/{uuid}"
    assert path in (await browser.open(path_of(trial))).links
    page = await browser.open(path)
    assert "model.pt 7 B" in page.words and "framework <b>torch" in page.words
    async with browser.http.get(browser.world.server.make_url(f"/checkpoints/{uuid}")) as answer:
        assert answer.status == 200 and (await answer.read())[:2] == b"\x1f\x8b"
    verified = await browser.submit(page, f"{path}/verify")
    assert "1 file of 7 B is what was saved, compared by their hashes." in verified.words
    (tmp_path / uuid / "model.pt").write_bytes(b"weightZ")
    damaged = await browser.submit(page, f"{path}/verify")
    assert "the content of model.pt is not what was saved" in damaged.words
    await browser.open("/det/checkpoints/none", status=400)
