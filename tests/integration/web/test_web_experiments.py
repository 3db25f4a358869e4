"""The list and the pages of experiments: what they show is what the API says, and what they do is what it allows."""

from __future__ import annotations

import asyncio

import pytest

from resolute.wire.states import ContainerState, ExperimentState
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from support.api import a_config, settled
from support.web import Browser, a_browser

NASTY = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}",
    "javascript:alert(1)",
    "</title><svg/onload=alert(1)>",
    "' autofocus onfocus='alert(1)",
)


async def metrics(browser: Browser, trial: Trial, group: str, values: dict[int, dict[str, float]], task: str) -> None:
    for step, found in values.items():
        body = {
            "group": group,
            "metrics": {
                "trialId": trial.id,
                "trialRunId": trial.run_id,
                "stepsCompleted": step,
                "metrics": {"avgMetrics": found},
            },
        }
        await browser.world.post(f"/api/v1/trials/{trial.id}/metrics", body, token="", task=task)


async def test_an_empty_cluster_says_how_to_begin(browser: Browser) -> None:
    home = await browser.open("/det/")
    assert "Nothing runs." in home.words and "det experiment create" in home.words
    assert "There is no experiment yet." in (await browser.open("/det/experiments")).words


async def test_the_list_is_filtered_sorted_and_arranged_by_its_address(browser: Browser) -> None:
    for number in range(3):
        config = a_config(name=f"run {number}", labels=["night"] if number else [], hyperparameters={"lr": number / 10})
        await browser.world.create(config)
    everything = await browser.open("/det/experiments")
    assert all(f"run {number}" in everything.words for number in range(3))
    assert everything.words.index("run 2") < everything.words.index("run 0")
    rising = await browser.open("/det/experiments?sort=name&dir=asc")
    assert rising.words.index("run 0") < rising.words.index("run 2")
    some = await browser.open("/det/experiments?q=run+1")
    assert "run 1" in some.words and "run 2" not in some.words
    labelled = await browser.open("/det/experiments?label=night&column=name&column=hp.lr")
    assert "run 0" not in labelled.words and "Name lr run 2 night 0.2" in labelled.words
    assert "No experiment fits." in (await browser.open("/det/experiments?owner=bob")).words
    assert "No experiment fits." in (await browser.open("/det/experiments?state=completed")).words


async def test_the_list_is_filtered_and_sorted_by_hyperparameters_and_metrics(browser: Browser) -> None:
    agent = await browser.world.agent(slots=3)
    for number in range(3):
        trial, _, task = await browser.world.started(
            agent, name=f"run {number}", hyperparameters={"lr": number / 10, "model": {"depth": number}}
        )
        await metrics(browser, trial, "validation", {10: {"loss": 0.5 - number / 10}, 20: {"loss": 0.75}}, task)
    columns = "column=name&column=hp.lr&column=hp.model.depth&column=validation.loss.min"
    falling = await browser.open(f"/det/experiments?{columns}&sort=validation.loss.min")
    assert "run 0 0 0 0.5 run 1 0.1 1 0.4 run 2 0.2 2 0.3" in falling.words
    rows = await browser.world.post(
        "/api/v1/experiments-search", {"sort": "validation.loss.min=desc", "filter": "", "limit": 10}
    )
    assert [each["experiment"]["name"] for each in rows["experiments"]] == ["run 0", "run 1", "run 2"]
    some = await browser.open(f"/det/experiments?{columns}&where=hp.lr+%3E%3D+0.1+and+validation.loss.min+%3E+0.35")
    assert "run 1" in some.words and "run 0" not in some.words and "run 2" not in some.words
    more = await browser.open(
        "/det/experiments?where=hp.lr+%3E%3D+0.1&column=name&add=hp.model.depth&operator=%3D&value=2"
    )
    assert more.path.startswith("/det/experiments?column=name&where=hp.lr")
    assert "run 2" in more.words and "run 1" not in more.words
    offered = {each["value"] for tag, each in more.elements if tag == "input" and each.get("name") == "column"}
    assert {"hp.lr", "hp.model.depth", "validation.loss.last", "validation.loss.mean"} <= offered


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("where=hp.lr", "where: ends where one of"),
        ("where=&add=hp.lr&operator=like&value=1", "operator: 'like' is not known"),
        ("sort=colour", "sort: 'colour' is no column"),
        ("state=happy", "state: 'happy' is not known"),
        ("page=x", "page: 'x' is not a number"),
        ("project=one", "project: 'one' is not a number"),
    ],
)
async def test_an_address_that_asks_for_what_there_is_not_is_told_so(browser: Browser, query: str, words: str) -> None:
    assert words in (await browser.open(f"/det/experiments?{query}", status=400)).words


