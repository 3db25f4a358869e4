"""Trials beside each other, and one action on several experiments."""

from __future__ import annotations

import json

import pytest

from resolute_master.domain.experiment import Experiment
from resolute_master.domain.trial import Trial
from support.api import a_config
from support.web import Browser, a_browser

BULK = "/det/experiments/bulk"


async def _reported(browser: Browser, name: str, loss: float, **config: object) -> Trial:
    agent = await browser.world.agent(f"agent-{name}", slots=1)
    trial, _, task = await browser.world.started(agent, name=name, **config)
    for group, value in (("training", loss / 2), ("validation", loss)):
        metrics = {"trialId": trial.id, "trialRunId": trial.run_id, "stepsCompleted": 10}
        body = {"group": group, "metrics": {**metrics, "metrics": {"avgMetrics": {"loss": value}}}}
        await browser.world.post(f"/api/v1/trials/{trial.id}/metrics", body, token="", task=task)
    return trial


async def test_two_experiments_are_compared_by_their_best_trials(browser: Browser) -> None:
    one = await _reported(browser, "one", 0.5, hyperparameters={"lr": 0.1, "width": 8})
    two = await _reported(browser, "two", 0.25, hyperparameters={"lr": 0.2, "width": 8})
    page = await browser.open(f"/det/compare?experiment={one.experiment_id}&trial={two.id}")
    assert "Hyperparameters 1 difference" in page.words and "lr 0.1 0.2" in page.words
    assert "1 value the same in all" in page.words and "width 8 8" in page.words
    assert "Best of the search 0.5 0.25" in page.words and "loss, training last 0.25 0.125" in page.words
    (source,) = {values["data-source"] for _, values in page.elements if values.get("data-source")}
    assert source is not None
    told = json.loads((await browser.open(source)).text)
    assert [(line["label"], line["value"], line["place"]) for line in told["lines"]] == [
        (f"one, trial {one.id}", [0.5], 0),
        (f"two, trial {two.id}", [0.25], 1),
    ]


async def test_nothing_chosen_says_how_to_choose_and_too_much_is_refused(browser: Browser) -> None:
    assert "Nothing is selected." in (await browser.open("/det/compare")).words
    many = "&".join(f"trial={number}" for number in range(21))
    assert "trial: 21 are over the limit" in (await browser.open(f"/det/compare?{many}", status=400)).words
    await browser.open("/det/compare?trial=77", status=404)


async def test_ticked_experiments_are_paused_each_by_itself(browser: Browser) -> None:
    ids = [(await browser.world.create(a_config(name=name)))["id"] for name in ("a", "b")]
    await browser.world.post(f"/api/v1/experiments/{ids[1]}/pause")
    page = await browser.open("/det/experiments")
    done = await browser.send(BULK, {**page.form(BULK), "do": "pause", "experiment": [str(id_) for id_ in ids]})
    assert "Pause: 1 of 2 done, 1 refused" in done.words
    assert "Only an active experiment can be paused." in done.words
    states = [browser.world.engine.state.get(Experiment, id_) for id_ in ids]
    assert [each.state for each in states if each] == ["PAUSED", "PAUSED"]


async def test_what_cannot_be_undone_asks_first_and_says_whom_it_will_not_touch(browser: Browser) -> None:
    mine = (await browser.world.create(a_config(name="mine")))["id"]
    bobs = await browser.world.login("bob")
    other = (await browser.world.post("/api/v1/experiments", {"config": json.dumps(a_config(name="bobs")), "activate": True},
                                      token=bobs))["experiment"]["id"]  # fmt: skip
    page = await browser.open("/det/experiments")
    asked = await browser.send(BULK, {**page.form(BULK), "do": "kill", "experiment": [str(mine), str(other)]})
    assert "Kill 1 experiment?" in asked.words and "may not kill experiment" in asked.words
    assert not any(each.state.gone for each in browser.world.engine.state.all(Experiment))
    done = await browser.send(BULK, {**asked.form(BULK), "experiment": [str(mine), str(other)]})
    assert "Kill: 1 of 2 done, 1 refused" in done.words


async def test_compare_from_the_list_and_what_is_no_action(browser: Browser) -> None:
    id_ = (await browser.world.create())["id"]
    page = await browser.open("/det/experiments")
    there = await browser.send(BULK, {**page.form(BULK), "do": "compare", "experiment": str(id_)})
    assert there.path == f"/det/compare?experiment={id_}"
    assert (await browser.send(BULK, {**page.form(BULK), "do": "pause"})).path == "/det/experiments"
    refused = await browser.send(BULK, {**page.form(BULK), "do": "melt", "experiment": str(id_)}, status=400)
    assert "do: 'melt' is no action" in refused.words


@pytest.mark.parametrize("field", ["", "csrf_token"])
async def test_a_form_of_another_site_does_nothing(browser: Browser, field: str) -> None:
    id_ = (await browser.world.create())["id"]
    async with a_browser(browser.world) as other:
        await other.log_in("root")
        sent = {"do": "pause", "experiment": str(id_)} | ({field: "made up"} if field else {})
        await other.send(BULK, sent, status=403)
