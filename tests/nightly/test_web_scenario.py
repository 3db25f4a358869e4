"""The life of one training in the browser: submitted, explained while it waits, moved in the queue, started, drawn as it reports, a
master that is killed meanwhile, a machine that is taken away with a notice, and the end; then a fork, a pause and a comparison.

One cluster with room for one machine, two tabs. Nothing on a page is read before the page says it by itself: no tab is loaded again
unless the person in the scenario goes somewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from resolute.client.sdk import Experiment
from resolute.wire.rest.jobs import GetJobsQuery, Job
from resolute_web.words import count, money, number
from support.chromium import ARGUMENTS, PROGRAM
from support.live import PASSWORD, LiveCluster, live_cluster, until

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.timeout(300)]

TIMEOUT_MS = 60_000
"""Says that something hangs, and promises nothing."""

PART = 40
"""Steps between two waits of the training."""
NOTICE_AT = 2 * PART + 5

CONFIGURATION = """name: scenario
entrypoint: python3 -m resolute.testing.scripted_trial
searcher: {{name: single, metric: loss, max_length: 1000000}}
resources: {{slots_per_trial: 1}}
max_restarts: 0
hyperparameters:
  script: [{script}]
"""
EVENTS = (
    f"report {PART} every 0.02s",
    "validate",
    "wait for /determined_shared_fs/restarted",
    f"report {PART} every 0.02s",
    "validate",
    "wait for /determined_shared_fs/seen",
    f"report {PART} every 0.05s",
    "validate",
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 1,
        "max_idle_agent_period": "60s",
        "price_per_hour": 3,
        "interruptions": [{"instance": 1, "after_steps": NOTICE_AT, "notice": "20s"}],
    }
    with live_cluster(tmp_path, pool={"provider": provider, "agent_reconnect_wait": "60s"}) as running:
        yield running
    assert running.left_over() == []


@contextmanager
def a_browser(cluster: LiveCluster, complaints: list[str]) -> Iterator[BrowserContext]:
    """Tabs of one person who has logged in. What a page throws is a complaint; so is what it must not load."""
    with sync_playwright() as playwright:
        chromium: Browser = playwright.chromium.launch(executable_path=PROGRAM, args=list(ARGUMENTS))
        context = chromium.new_context(base_url=cluster.url, viewport={"width": 1280, "height": 900})
        context.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        context.on("console", lambda told: complaints.append(told.text) if "Content Security" in told.text else None)
        tab = context.new_page()
        tab.goto("/")
        tab.get_by_label("Name").fill("determined")
        tab.get_by_label("Password").fill(PASSWORD)
        tab.get_by_role("button", name="Log in").click()
        tab.wait_for_url("**/det/")
        tab.close()
        yield context
        chromium.close()


def go_on(cluster: LiveCluster, name: str) -> None:
    (cluster.storage / name).touch()


def points_of(tab: Page) -> int:
    """That the chart of the page has drawn."""
    return int(tab.locator("[data-source]").first.get_attribute("data-points") or 0)


def wait_for_points(tab: Page, least: int) -> None:
    tab.wait_for_function(
        "least => Number(document.querySelector('[data-source]')?.dataset.points ?? 0) >= least", arg=least
    )


def marked(tab: Page) -> Page:
    """So that it can be told afterwards that the page was never loaded again."""
    tab.evaluate("window.marked = true")
    return tab


def test_a_training_from_its_submission_to_its_end_and_what_came_of_it(cluster: LiveCluster) -> None:
    complaints: list[str] = []
    with a_browser(cluster, complaints) as person:
        pool = marked_at(person, "/det/resourcepool/default")
        first = cluster.submit({"script": ["wait for /determined_shared_fs/first"]}, name="first")
        expect(pool.get_by_role("region", name="List of machines").get_by_text("Busy")).to_be_visible()

        tab = person.new_page()
        scenario = submit(tab, cluster)
        until("the first one runs", lambda: bool(cluster.tasks()) or None)
        explain_and_move(tab, cluster, scenario)
        go_on(cluster, "first")
        assert first.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"

        (trial,) = until("its trial", lambda: scenario.list_trials() or None)
        tab.goto(f"/det/trials/{trial.id}")
        wait_for_points(marked(tab), PART)
        log = marked_at(person, f"/det/experiments/{scenario.id}/trials/{trial.id}/logs")
        kill_the_master(cluster, [tab, pool, log])
        wait_for_points(tab, 2 * PART)
        go_on(cluster, "seen")
        expect(tab.locator("svg[aria-label*='notice']")).to_be_attached()
        expect(tab.locator("svg[aria-label^='Run 2']")).to_be_attached()
        expect(tab.locator(".head").get_by_text("Completed", exact=True)).to_be_visible()
        assert scenario.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        expect(log.get_by_text("complete: the trial is over")).to_be_visible()
        assert all(page.evaluate("window.marked === true") for page in (pool, tab, log))
        compare_with_the_api(cluster, scenario, tab, log, pool)
        fork_pause_and_compare(tab, cluster, scenario)
    assert complaints == []


def marked_at(person: BrowserContext, path: str) -> Page:
    tab = person.new_page()
    tab.goto(path)
    return marked(tab)


def submit(tab: Page, cluster: LiveCluster) -> Experiment:
    """By the form, with its check."""
    tab.goto("/det/experiments/new")
    script = ", ".join(f'"{each}"' for each in EVENTS)
    tab.get_by_label("Configuration in YAML").fill(CONFIGURATION.format(script=script))
    expect(tab.get_by_text("This can be submitted.")).to_be_visible()
    tab.get_by_role("button", name="Submit").click()
    tab.get_by_role("heading", name="scenario").wait_for()
    found = re.search(r"/det/experiments/(\d+)", tab.url)
    assert found is not None
    return cluster.client.get_experiment(int(found[1]))


def explain_and_move(tab: Page, cluster: LiveCluster, scenario: Experiment) -> None:
    """Why it waits, in the words of the API; its place is changed by the arrows, and is the API's."""
    job = scenario.details.job_id
    why = tab.locator("section.note.warn")
    expect(why).to_contain_text(cluster.client.queue.explain(job).reason)
    cluster.submit({"script": ["report 1"]}, name="last")
    tab.goto("/det/queue")
    rows = tab.locator("tbody tr:not(.reason)")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text("last")
    rows.nth(2).get_by_role("button", name="Move ahead of the job before it").click()
    expect(tab.locator("tbody tr:not(.reason)").nth(1)).to_contain_text("last")
    assert [job.name for job in queue_of(cluster)] == ["first", "last", "scenario"]
    tab.locator("tbody tr:not(.reason)").nth(1).get_by_role("button", name="Move behind the job after it").click()
    expect(tab.locator("tbody tr:not(.reason)").nth(1)).to_contain_text("scenario")
    for row, job in zip(tab.locator("tbody tr:not(.reason)").all(), queue_of(cluster), strict=True):
        assert job.summary is not None
        assert job.name in row.inner_text() and row.locator("td").nth(1).inner_text() == str(job.summary.jobs_ahead)


