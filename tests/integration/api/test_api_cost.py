"""What was spent, asked over the API: the same total whatever it is grouped by, limits that are set, and who may set them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.copies import replace
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import PriceWord, RecordPrices
from resolute_provisioner.model import Market
from support.api import World, a_config, an_api, settled
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, joined, launched
from support.paid_cluster import a_paid_pool

CONFIG: dict[str, Any] = {"resource_pools": [{"pool_name": "default"}], "launch_error": False}


@asynccontextmanager
async def a_paid_world(tmp_path: Path, clock: FixedClock, **pool: Any) -> AsyncIterator[World]:
    async with an_api(tmp_path, clock=clock, pools=a_paid_pool(**pool), config=CONFIG) as world:
        yield world


async def machine_joins(world: World, boot_s: float, clock: FixedClock) -> None:
    """The one that is asked for, paid from now on."""
    await settled(world)
    (instance,) = world.engine.state.all(Instance)
    await launched(world.engine, instance, clock.now())
    clock.advance(boot_s)
    await joined(world.engine, instance)


async def an_hour_of_work(world: World, clock: FixedClock) -> dict[str, Any]:
    """One slot of two works for 3,500 s, after a boot of 100 s; a slot costs 1.8 an hour."""
    created: dict[str, Any] = await world.create(a_config())
    await machine_joins(world, 100, clock)
    clock.advance(3500)
    return created


async def test_every_grouping_has_the_same_total(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock, slots=2) as world:
        experiment = await an_hour_of_work(world, clock)
        for grouping in ("pool", "instance", "user", "workspace", "experiment", "job", "day"):
            answer = await world.get(f"/api/v1/cost?groupBy={grouping}")
            assert answer["totals"]["cost"] == pytest.approx(3.6)
            assert sum(row["row"]["cost"] for row in answer["rows"]) == pytest.approx(3.6)
        mine, nobody = (await world.get("/api/v1/cost?groupBy=user"))["rows"]
        assert (mine["name"], nobody["key"]) == ("ada", "")
        assert mine["row"]["cost"] == pytest.approx(1.75)
        own = await world.get(f"/api/v1/experiments/{experiment['id']}/cost")
        assert own["totals"]["cost"] == pytest.approx(1.75)
        assert [trial["row"]["paidS"] for trial in own["trials"]] == [3500]


async def test_a_window_has_what_was_spent_in_it(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock) as world:
        await an_hour_of_work(world, clock)
        for since, until, cost in (
            ("30m", "", 1.8),
            ("2026-01-01T00:10:00Z", "2026-01-01T00:20:00Z", 0.6),
            ("7d", "2026-01-01T00:00:50Z", 0.05),
            ("2025-12-31", "", 3.6),
        ):
            answer = await world.get(f"/api/v1/cost?since={since}&until={until}")
            assert answer["totals"]["cost"] == pytest.approx(cost), (since, until)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=yesterday", "since: 'yesterday' is no time"),
        ("until=7x", "until: '7x' is no time"),
        ("groupBy=colour", "groupBy: 'colour' is not known; use one of pool"),
        ("format=xml", "format: 'xml' is not known"),
        ("since=2030-01-01", "is not before now"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused_by_key_and_value(
    query: str, says: str, tmp_path: Path
) -> None:
    async with a_paid_world(tmp_path, FixedClock(T0)) as world:
        error = await world.error("GET", f"/api/v1/cost?{query}", status=400)
        assert says in str(error)


async def test_a_machine_on_spot_costs_what_the_market_asked_at_each_moment(tmp_path: Path) -> None:
    """A slot of two works for 1,000 s at 3.6 an hour of the machine, and for 1,000 s at twice that, beside an idle one."""
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock, slots=2, market=Market.SPOT) as world:
        experiment = await world.create(a_config())
        await machine_joins(world, 100, clock)
        clock.advance(1000)
        word = PriceWord(offer_id="paid", per_hour=7.2, as_of=clock.now())
        await world.engine.submit(RecordPrices(pool=DEFAULT, source="the market", prices=(word,)))
        clock.advance(1000)
        for grouping in ("pool", "instance", "user", "workspace", "experiment", "job", "day"):
            answer = await world.get(f"/api/v1/cost?groupBy={grouping}")
            assert answer["totals"]["cost"] == pytest.approx(0.1 + 1.0 + 2.0), grouping
        assert answer["priceSources"] == ["the market"]
        last = await world.get("/api/v1/cost?since=500s&groupBy=user")
        assert [row["row"]["cost"] for row in last["rows"]] == pytest.approx([0.5, 0.5])
        own = await world.get(f"/api/v1/experiments/{experiment['id']}/cost")
        assert own["totals"]["cost"] == pytest.approx(0.5 + 1.0)
        text = await (await world.send("GET", "/api/v1/cost?groupBy=user&format=csv")).text()
        rows = {row["name"]: row for row in csv.DictReader(io.StringIO(text))}
        assert float(rows["ada"]["cost"]) == pytest.approx(1.5)
        assert float(rows[""]["idle_cost"]) == pytest.approx(1.5)
        ledger = await world.get("/api/v1/ledger")
        assert ledger["totals"]["cost"] == pytest.approx(3.1)
        assert [row["pricePerHour"] for row in ledger["instances"]] == [7.2]
        (pool,) = [each for each in (await world.get("/api/v1/budgets"))["budgets"] if each["owner"] == "pool"]
        assert pool["spentToday"] == pytest.approx(3.1)


async def test_each_day_of_utc_has_its_part_of_the_cost(tmp_path: Path) -> None:
    """A machine from 22:00 to 03:00 of the day after next costs 3.6 an hour: two hours, a day, and three."""
    clock = FixedClock(datetime(2026, 3, 1, 22, tzinfo=UTC))
    async with a_paid_world(tmp_path, clock) as world:
        await world.create(a_config())
        await machine_joins(world, 0, clock)
        clock.advance(29 * 3600)
        answer = await world.get("/api/v1/cost?groupBy=day")
        costs = {row["key"]: row["row"]["cost"] for row in answer["rows"]}
        expected = {"2026-03-01": 2 * 3.6, "2026-03-02": 24 * 3.6, "2026-03-03": 3 * 3.6}
        assert costs == pytest.approx(expected)
        assert (answer["totals"]["cost"] == pytest.approx(29 * 3.6) and "spot" not in answer) or answer["spot"] is None


@pytest.mark.parametrize("on_demand", [None, 10.0])
async def test_spot_is_compared_with_on_demand_of_the_same_type(tmp_path: Path, on_demand: float | None) -> None:
    clock = FixedClock(T0)
    pools = a_paid_pool(market=Market.SPOT)
    scaling = pools[DEFAULT].scaling
    assert scaling is not None
    dear = replace(scaling.offers[0], offer_id="dear", market=Market.ON_DEMAND, price_per_hour=on_demand)
    pools[DEFAULT] = replace(pools[DEFAULT], scaling=replace(scaling, offers=(*scaling.offers, dear)))
    async with an_api(tmp_path, clock=clock, pools=pools, config=CONFIG) as world:
        await world.create(a_config())
        await machine_joins(world, 100, clock)
        clock.advance(3500)
        spot = (await world.get("/api/v1/cost"))["spot"]
        if on_demand is None:
            assert spot == {"spotCost": 0, "onDemandCost": 0, "notComparedS": pytest.approx(3600)}
        else:
            wanted = {"spotCost": 3.6, "onDemandCost": 10.0, "notComparedS": 0.0}
            assert spot == {name: pytest.approx(value) for name, value in wanted.items()}
        last = (await world.get("/api/v1/cost?since=1800s"))["spot"]
        assert last["onDemandCost"] == pytest.approx(0.0 if on_demand is None else 5.0)


async def test_a_price_that_nobody_knows_is_null_and_not_nothing(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock, price=None) as world:
        await world.create(a_config())
        await machine_joins(world, 100, clock)
        clock.advance(1000)
        (machine,) = (await world.get("/api/v1/instances"))["instances"]
        assert machine["pricePerHour"] is None
        ledger = await world.get("/api/v1/ledger")
        (row,) = ledger["instances"]
        assert (row["pricePerHour"], row["row"]["cost"], ledger["totals"]["cost"]) == (None, None, None)
        assert row["row"]["costUnknownS"] == row["row"]["paidS"] > 0
        text = await (await world.send("GET", "/api/v1/cost?groupBy=instance&format=csv")).text()
        assert [each["cost"] for each in csv.DictReader(io.StringIO(text))] == [""]


async def test_the_table_is_also_had_as_csv(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock) as world:
        await an_hour_of_work(world, clock)
        response = await world.send("GET", "/api/v1/cost?groupBy=user&format=csv")
        assert response.content_type == "text/csv"
        rows = list(csv.DictReader(io.StringIO(await response.text())))
        assert [row["name"] for row in rows] == ["ada", ""]
        assert sum(float(row["cost"]) for row in rows) == pytest.approx(3.6)
        accounts = ("useful", "starting", "checkpointing", "lost", "idle")
        assert sum(float(rows[0][f"{name}_s"]) for name in accounts) == pytest.approx(float(rows[0]["paid_s"]))


async def test_time_of_unknown_price_is_told_and_in_no_sum(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock, price=None) as world:
        await an_hour_of_work(world, clock)
        totals = (await world.get("/api/v1/cost"))["totals"]
        assert (totals["paidS"], totals["cost"], totals["costUnknownS"]) == (3600, None, 3600)
        assert (await world.get("/api/v1/ledger"))["totals"]["costUnknownS"] == 3600


async def test_who_paid_is_known_when_the_experiment_is_deleted(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock) as world:
        experiment = await an_hour_of_work(world, clock)
        before = (await world.get("/api/v1/cost?groupBy=user"))["rows"]
        path = f"/api/v1/experiments/{experiment['id']}"
        await world.post(f"{path}/kill", {})
        (instance,) = world.engine.state.all(Instance)

        agent = AgentByHand(world.engine, instance.id)
        (container,) = agent.containers()
        await agent.report(container, ContainerState.TERMINATED)
        assert not world.engine.state.all(Allocation)
        await world.call("DELETE", path)
        await settled(world)
        assert (await world.get("/api/v1/cost?groupBy=user"))["rows"] == before
        (row, _) = (await world.get("/api/v1/cost?groupBy=experiment"))["rows"]
        assert (row["key"], row["name"]) == (str(experiment["id"]), "an experiment")


async def test_a_cost_limit_is_shown_and_can_be_changed(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock) as world:
        experiment = await world.create(a_config(resources={"max_cost": 2.0}))
        assert experiment["config"]["resources"]["max_cost"] == 2.0
        await machine_joins(world, 0, clock)
        clock.advance(1950)
        await world.engine.submit(Reconsider())
        path = f"/api/v1/experiments/{experiment['id']}"
        assert (await world.get(path))["experiment"]["state"] == "STATE_PAUSED"
        cost = await world.get(f"{path}/cost")
        assert cost["maxCost"] == 2.0 and "max_cost of experiment 1 is reached" in cost["windDownReason"]
        assert "raise it with" in str(await world.error("POST", f"{path}/activate", {}, status=400))
        changed = await world.call("PUT", f"{path}/max_cost", {"maxCost": 3.0})
        assert (changed["maxCost"], changed["windDownReason"]) == (3.0, "")
        await world.post(f"{path}/activate", {})
        assert "max_cost" in str(await world.error("PUT", f"{path}/max_cost", {"maxCost": -1}, status=400))


async def test_budgets_are_for_administrators_and_shown_to_all(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with a_paid_world(tmp_path, clock) as world:
        root = await world.login("root")
        await world.error("PUT", "/api/v1/resource-pools/default/budget", {"perDay": 1}, status=403)
        await world.error("PUT", "/api/v1/resource-pools/nowhere/budget", {"perDay": 1}, status=404, token=root)
        await world.error("PUT", "/api/v1/resource-pools/default/budget", {"perDay": 0}, status=400, token=root)
        await world.call("PUT", "/api/v1/resource-pools/default/budget", {"perDay": 1.0}, token=root)
        await world.call("PUT", "/api/v1/workspaces/1/budget", {"perMonth": 50}, token=root)
        job = (await world.create(a_config()))["jobId"]
        await machine_joins(world, 0, clock)
        clock.advance(950)
        await world.engine.submit(Reconsider())
        pool, workspace = (await world.get("/api/v1/budgets"))["budgets"]
        assert (pool["owner"], pool["budget"]["perDay"]) == ("pool", 1.0)
        assert pool["spentToday"] == pytest.approx(0.95)
        assert pool["resumesAt"].startswith("2026-01-02T00:00:00")
        assert (workspace["name"], workspace["budget"]["perMonth"], workspace["windDownReason"]) == (
            "Uncategorized",
            50.0,
            "",
        )
        other = (await world.create(a_config()))["jobId"]
        await settled(world)
        why = await world.get(f"/api/v1/jobs/{other}/explain")
        assert why["reason"].startswith(
            "It waits for a budget: the budget of pool default is used up: 0.9500 of 1 spent today"
        )
        listed = (await world.get("/api/v1/job-queues-v2?reasons=true"))["jobs"]
        assert {row["full"]["jobId"]: row["full"]["reason"] for row in listed}[other] == why["reason"]
        assert "was preempted" in str(await world.get(f"/api/v1/jobs/{job}/explain"))
        file = await world.get("/api/v1/resource-pools/default/snapshot")
        assert f"It waits for a budget: {file['held']}." == why["reason"]
        told = None
        while told is None:  # the list does not wait long for the first answer of its pool
            starts = (await world.get("/api/v1/resource-pools/default/starts"))["starts"]
            told = next((each["start"] for each in starts if each["jobId"] == other), None)
        assert told["expectedAt"] is None
        assert told["basis"].startswith("it waits for a budget: the budget of pool default is used up: 0.9500 of 1")


async def test_a_limit_that_could_not_be_kept_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    async with a_paid_world(tmp_path, FixedClock(T0), price=None) as world:
        body = {"config": json.dumps(a_config(resources={"max_cost": 1})), "validateOnly": True}
        says = "resources.max_cost: the price of paid of pool 'default' is unknown"
        assert says in str(await world.error("POST", "/api/v1/experiments", body, status=400))
        word = PriceWord(offer_id="paid", per_hour=2.0, as_of=T0)
        told = RecordPrices(pool=DEFAULT, source="the cloud", prices=(word,))
        await world.engine.submit(told)
        await world.call("POST", "/api/v1/experiments", body)
