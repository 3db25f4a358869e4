"""The pages in a real browser: scripts run, the content security policy forbids nothing that the pages need."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, Route

from resolute_master.domain.experiment import Experiment
from support.api import PASSWORD
from support.chromium import a_chromium
from support.web import Browser, a_web

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    """One for all tests, which have a profile each: to start it takes longer than most of them."""
    async with a_chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def served(tmp_path: Path) -> AsyncIterator[Browser]:
    async with a_web(tmp_path, config={"launch_error": False}) as made:
        yield made


@pytest.fixture
def complaints() -> list[str]:
    """What the console complained of: a test that provokes some takes them out."""
    return []


@pytest_asyncio.fixture(loop_scope="module")
async def tab(chromium: Chromium, complaints: list[str]) -> AsyncIterator[Page]:
    """A tab of a new profile; fails the test at its end for what the console complained of."""
    page = await chromium.new_page()
    page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    await page.close()  # and its profile
    assert complaints == []


async def log_in(tab: Page, served: Browser) -> None:
    await tab.goto(str(served.world.server.make_url("/")))
    await tab.get_by_label("Name").fill("ada")
    await tab.get_by_label("Password").fill(PASSWORD)
    await tab.get_by_role("button", name="Log in").click()
    await tab.wait_for_url("**/det/")


async def test_a_person_logs_in_finds_an_experiment_and_pauses_it(served: Browser, tab: Page) -> None:
    agent = await served.world.agent()
    trial, _, task = await served.world.started(agent, name="digits")
    for step, loss in ((10, 0.5), (20, 0.25)):
        metrics = {"trialId": trial.id, "trialRunId": trial.run_id, "stepsCompleted": step}
        body = {"group": "validation", "metrics": {**metrics, "metrics": {"avgMetrics": {"loss": loss}}}}
        await served.world.post(f"/api/v1/trials/{trial.id}/metrics", body, token="", task=task)
    await log_in(tab, served)
    await tab.get_by_role("link", name="Experiments", exact=True).click()
    await tab.get_by_role("link", name="digits").click()
    await tab.wait_for_selector("[data-source][data-points='2'] canvas")
    await tab.get_by_role("button", name="Pause").click()
    await tab.get_by_role("button", name="Activate").wait_for()
    stored = served.world.engine.state.get(Experiment, trial.experiment_id)
    assert stored is not None and stored.state == "PAUSED"


async def test_an_open_page_shows_a_change_without_being_loaded_again(served: Browser, tab: Page) -> None:
    experiment = await served.world.create()
    await log_in(tab, served)
    async with tab.expect_response(lambda response: "/det/events" in response.url):
        await tab.goto(str(served.world.server.make_url(f"/det/experiments/{experiment['id']}")))
    await served.world.post(f"/api/v1/experiments/{experiment['id']}/pause")
    await tab.get_by_text("Paused", exact=True).first.wait_for()


async def test_every_page_keeps_its_own_policy_and_a_log_grows_while_it_is_looked_at(
    served: Browser, tab: Page
) -> None:
    agent = await served.world.agent()
    trial, _, task = await served.world.started(agent, name="digits")
    await log_in(tab, served)
    experiment = f"/det/experiments/{trial.experiment_id}"
    places = (
        "/det/queue",
        "/det/clusters",
        "/det/money",
        f"{experiment}/configuration",
        f"{experiment}/trials/{trial.id}",
    )
    for place in places:
        found = await tab.goto(str(served.world.server.make_url(place)))
        assert found is not None and found.status == 200, place
    await tab.get_by_role("link", name="Logs").click()
    await tab.get_by_text("following").wait_for()
    line = {"taskId": trial.task_id, "log": "a new line\n"}
    await served.world.post("/api/v1/task/logs", {"logs": [line]}, token="", task=task)
    await tab.get_by_text("a new line").wait_for()


@pytest.mark.parametrize("status", [0, 503])
async def test_streams_that_could_not_begin_are_tried_again(
    served: Browser, tab: Page, complaints: list[str], status: int
) -> None:
    """The page was read while the master went away (0: nobody answers), or was not ready yet."""
    agent = await served.world.agent()
    trial, _, task = await served.world.started(agent, name="digits")
    await log_in(tab, served)
    refused: list[str] = []

    async def refuse_once(route: Route) -> None:
        kind = route.request.url.partition("?")[0]
        if kind in refused:
            await route.continue_()
        elif status:
            refused.append(kind)
            await route.fulfill(status=status, body="come again")
        else:
            refused.append(kind)
            await route.abort()

    await tab.route(re.compile("/det/events|/logs/follow"), refuse_once)
    await tab.goto(str(served.world.server.make_url(f"/det/experiments/{trial.experiment_id}/trials/{trial.id}/logs")))
    await tab.locator("#following", has_text="reconnecting").wait_for()
    await tab.locator("#following", has_text="following").wait_for()
    await tab.locator("#connection:not(.away)").wait_for(state="attached")
    assert len(refused) == 2
    line = {"taskId": trial.task_id, "log": "a new line\n"}
    await served.world.post("/api/v1/task/logs", {"logs": [line]}, token="", task=task)
    await tab.get_by_text("a new line").wait_for()
    complaints[:] = [each for each in complaints if "Failed to " not in each]  # load what was refused


async def test_the_description_of_the_rest_api_is_read_and_a_call_tried_out_under_the_policy(
    served: Browser, tab: Page
) -> None:
    """The tab fails for what its console complains of: a violation of the content security policy is told there."""
    await log_in(tab, served)
    answer = await tab.goto(str(served.world.server.make_url("/docs/rest-api")))
    assert answer is not None and "default-src 'none'" in answer.headers["content-security-policy"]
    await tab.get_by_role("heading", name="Resolute").first.wait_for()
    assert await tab.locator(".opblock-tag").count() > 10
    await tab.locator("#operations-tag-me").click()
    call = tab.locator("#operations-me-get_api_v1_me")
    await call.locator(".opblock-summary-control").click()
    await call.get_by_role("button", name="Try it out").click()
    await call.get_by_role("button", name="Execute").click()
    await call.locator(".responses-table.live-responses-table").get_by_text('"username": "ada"').first.wait_for()