def kill_the_master(cluster: LiveCluster, tabs: list[Page]) -> None:
    """Quietly: a word, no error, and nothing to be loaded again."""
    cluster.kill_master()
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator("#connection")).to_have_text("Reconnecting")
    cluster.start()
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator("#connection")).to_have_text("")
    go_on(cluster, "restarted")


def queue_of(cluster: LiveCluster) -> list[Job]:
    return [job.full for job in cluster.client.queue.list(GetJobsQuery()) if job.full is not None]


def asked(cluster: LiveCluster, path: str) -> Any:
    return cluster.client.session.request("GET", f"api/v1/{path}")


def facts_of(tab: Page) -> dict[str, str]:
    return dict(
        tab.locator("dl.facts").first.evaluate(
            "all => [...all.querySelectorAll('dt')].map(dt => [dt.innerText, dt.nextElementSibling.innerText])"
        )
    )


def cells_of(tab: Page, region: str) -> list[list[str]]:
    """Cells of a table, row by row."""
    return tab.get_by_role("region", name=region).evaluate(
        "all => [...all.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.innerText.trim()))"
    )


def summaries_of(trial: Mapping[str, Any]) -> list[list[str]]:
    """As the page writes what the API tells of the metrics of a trial."""
    groups = {"avg_metrics": "training", "validation_metrics": "validation"}
    return [
        [f"{name} {groups[group]}", *(number(float(told[key])) for key in ("min", "max", "last"))]
        for group, names in sorted(trial["summaryMetrics"].items())
        for name, told in sorted(names.items())
        if told["type"] == "number"
    ]


