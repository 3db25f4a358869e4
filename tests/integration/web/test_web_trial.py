"""The page of a trial: its curves, its life, its checkpoints and its log."""

from __future__ import annotations

from resolute_master.domain.trial import Trial
from support.web import Browser


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
