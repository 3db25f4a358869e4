"""Jobs whose pool was taken out of the configuration: they are seen, they say so, and they can be moved out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api.app import ROUTES
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.store.memory import MemoryStore
from support.api import World, a_config, an_api, settled
from support.engines import POOLS, AgentByHand

LOST = PoolName("lost")
REASON = (
    "Its pool 'lost' is not configured any more: put it back, or move the job with "
    "`det job update {job} --resource-pool POOL`."
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A world with a lost pool, in which experiment 1 runs, 2 waits and 3 is paused; 4 waits in the default pool."""
    store = MemoryStore()
    pools = {**POOLS, LOST: PoolPolicy(name=LOST)}
    config = {"resource_pools": [{"pool_name": pool} for pool in pools], "launch_error": False}
    async with an_api(tmp_path, store=store, pools=pools, config=config) as before:
        await AgentByHand(before.engine, "of-lost", slots=1, pool=LOST).register()
        for pool in (LOST, LOST, LOST, "default"):
            await before.create(a_config(resources={"resource_pool": pool}))
        await before.post("/api/v1/experiments/3/pause")
        await settled(before)
    async with an_api(tmp_path, store=store) as made:
        yield made


async def queue(world: World, query: str = "") -> dict[str, tuple[Any, ...]]:
    rows = (await world.get(f"/api/v1/job-queues?reasons=true{query}"))["jobs"]
    return {job["entityId"]: (job["resourcePool"], *job["summary"].values(), job["reason"]) for job in rows}


async def job_of(world: World, experiment: int) -> str:
    job: str = (await world.get(f"/api/v1/experiments/{experiment}"))["experiment"]["jobId"]
    return job


async def test_the_queue_shows_them_as_waiting_in_no_order(world: World) -> None:
    found = await queue(world)
    assert sorted(found) == ["1", "2", "4"], "a paused one is in no queue"
    for id_ in (1, 2):
        pool, ahead, state, reason = found[str(id_)]
        assert (pool, ahead, state) == ("lost", -1, "STATE_QUEUED")
        assert reason == REASON.format(job=await job_of(world, id_))
        shown = await world.get(f"/api/v1/experiments/{id_}")
        assert shown["jobSummary"] == {"jobsAhead": -1, "state": "STATE_QUEUED"}
    assert sorted(await queue(world, "&resourcePool=default")) == ["4"]
    assert sorted(await queue(world, "&states=STATE_SCHEDULED")) == []


async def test_an_explanation_says_so_and_what_to_do(world: World) -> None:
    for id_ in (1, 2):
        told = await world.get(f"/api/v1/jobs/{id_}/explain")
        assert (told["state"], told["reason"]) == ("QUEUED", REASON.format(job=await job_of(world, id_)))
    paused = await world.get("/api/v1/jobs/3/explain")
    assert paused["reason"] == "Its experiment is paused; `det experiment activate 3` continues it."
    assert paused["details"] == [REASON.format(job=await job_of(world, 3))]


async def test_they_can_be_moved_out(world: World) -> None:
    await world.agent(slots=2)
    job = await job_of(world, 2)
    await world.post("/api/v1/job-queues", {"updates": [{"jobId": job, "resourcePool": "default"}]})
    await settled(world)
    assert {a.pool for a in world.engine.state.all(Allocation) if a.job_id == job} == {"default"}
    assert "not configured" not in (await world.get("/api/v1/jobs/2/explain"))["reason"]


SLOW = ("logs", "signals")
"""Parts of paths that wait for something to happen."""


async def test_no_call_that_looks_fails_for_them(world: World) -> None:
    """Each with the names of what is in the lost pool."""
    world.token = await world.login("root")
    first = min(world.engine.state.all(Allocation), key=lambda a: a.id)
    names = {"poolName": "lost", "resourcePoolName": "lost", "name": "lost", "agentId": "of-lost"}
    names |= {"taskId": first.task_id, "allocationId": first.id}
    for route in ROUTES:
        if route.method != "GET" or any(word in route.path for word in SLOW):
            continue
        path = re.sub(r"\{(\w+)[^}]*\}", lambda part: names.get(part[1], "1"), route.path)
        response = await world.send("GET", path)
        assert response.status != 500, f"{path}: {await response.text()}"
        response.close()