def compare_with_the_api(cluster: LiveCluster, scenario: Experiment, tab: Page, log: Page, pool: Page) -> None:
    """Each number that the open pages show by now, without being loaded again."""
    (trial,) = scenario.list_trials()
    told = asked(cluster, f"trials/{trial.id}")["trial"]
    best = told["bestValidation"]["metrics"]["avgMetrics"]["loss"]
    wanted = {"Best loss": number(float(best)), "Steps": count(told["totalBatchesProcessed"]), "Runs": "2"}
    until("the facts of the trial", lambda: facts_of(tab).items() >= wanted.items() or None)
    until("the summaries", lambda: cells_of(tab, "Summary of metrics") == summaries_of(told) or None)
    wait_for_points(tab, 3 * PART + 3)
    series = asked(cluster, f"trials/time-series?trialIds={trial.id}&metricNames=loss")["trials"][0]["metrics"]
    assert points_of(tab) == sum(len(group["data"]) for group in series) == 3 * PART + 3
    assert len(cells_of(tab, "List of checkpoints")) == len(trial.list_checkpoints())
    lines = log.locator("#log p > span:last-child").all_inner_texts()
    told_lines = [line.rstrip("\n") for line in trial.iter_logs()]
    assert len(lines) == len(told_lines) and all(map(str.endswith, told_lines, lines))
    machines = cells_of(pool, "List of machines")
    prices = {each.agent_id or each.id: money(each.price_per_hour) for each in cluster.client.cluster.instances()}
    assert {row[0]: row[4] for row in machines} == prices and len(machines) == 2
    tab.goto(f"/det/experiments/{scenario.id}")
    cost = cluster.client.experiments.cost(scenario.id).totals.cost
    assert tab.get_by_role("region", name="Cost").locator("header b").inner_text() == money(cost)


def fork_pause_and_compare(tab: Page, cluster: LiveCluster, scenario: Experiment) -> None:
    tab.get_by_role("link", name="Fork").click()
    script = '"report 5", "validate", "wait for /determined_shared_fs/compared", "report 5", "validate"'
    tab.get_by_label("Configuration in YAML").fill(CONFIGURATION.format(script=script))
    tab.get_by_role("button", name="Submit").click()
    tab.wait_for_url(re.compile(r"/det/experiments/\d+(\?.*)?$"))
    expect(tab.get_by_text("Forked from")).to_be_visible()
    fork = cluster.client.get_experiment(int(re.findall(r"/experiments/(\d+)", tab.url)[0]))
    assert fork.details.forked_from == scenario.id
    tab.get_by_role("button", name="Pause").click()
    expect(tab.locator(".head").get_by_text("Paused", exact=True)).to_be_visible()
    tab.get_by_role("button", name="Activate").click()
    go_on(cluster, "compared")
    expect(tab.locator(".head").get_by_text("Completed", exact=True)).to_be_visible()
    tab.get_by_role("link", name="Experiments", exact=True).first.click()
    for each in (scenario, fork):
        tab.get_by_label(f"Experiment {each.id}", exact=True).check()
    tab.get_by_role("button", name="Compare").click()
    tab.get_by_role("heading", name="Compare trials").wait_for()
    told = {row[0]: row[1:] for row in cells_of(tab, "Results of each")}
    both = [asked(cluster, f"trials/{each.list_trials()[0].id}")["trial"] for each in (scenario, fork)]
    assert sorted(told["Steps"]) == sorted(count(each["totalBatchesProcessed"]) for each in both)
    lasts = [number(float(each["summaryMetrics"]["validation_metrics"]["loss"]["last"])) for each in both]
    assert sorted(told["loss, validation last"]) == sorted(lasts)
    wait_for_points(tab, 5)