async def test_the_experiment_page_shows_what_the_api_says(browser: Browser) -> None:
    agent = await browser.world.agent()
    trial, _, task = await browser.world.started(agent, name="with curves", labels=["night"])
    await metrics(browser, trial, "validation", {10: {"loss": 0.5}, 20: {"loss": 0.25}}, task)
    page = await browser.open(f"/det/experiments/{trial.experiment_id}")
    api = (await browser.world.get(f"/api/v1/experiments/{trial.experiment_id}"))["experiment"]
    assert api["bestTrialSearcherMetric"] == 0.25
    assert "with curves" in page.words and "night" in page.words and "Running" in page.words and "0.25" in page.words
    curves = await browser.open(
        f"/det/experiments/{trial.experiment_id}/curves", headers={"Accept": "application/json"}
    )
    assert '"step":[10,20]' in curves.text and '"value":[0.5,0.25]' in curves.text


async def test_a_waiting_experiment_says_why(browser: Browser) -> None:
    experiment = await browser.world.create()
    await settled(browser.world)
    explained = await browser.world.get(f"/api/v1/jobs/{experiment['id']}/explain")
    page = await browser.open(f"/det/experiments/{experiment['id']}")
    assert explained["reason"] in page.words
    assert explained["reason"] in (await browser.open("/det/")).words


async def test_notes_are_written_and_not_over_those_of_someone_else(browser: Browser) -> None:
    experiment = await browser.world.create()
    path = f"/det/experiments/{experiment['id']}/notes"
    page = await browser.open(path)
    after = await browser.submit(page, path, notes="warm up\r\nlonger <b>next time</b>")
    assert "warm up longer <b>next time</b>" in after.words and "<b>next" not in after.text
    assert "warm up<br" in after.text, "lines stay lines"
    late = await browser.submit(page, path, notes="too late", status=409)
    assert "have changed meanwhile" in late.words and "too late" in late.words and "warm up" in late.words
    stored = (await browser.world.get(f"/api/v1/experiments/{experiment['id']}"))["experiment"]["notes"]
    assert stored == "warm up\nlonger <b>next time</b>"
    async with a_browser(browser.world) as other:
        await other.log_in("bob")
        page = await other.open(path)
        assert "user 'bob' may not" in page.text.replace("&#39;", "'")
        await other.send(path, {**page.form(path), "notes": "mine", "before": stored}, status=403)


async def test_whoever_may_not_change_it_sees_why(browser: Browser) -> None:
    experiment = await browser.world.create()
    path = f"/det/experiments/{experiment['id']}"
    async with a_browser(browser.world) as other:
        await other.log_in("bob")
        page = await other.open(path)
        assert "user 'bob' may not pause experiment" in page.text.replace("&#39;", "'")
        assert not page.has_form(f"{path}/pause")
        token = page.form("/det/logout")
        refused = await other.send(f"{path}/pause", token, status=403)
        assert "may not pause" in refused.words


