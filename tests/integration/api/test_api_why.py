"""To which pools a job is told that it could be moved."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from resolute.clock import FixedClock
from resolute_master.api.queue.starts import Starts
from resolute_master.decision.offline import decide
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.pools.policies import pool_policies
from support.api import World, a_config, an_api, master_config, settled
from support.cluster import T0
from support.engines import AgentByHand, joined, launched
from support.paid_cluster import a_paid_pool

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


async def test_a_pool_whose_budget_is_used_up_is_no_way_out(tmp_path: Path) -> None:
    clock, pools = FixedClock(T0), pool_policies(master_config(tmp_path, **POOLS)) | a_paid_pool(slots=2, idle_s=3600.0)
    async with an_api(tmp_path, clock=clock, pools=pools, config=POOLS) as world:
        root = await world.login("root")
        await world.create(a_config())
        await settled(world)
        (instance,) = world.engine.state.all(Instance)
        await launched(world.engine, instance, clock.now())
        await joined(world.engine, instance)
        waiting = await world.create(a_config(resources={"resource_pool": "vision"}))
        await settled(world)
        assert await pools_told(world, waiting["jobId"]) == ["default"], "a slot of its machine is free"
        budget = "/api/v1/resource-pools/default/budget"
        clock.advance(950)
        await world.call("PUT", budget, {"perDay": 1.0}, token=root)
        assert await pools_told(world, waiting["jobId"]) == []
        await world.call("PUT", budget, {"perDay": 50.0}, token=root)
        assert await pools_told(world, waiting["jobId"]) == ["default"]
        await world.call("PUT", "/api/v1/workspaces/1/budget", {"perDay": 0.5}, token=root)
        assert await pools_told(world, waiting["jobId"]) == [], "its workspace may not pay for a machine there"


async def test_a_pool_where_no_cost_is_known_is_no_way_out_of_a_limited_cost(tmp_path: Path) -> None:
    pools = pool_policies(master_config(tmp_path, **POOLS)) | a_paid_pool()
    async with an_api(tmp_path, pools=pools, config=POOLS) as world:
        await AgentByHand(world.engine, "spare", slots=1, pool=PoolName("vision")).register()
        free = await world.create(a_config())
        limited = await world.create(a_config(resources={"max_cost": 5.0}))
        await settled(world)
        assert await pools_told(world, free["jobId"]) == ["vision"]
        assert await pools_told(world, limited["jobId"]) == []
        move = {"updates": [{"jobId": limited["jobId"], "resourcePool": "vision"}]}
        assert "the cost of work there is unknown" in json.dumps(
            await world.error("POST", "/api/v1/job-queues", move, status=400)
        )


async def test_when_a_job_starts_is_foreseen_once_enough_has_ended(tmp_path: Path) -> None:
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        agent = AgentByHand(world.engine, "only", slots=1)
        await agent.register()
        running, waiting = await world.create(a_config()), await world.create(a_config())
        await settled(world)
        told = (await world.get(f"/api/v1/jobs/{waiting['jobId']}/explain"))["start"]
        assert (
            told["expectedAt"] is None
            and told["basis"] == "an estimate needs 20 runs of the pool that have ended, and there are 0"
        )
        assert (await world.get(f"/api/v1/jobs/{running['jobId']}/explain"))["start"] is None
        answer = await world.get("/api/v1/resource-pools/default/starts")
        (listed,) = answer["starts"]
        assert listed["jobId"] == waiting["jobId"] and listed["start"] == told and answer["computedAt"]
        for asked, found in ((waiting, [listed]), (running, [])):
            path = f"/api/v1/resource-pools/default/starts?jobIds={asked['jobId']}&jobIds=another"
            assert (await world.get(path))["starts"] == found


async def listed(world: World, path: str = "job-queues-v2") -> dict[str, str | None]:
    """By experiment, why nothing of it runs."""
    rows = (await world.get(f"/api/v1/{path}"))["jobs"]
    assert not any(job["reason"] for row in rows for job in [row.get("full", row)]), "only who asks for them"
    rows = (await world.get(f"/api/v1/{path}{'&' if '?' in path else '?'}reasons=true"))["jobs"]
    return {job["entityId"]: job["reason"] for row in rows for job in [row.get("full", row)]}


async def test_the_queue_says_why_each_job_waits_as_the_explanation_of_it_does(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=pool_policies(master_config(tmp_path, **POOLS)), config=POOLS) as world:
        await world.agent(slots=2)
        for slots in (2, 1, 2, 64):
            await world.create(a_config(resources={"slots_per_trial": slots}))
        await world.create(a_config(resources={"resource_pool": "vision"}))
        paused = await world.create(a_config(), activate=False)
        await settled(world)
        reasons = await listed(world)
        assert reasons == await listed(world, "job-queues")
        assert reasons.pop("1") is None, "it runs"
        told = {id_: (await world.get(f"/api/v1/jobs/{id_}/explain"))["reason"] for id_ in reasons}
        assert reasons == told and sorted(reasons) == ["2", "3", "4", "5"], "a paused one is in no queue"
        assert told == {
            "2": "It waits for 1 slot(s): agent-1 is kept for it until enough of the work there has ended, and this pool "
            "does not preempt.",
            "3": "It waits for 2 slot(s): no slot is free, and this pool does not preempt.",
            "4": "It can never start here: it needs 64 slots on whole machines of one size, and the pool's machines by slots "
            "are: 1 of 2.",
            "5": "It waits for 1 slot(s): no agent of the pool accepts work, and the pool launches no machines.",
        }
        assert set(await listed(world, "job-queues-v2?limit=2&offset=1")) == {"2", "3"}
        answer = await world.get(f"/api/v1/jobs/{paused['id']}/explain")
        assert answer["reason"] == "Its experiment is paused; `det experiment activate 6` continues it."


async def test_an_explanation_takes_the_number_of_an_experiment_and_names_those_of_others(tmp_path: Path) -> None:
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        await world.agent(slots=1)
        running, waiting = await world.create(a_config(name="first")), await world.create(a_config(name="second"))
        await settled(world)
        answer = await world.get(f"/api/v1/jobs/{waiting['id']}/explain")
        assert answer["jobId"] == waiting["jobId"]
        (blocking,) = answer["blockers"]["running"]
        named = {each["id"]: (each["experimentId"], each["name"]) for each in answer["named"]}
        assert {id_: named[id_] for id_ in (running["jobId"], blocking["allocationId"], waiting["jobId"])} == {
            running["jobId"]: (running["id"], "first"),
            blocking["allocationId"]: (running["id"], "first"),
            waiting["jobId"]: (waiting["id"], "second"),
        }
        await world.post(f"/api/v1/experiments/{waiting['id']}/kill")
        await settled(world)
        for asked in (waiting["id"], waiting["jobId"]):
            over = await world.get(f"/api/v1/jobs/{asked}/explain")
            assert (over["state"], over["reason"]) == ("IDLE", "It has ended.")
        assert "det job list" in str(await world.error("GET", "/api/v1/jobs/nobody/explain", status=404))
        assert "experiment '99' not found" in str(await world.error("GET", "/api/v1/jobs/99/explain", status=404))


async def test_a_list_does_not_wait_for_an_answer_that_takes_long(tmp_path: Path) -> None:
    async with an_api(tmp_path, config={"launch_error": False}) as world:
        waiting = await world.create(a_config())
        await settled(world)
        pool, store, clock = PoolName("default"), world.context.store, world.context.clock
        starts = Starts(max_wait_s=0.0)
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


async def test_a_pool_whose_machines_have_no_slots_has_a_snapshot_that_can_be_decided(tmp_path: Path) -> None:
    """A pool of machines for auxiliary work: offers and machines on their way without slots."""
    async with an_api(tmp_path, pools=a_paid_pool(slots=0), config={"launch_error": False}) as world:
        await world.create(a_config(resources={"slots_per_trial": 0}))
        await settled(world)
        (machine,) = world.engine.state.all(Instance)
        file = await world.get("/api/v1/resource-pools/default/snapshot")
        assert file["supply"]["offers"]["paid"]["slots"] == 0
        assert file["supply"]["machines"][machine.id]["slots"] == 0
        plan = decide(file)
        assert plan == decide(json.loads(json.dumps(file)))
        world_of_file = decide({"tasks": {"t": {"slots": 0}}, "supply": {"offers": {"aux": {"slots": 0}}}})
        assert world_of_file.pool == "default"
