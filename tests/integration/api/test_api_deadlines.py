"""A deadline over the API: resolved at the door, shown with the experiment, and explained with the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from resolute.clock import FixedClock
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.api import a_config, an_api, settled
from support.cluster import T0
from support.engines import DEFAULT

SPOT = Offer(offer_id="spot", instance_type="t", zone="z", market=Market.SPOT, slots=1, price_per_hour=0.3)
FIRM = replace(SPOT, offer_id="firm", market=Market.ON_DEMAND, price_per_hour=1.0)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(SPOT, FIRM)))}


async def test_a_duration_is_stored_as_the_moment_that_it_means(tmp_path: Path) -> None:
    async with an_api(tmp_path, clock=FixedClock(T0), pools=POOLS) as world:
        created = await world.create(a_config(resources={"deadline": "36h", "estimated_duration": "10h"}))
        shown = (await world.get(f"/api/v1/experiments/{created['id']}"))["experiment"]["config"]["resources"]
        assert (shown["deadline"], shown["estimated_duration"]) == ("2026-01-02T12:00:00Z", "10h")


async def test_a_deadline_that_has_passed_stores_nothing(tmp_path: Path) -> None:
    async with an_api(tmp_path, clock=FixedClock(T0), pools=POOLS) as world:
        body = {"config": '{"name": "x", "entrypoint": "x", "searcher": {"name": "single", "metric": "loss"}, '}
        body["config"] += '"resources": {"deadline": "2020-01-01T00:00:00Z"}}'
        error = await world.error("POST", "/api/v1/experiments", body, status=400)
        assert "resources.deadline: 2020-01-01T00:00:00Z has passed" in error
        assert (await world.get("/api/v1/experiments"))["experiments"] == []


async def test_the_job_says_why_it_waits_for_spot(tmp_path: Path) -> None:
    async with an_api(tmp_path, clock=FixedClock(T0), pools=POOLS) as world:
        relaxed = await world.create(a_config(resources={"deadline": "36h", "estimated_duration": "10h"}))
        urgent = await world.create(a_config(resources={"deadline": "10h", "estimated_duration": "10h"}))
        unknown = await world.create(a_config(resources={"deadline": "36h"}))
        free = await world.create(a_config())
        await settled(world)

        async def said(experiment: dict[str, str]) -> str:
            answer = await world.get(f"/api/v1/jobs/{experiment['jobId']}/explain")
            return " ".join(answer["details"])

        assert "ahead of its line to the deadline 2026-01-02 12:00 UTC: spot only" in await said(relaxed)
        assert "behind its line, and before the deadline 2026-01-01 10:00 UTC" in await said(urgent)
        assert "is for on demand: how long it takes until the deadline" in await said(unknown)
        assert "is for on demand or spot: the cheapest available" in await said(free)


async def test_the_log_says_when_a_deadline_has_no_effect(tmp_path: Path) -> None:
    async with an_api(tmp_path, clock=FixedClock(T0), config={"launch_error": False}) as world:
        created = await world.create(a_config(resources={"deadline": "36h", "estimated_duration": "10h"}))
        trials = (await world.get(f"/api/v1/experiments/{created['id']}/trials"))["trials"]
        lines = await world.lines(f"/api/v1/trials/{trials[0]['id']}/logs")
        assert any("pool default cannot choose between spot and on demand" in str(line) for line in lines)
