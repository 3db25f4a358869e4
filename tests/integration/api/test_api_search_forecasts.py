"""What a preview says of the time and the cost of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.api import World, a_config, an_api
from support.engines import AgentByHand

HALVING = {"name": "async_halving", "metric": "loss", "num_rungs": 2, "divisor": 2, "max_trials": 4}
BATCHES = {**HALVING, "max_time": 100, "time_metric": "batches"}
EPOCHS = {**HALVING, "max_length": {"epochs": 4}}


def elastic(price: float | None) -> dict[PoolName, PoolPolicy]:
    offer = Offer(offer_id="m", instance_type="m", zone="z", market=Market.SPOT, slots=2, price_per_hour=price)
    scaling = PoolScaling(pool="default", offers=(offer,), max_instances=2)
    return {PoolName("default"): PoolPolicy(name=PoolName("default"), scaling=scaling)}


async def forecast(world: World, searcher: dict[str, Any], **body: Any) -> dict[str, Any]:
    config = a_config(searcher=searcher)
    body = {"config": config, "forecast": True, **body}
    answer: dict[str, Any] = (await world.post("/api/v1/preview-hp-search", body))["summary"]["forecast"]
    return answer


async def test_who_does_not_ask_is_told_nothing_of_time_and_cost(world: World) -> None:
    summary = (await world.post("/api/v1/preview-hp-search", {"config": a_config(searcher=EPOCHS)}))["summary"]
    assert summary.get("forecast") is None


async def test_a_search_is_played_on_the_machines_that_its_pool_would_buy(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=elastic(3.6)) as world:
        found = await forecast(world, EPOCHS, secondsPerUnit=1800)
        # Four trials of two epochs, of which two or three go on for two more, on two machines with two slots.
        assert 2.0 < found["hoursLeast"] <= found["hours"] <= found["hoursMost"] < 4.0
        assert 2 * 3.6 * 1.0 < found["dollarsLeast"] <= found["dollars"] <= found["dollarsMost"] < 2 * 3.6 * 4.0
        assert found["machines"] == 2
        assert found["basis"].startswith("1800 s for one epoch, as given")
        assert found["unknown"] == ""
        again = await forecast(world, EPOCHS, secondsPerUnit=1800)
        assert again == found


async def test_a_price_that_is_unknown_is_no_zero(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=elastic(None)) as world:
        found = await forecast(world, EPOCHS, secondsPerUnit=60)
        assert found["hours"] > 0
        assert found.get("dollars") is None
        assert "price of a machine" in found["unknown"]


async def test_agents_of_a_fixed_pool_have_no_price(world: World) -> None:
    found = await forecast(world, EPOCHS, secondsPerUnit=60)
    assert "no machine for a trial of 1 slot(s)" in found["unknown"]
    await world.agent(slots=4)
    found = await forecast(world, EPOCHS, secondsPerUnit=60)
    assert 0.0 < found["hours"] < 0.2
    assert "have no price" in found["unknown"]


@pytest.mark.parametrize(
    ("searcher", "said"),
    [
        (EPOCHS, "how long one epoch of training takes is unknown: earlier runs report batches, not epochs"),
        (
            BATCHES,
            "no trial of an earlier experiment 'an experiment' has been trained in one run; give --seconds-per-unit",
        ),
        ({"name": "random", "metric": "loss", "max_trials": 2}, "how long one unit of training takes is unknown"),
    ],
)
async def test_what_is_not_known_is_said_in_words(world: World, searcher: dict[str, Any], said: str) -> None:
    found = await forecast(world, searcher)
    assert said in found["unknown"]
    assert found.get("hours") is None


async def test_trials_without_a_length_have_no_end(world: World) -> None:
    found = await forecast(world, {"name": "random", "metric": "loss", "max_trials": 2}, secondsPerUnit=1)
    assert "set searcher.max_length" in found["unknown"]


@pytest.mark.parametrize("seconds", [0, -1, 1e9])
async def test_seconds_that_cannot_be_are_refused(world: World, seconds: float) -> None:
    body = {"config": a_config(searcher=EPOCHS), "secondsPerUnit": seconds}
    assert "secondsPerUnit" in await world.error("POST", "/api/v1/preview-hp-search", body, status=400)


async def test_earlier_runs_of_the_experiment_tell_how_long_a_batch_takes(world: World) -> None:
    agent = await world.agent(slots=4)
    await trained(world, agent, batches=50)
    found = await forecast(world, BATCHES)
    assert "the median of 1 earlier trial(s)" in found["basis"]
    assert found["secondsPerUnit"] > 0
    assert found["hours"] > 0


async def trained(world: World, agent: AgentByHand, *, batches: int) -> None:
    """One trial of an earlier experiment, to its end."""
    trial, allocation, task = await world.started(agent)
    await world.post(f"/api/v1/allocations/{allocation.id}/ready", {}, task=task, token="")
    metrics = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": batches, "metrics": {"avgMetrics": {"loss": 1}}}
    await world.post(
        f"/api/v1/trials/{trial.id}/metrics", {"metrics": metrics, "group": "training"}, task=task, token=""
    )
    await agent.run_all()