async def test_each_action_does_what_the_call_of_its_name_does(browser: Browser) -> None:
    experiment = await browser.world.create()
    path = f"/det/experiments/{experiment['id']}"

    async def state() -> ExperimentState:
        found = browser.world.engine.state.get(Experiment, experiment["id"])
        found = found or await browser.world.context.store.experiment(experiment["id"])
        assert found is not None
        return found.state

    page = await browser.submit(await browser.open(path), f"{path}/pause")
    assert await state() is ExperimentState.PAUSED and "Pausing" in page.words
    await browser.submit(page, f"{path}/activate")
    assert await state() is ExperimentState.ACTIVE
    question = await browser.open(f"{path}/ask/kill")
    assert "ended at once, without a checkpoint" in question.words
    page = await browser.submit(question, f"{path}/kill")
    for _ in range(100):
        if (await state()).gone:
            break
        await settled(browser.world)
        await asyncio.sleep(0.01)
    assert await state() is ExperimentState.CANCELED
    page = await browser.open(path)
    page = await browser.submit(page, f"{path}/archive")
    assert "archived" in page.words
    assert "No experiment" in (await browser.open("/det/experiments?q=experiment")).words
    assert "an experiment" in (await browser.open("/det/experiments?archived=yes")).words
    page = await browser.submit(page, f"{path}/unarchive")
    await browser.submit(await browser.open(f"{path}/ask/delete"), f"{path}/delete")


@pytest.mark.parametrize("text", NASTY)
async def test_no_name_or_label_becomes_a_part_of_the_page(browser: Browser, text: str) -> None:
    config = a_config(name=text, labels=[text], description=text, hyperparameters={text: text, "lr": 1})
    experiment = await browser.world.create(config)
    id_ = experiment["id"]
    places = ["/det/", "/det/experiments", f"/det/experiments/{id_}", f"/det/experiments/{id_}/configuration"]
    for place in [*places, "/det/experiments?column=name&column=hp.lr"]:
        page = await browser.open(place)
        assert "<script>document" not in page.text and "<img src=x" not in page.text, place
        assert all(tag != "img" for tag, _ in page.elements)
        handlers = [name for _, known in page.elements for name in known if name.startswith("on")]
        assert handlers == [], place
        assert not any((link or "").startswith("javascript:") for link in page.links)


async def test_a_search_is_drawn(browser: Browser) -> None:
    agent = await browser.world.agent(slots=3)
    searcher = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}
    lr = {"type": "double", "minval": 0.1, "maxval": 0.9}
    experiment = await browser.world.create(a_config(searcher=searcher, hyperparameters={"lr": lr}))
    await settled(browser.world)
    path = f"/det/experiments/{experiment['id']}"
    assert "Nothing to compare yet." in (await browser.open(f"{path}/search")).words
    for container in agent.containers():
        await agent.report(container, ContainerState.RUNNING)
    trials = browser.world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    assert len(trials) == 3
    for number, trial in enumerate(trials):
        (allocation,) = [a for a in browser.world.engine.state.by_kind["allocation"].values() if a.trial_id == trial.id]
        task = browser.world.context.tokens.issue_allocation(allocation.id, browser.world.owner_id)
        now = browser.world.engine.state.get(Trial, trial.id)
        assert now is not None
        await metrics(browser, now, "validation", {10: {"loss": 0.5 - number / 10}}, task)
    page = await browser.open(f"{path}/search")
    assert page.text.count("<polyline") == 3 and page.text.count("<circle class=") == 3
    assert page.words.index("Trial State") > 0
    chosen = await browser.open(f"{path}/search?to:metric=0.45")
    assert chosen.text.count('<polyline class="outside"') == 1 and "2 of 3 chosen" in chosen.words
    assert [f"{path}/trials/{trial.id}" in chosen.links for trial in trials] == [False, True, True]
    assert "No trial is in all" in (await browser.open(f"{path}/search?from:hp.lr=9")).words
    assert "is not a number" in (await browser.open(f"{path}/search?from:hp.lr=a", status=400)).words
    rows = await browser.open(f"{path}/trials")
    assert rows.text.index(f"/trials/{trials[2].id}") < rows.text.index(f"/trials/{trials[0].id}")
