"""To which pools a job is told that it could be moved."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from resolute_master.api.starts import Starts
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.pools.policies import pool_policies
from support.api import World, a_config, an_api, master_config, settled
from support.engines import AgentByHand

POOLS: dict[str, Any] = {
    "resource_pools": [{"pool_name": name} for name in ("default", "vision")],
    # So that work may be submitted before there are agents.
    "launch_error": False,
}


async def pools_told(world: World, job: str) -> list[str]:
    answer = await world.get(f"/api/v1/jobs/{job}/explain")
    return [found["value"] for found in answer["whatIf"] if found["change"] == "pool"]


async def test_a_pool_that_is_bound_to_other_workspaces_is_no_way_out(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=pool_policies(master_config(tmp_path, **POOLS)), config=POOLS) as world:
        await AgentByHand(world.engine, "spare", slots=1, pool=PoolName("vision")).register()
        await world.post("/api/v1/workspaces", {"name": "theirs"})
        waiting = await world.create(a_config())
        await settled(world)
        assert await pools_told(world, waiting["jobId"]) == ["vision"]
        root = await world.login("root")
        body = {"resourcePoolName": "vision", "workspaceNames": ["theirs"]}
        await world.call("POST", "/api/v1/resource-pools/vision/workspace-bindings", body, token=root)
        assert await pools_told(world, waiting["jobId"]) == []
        move = {"updates": [{"jobId": waiting["jobId"], "resourcePool": "vision"}]}
        assert "bound to other" in json.dumps(await world.error("POST", "/api/v1/job-queues", move, status=400))


async def test_when_a_job_starts_is_foreseen_once_enough_has_ended(tmp_path: Path) -> None:
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        agent = AgentByHand(world.engine, "only", slots=1)
        await agent.register()
        running, waiting = await world.create(a_config()), await world.create(a_config())
        await settled(world)
        told = (await world.get(f"/api/v1/jobs/{waiting['jobId']}/explain"))["start"]
        assert told["expectedAt"] is None and told["basis"] == "only 0 run(s) of the pool have ended, and 20 are needed"
        assert (await world.get(f"/api/v1/jobs/{running['jobId']}/explain"))["start"] is None
        answer = await world.get("/api/v1/resource-pools/default/starts")
        (listed,) = answer["starts"]
        assert listed["jobId"] == waiting["jobId"] and listed["start"] == told and answer["computedAt"]
        for asked, found in ((waiting, [listed]), (running, [])):
            path = f"/api/v1/resource-pools/default/starts?jobIds={asked['jobId']}&jobIds=another"
            assert (await world.get(path))["starts"] == found


async def test_a_list_does_not_wait_for_an_answer_that_takes_long(tmp_path: Path) -> None:
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        waiting = await world.create(a_config())
        await settled(world)
        pool, store, clock = PoolName("default"), world.context.store, world.context.clock
        starts = Starts(patience_s=0.0)
        assert await starts.of_all(world.engine, store, pool, clock) is None
        found = None
        while found is None:
            await asyncio.sleep(0)
            found = await starts.of_all(world.engine, store, pool, clock)
        (id_,) = found.starts
        allocation = world.engine.state.get(Allocation, id_)
        assert allocation is not None and allocation.job_id == waiting["jobId"]
        assert await starts.of_one(world.engine, store, allocation, clock) == found.starts[id_]
        # The same cycle: it is known already.
        assert await starts.of_all(world.engine, store, pool, clock) is found
