"""The queue, the cluster and the money: what they show is what the API says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.copies import replace
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Market
from support.api import a_config, settled
from support.engines import DEFAULT, joined, launched
from support.paid_cluster import a_paid_pool
from support.pool_past import Past, Twin, advised, kept_pool
from support.web import Browser, a_browser, a_web


async def test_the_queue_says_of_each_job_why_it_waits(browser: Browser) -> None:
    assert "The queue is empty." in (await browser.open("/det/queue")).words
    agent = await browser.world.agent(slots=1)
    await browser.world.started(agent, name="first")
    waiting = await browser.world.create(a_config(name="second"))
    await settled(browser.world)
    explained = await browser.world.get(f"/api/v1/jobs/{waiting['id']}/explain")
    page = await browser.open("/det/queue")
    assert page.words.index("first") < page.words.index("second") and explained["reason"] in page.words
    assert "1 of 1" in page.words and "0 of 1" in page.words
    assert (await browser.open("/det/queue?page=9")).path == "/det/queue"
    assert "page: 'x' is not a number" in (await browser.open("/det/queue?page=x", status=400)).words


async def test_the_cluster_shows_agents_and_their_slots(browser: Browser) -> None:
    assert "No agent is connected." in (await browser.open("/det/clusters")).words
    agent = await browser.world.agent("agent-7", slots=2)
    await browser.world.started(agent)
    page = await browser.open("/det/clusters")
    assert "agent-7 Connected" in page.words and "1 of 2" in page.words
    root = await browser.world.login("root")
    await browser.world.post("/api/v1/agents/agent-7/disable", {"drain": True}, token=root)
    assert "agent-7 Draining" in (await browser.open("/det/clusters")).words


async def test_the_money_page_takes_what_the_api_takes(browser: Browser) -> None:
    page = await browser.open("/det/money?groupBy=user&since=7d")
    assert "Nothing was paid for." in page.words and "By user" in page.words
    table = await browser.open("/det/money?groupBy=user&format=csv")
    assert table.headers["Content-Type"].startswith("text/csv") and table.text.startswith("user,name,paid_s")


async def test_the_money_page_shows_days_what_spot_saved_and_what_is_left(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 3, 1, 23, tzinfo=UTC))
    pools = a_paid_pool(market=Market.SPOT)
    scaling = pools[DEFAULT].scaling
    assert scaling is not None
    dear = replace(scaling.offers[0], offer_id="dear", market=Market.ON_DEMAND, price_per_hour=10.0)
    pools[DEFAULT] = replace(pools[DEFAULT], scaling=replace(scaling, offers=(*scaling.offers, dear)))
    config = {"resource_pools": [{"pool_name": "default"}], "launch_error": False}
    async with a_web(tmp_path, clock=clock, pools=pools, config=config) as browser:
        await browser.log_in("ada")
        await browser.world.create()
        await settled(browser.world)
        (instance,) = browser.world.engine.state.all(Instance)
        await launched(browser.world.engine, instance, clock.now())
        await joined(browser.world.engine, instance)
        clock.advance(2 * 3600)
        root = await browser.world.login("root")
        await browser.world.call("PUT", "/api/v1/resource-pools/default/budget", {"perDay": 20.0}, token=root)
        page = await browser.open("/det/money?groupBy=day")
        assert page.words.index("2026-03-02") < page.words.index("2026-03-01")
        assert "Spot saved 12.80 (64 %): its machines cost 7.20" in page.words
        assert "16.40 of 20.00" in page.words
        assert "100 % 7.20" in (await browser.open("/det/trials/1")).words
        bars = await browser.open("/det/money/days?since=30d")
        assert bars.text.count("<g>") == 2 and "2026-03-01: 3.60" in bars.words


@pytest.mark.parametrize("query", ["groupBy=colour", "since=yesterday"])
async def test_a_cost_that_there_is_not_is_refused_with_the_key(browser: Browser, query: str) -> None:
    assert f"{query.split('=')[0]}: '" in (await browser.open(f"/det/money?{query}", status=400)).words


async def test_a_pool_has_a_page_and_an_administrator_drains_and_enables_its_agents(browser: Browser) -> None:
    agent = await browser.world.agent("agent-7", slots=2)
    await browser.world.started(agent)
    page = await browser.open("/det/resourcepool/default")
    assert "Pool default" in page.words and "agent-7 Connected" in page.words
    assert "user 'ada' may not enable and disable agents" in page.text.replace("&#39;", "'")
    assert not page.has_form("/det/agents/agent-7/drain")
    sent = page.form("/det/logout")
    await browser.send("/det/agents/agent-7/drain", sent, status=403)
    async with a_browser(browser.world) as root:
        await root.log_in("root")
        drained = await root.submit(await root.open("/det/resourcepool/default"), "/det/agents/agent-7/drain")
        assert "agent-7 Draining" in drained.words
        enabled = await root.submit(drained, "/det/agents/agent-7/enable")
        assert "agent-7 Connected" in enabled.words
        question = await root.open("/det/agents/agent-7/ask/disable")
        assert "is ended at once, without a checkpoint" in question.words
        disabled = await root.submit(question, "/det/agents/agent-7/disable")
        assert "agent-7 Disabled" in disabled.words
    await browser.open("/det/resourcepool/none", status=404)
    assert "hours: '5' is not known" in (await browser.open("/det/resourcepool/default?hours=5", status=400)).words


async def test_a_job_is_moved_and_its_priority_changed_where_that_is_allowed(browser: Browser) -> None:
    names = {}
    for name in ("first", "second", "third"):
        names[name] = (await browser.world.create(a_config(name=name, resources={"slots_per_trial": 1})))["jobId"]
    await settled(browser.world)
    page = await browser.open("/det/queue")
    order = [page.words.index(name) for name in names]
    assert order == sorted(order)
    there = f"/det/queue/{names['second']}"
    fields = {**page.form("/det/logout"), "back": "/det/queue"}
    moved = await browser.send(there, {**fields, "ahead_of": names["first"]})
    assert moved.words.index("second") < moved.words.index("first") < moved.words.index("third")
    await browser.send(there, {**fields, "priority": "7"})
    shown = await browser.world.get("/api/v1/job-queues")
    assert [job["priority"] for job in shown["jobs"] if job["jobId"] == names["second"]] == [7]
    refused = await browser.send(there, {**fields, "priority": "0"}, status=400)
    assert "priority" in refused.words
    assert "weight: 'x' is no number" in (await browser.send(there, {**fields, "weight": "x"}, status=400)).words
    async with a_browser(browser.world) as bob:
        await bob.log_in("bob")
        other = await bob.open("/det/queue")
        assert not other.has_form(there) and "may not change the priority, weight, pool or place" in other.text
        await bob.send(there, {**other.form("/det/logout"), "priority": "1"}, status=403)


async def test_a_waiting_job_says_what_would_start_it(browser: Browser) -> None:
    agent = await browser.world.agent(slots=1)
    await browser.world.started(agent, name="first")
    waiting = await browser.world.create(a_config(name="second", resources={"slots_per_trial": 1}))
    await settled(browser.world)
    explained = await browser.world.get(f"/api/v1/jobs/{waiting['id']}/explain")
    page = await browser.open(f"/det/queue/{explained['jobId']}")
    assert explained["reason"] in page.words
    for change in explained["whatIf"]:
        assert change["text"] in page.words
    queue = await browser.open("/det/queue")
    assert f"/det/queue/{explained['jobId']}" in queue.links
    assert not explained["whatIf"] or explained["whatIf"][0]["text"] in queue.words


async def test_a_pool_has_a_page_of_advice_that_is_loaded_again_until_it_is_there(tmp_path: Path) -> None:
    store, twin = Past(runs=40), Twin()
    twin.open.clear()
    config = {"launch_error": False, "resource_pools": [{"pool_name": "default"}]}
    given: dict[str, Any] = {"store": store, "clock": store.clock, "pools": kept_pool(), "config": config}
    async with a_web(tmp_path, advices=advised(twin), **given) as browser:
        await browser.log_in("ada")
        link = "/det/resourcepool/default/advice"
        assert link in (await browser.open("/det/resourcepool/default")).links
        page = await browser.open(link)
        assert "is being simulated under each change" in page.words and 'http-equiv="refresh"' in page.text
        twin.open.set()
        await browser.world.get("/api/v1/resource-pools/default/advice")
        page = await browser.open(link)
        assert 'http-equiv="refresh"' not in page.text
        assert "min_instances from 1 to 0" in page.words and "of the cost" in page.words
        assert "40 pieces of work in 3 d 8 h" in page.words
        # The same sentences as those of `det pool advise`.
        assert "Each change was simulated alone" in page.words and "shorter than a week" in page.words


async def test_a_pool_without_machines_to_buy_has_no_advice(tmp_path: Path) -> None:
    async with a_web(tmp_path, advices=advised(Twin())) as browser:
        await browser.log_in("ada")
        link = "/det/resourcepool/default/advice"
        assert link not in (await browser.open("/det/resourcepool/default")).links
        assert "There is no advice: pool 'default' has no provider" in (await browser.open(link)).words
        assert "resource pool 'x'" in (await browser.open("/det/resourcepool/x/advice", status=404)).words
