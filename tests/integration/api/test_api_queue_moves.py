"""The queue, changed by hand over the API: what was moved stays moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.engine.replay import replay_store
from resolute_master.scheduler.job_states import job_states
from resolute_master.store.memory import MemoryStore
from support.api import World, a_config, an_api, settled
from support.engines import POOLS, AgentByHand, an_engine, running
from support.paid_cluster import a_paid_pool

OTHER = PoolName("other")
TWO_POOLS = {**POOLS, OTHER: PoolPolicy(name=OTHER)}
TWO_POOLS_CONFIG = {"resource_pools": [{"pool_name": "default"}, {"pool_name": "other"}]}


async def some_jobs(world: World, count: int) -> list[str]:
    return [(await world.create(a_config(name=f"e{n}")))["jobId"] for n in range(count)]


async def queue(world: World) -> list[str]:
    return [job["full"]["jobId"] for job in (await world.get("/api/v1/job-queues-v2"))["jobs"]]


async def update(world: World, **control: Any) -> None:
    assert await world.post("/api/v1/job-queues", {"updates": [control]}) == {}


async def refused(world: World, **control: Any) -> str:
    text: str = await world.error("POST", "/api/v1/job-queues", {"updates": [control]}, status=400)
    return text


async def test_a_job_is_moved_and_stays_there_over_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with an_api(tmp_path, store=store) as world:
        await world.agent(slots=1)
        await world.create(a_config(name="runs"))
        running_job, *_ = await queue(world)
        first, second, third = await some_jobs(world, 3)
        await update(world, jobId=third, aheadOf=first)
        assert await queue(world) == [running_job, third, first, second]
        await update(world, jobId=first, behindOf=second, priority=None, aheadOf="")
        await update(world, jobId=first, behindOf=second)  # told again
        assert await queue(world) == [running_job, third, second, first]
        await update(world, jobId=second, priority=7)
        await update(world, jobId=first, behindOf=second)
        assert await queue(world) == [second, first, running_job, third]
        kept = {job.id: job.queue_position for job in world.engine.state.all(Job)}
    async with running(an_engine(store, seed=2)) as again:
        assert {job.id: job.queue_position for job in again.state.all(Job)} == kept
        assert list(job_states(again.snapshot(PoolName("default")))) == [second, first, running_job, third]
    assert (await replay_store(store, POOLS)).divergence is None


async def test_what_cannot_be_done_is_refused_and_says_what_can(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=TWO_POOLS, config=TWO_POOLS_CONFIG) as world:
        await world.agent()
        await AgentByHand(world.engine, "there", pool=OTHER).register()
        first, second = await some_jobs(world, 2)
        assert "exactly one of priority, weight, resourcePool, aheadOf, behindOf" in await refused(
            world, jobId=first, aheadOf=second, behindOf=second
        )
        assert "aheadOf: job 'gone' not found" in await refused(world, jobId=first, aheadOf="gone")
        assert "is the job itself" in await refused(world, jobId=first, behindOf=first)
        assert "job 'gone' not found" in await refused(world, jobId="gone", behindOf=first)
        for weight in (0, 5e-324, 1e13):
            assert "is out of range; give a number from 1e-06 to 1e+12" in await refused(
                world, jobId=first, weight=weight
            )
        assert "in pool 'default' already" in await refused(world, jobId=first, resourcePool="default")
        await update(world, jobId=second, resourcePool="other")
        assert "move it to that pool first" in await refused(world, jobId=first, aheadOf=second)


async def test_a_fair_share_pool_has_no_places(tmp_path: Path) -> None:
    policy = PoolPolicy(name=PoolName("default"), scheduler=SchedulerKind.FAIR_SHARE)
    async with an_api(tmp_path, pools={policy.name: policy}) as world:
        await world.agent()
        first, second = await some_jobs(world, 2)
        assert "change the weight instead" in await refused(world, jobId=second, aheadOf=first)


async def test_a_job_takes_priority_weight_and_cap_to_another_pool(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=TWO_POOLS, config=TWO_POOLS_CONFIG) as world:
        await world.agent()
        await AgentByHand(world.engine, "there", pool=OTHER).register()
        resources = {"priority": 9, "weight": 2.5, "max_slots": 3}
        experiment = await world.create(a_config(resources=resources))
        (ahead,) = await some_jobs(world, 1)
        await update(world, jobId=ahead, priority=9)
        job = JobId(experiment["jobId"])
        await update(world, jobId=job, behindOf=ahead)
        await update(world, jobId=job, resourcePool="other")
        moved = world.engine.state.get(Job, job)
        assert moved is not None
        assert (moved.pool, moved.priority, moved.weight, moved.max_slots) == ("other", 9, 2.5, 3)
        assert moved.queue_position == moved.submitted_at.timestamp(), "a place among other jobs does not come along"
        shown = (await world.get(f"/api/v1/experiments/{experiment['id']}"))["config"]["resources"]
        assert shown["resource_pool"] == "other" and shown.items() >= resources.items()


async def test_a_strict_queue_is_changed_by_administrators_only(tmp_path: Path) -> None:
    config = {**TWO_POOLS_CONFIG, "security": {"authz": {"strict_job_queue_control": True}}}
    async with an_api(tmp_path, pools=TWO_POOLS, config=config) as world:
        await world.agent()
        first, second = await some_jobs(world, 2)
        for change in ({"priority": 7}, {"weight": 2.0}, {"resourcePool": "other"}, {"aheadOf": first}):
            body = {"updates": [{"jobId": second, **change}]}
            text = await world.error("POST", "/api/v1/job-queues", body, status=403)
            assert "user 'ada' may not change the job queue; security.authz.strict_job_queue_control" in text
        for resources in ({"priority": 7}, {"weight": 2.0}):
            text = await world.error("PATCH", "/api/v1/experiments/2", {"resources": resources}, status=403)
            assert "user 'ada' may not change the job queue" in text
        assert await queue(world) == [first, second]
        # A name and a cap change no order.
        await world.call("PATCH", "/api/v1/experiments/2", {"name": "new", "resources": {"maxSlots": 1}})
        root = await world.login("root")
        assert await world.post("/api/v1/job-queues", {"updates": [{"jobId": second, "priority": 7}]}, token=root) == {}
        await world.call("PATCH", "/api/v1/experiments/1", {"resources": {"priority": 3}}, token=root)
        assert await queue(world) == [first, second]
        assert (await world.get("/api/v1/master", token=""))["strictJobQueueControl"] is True


async def test_a_pool_that_can_never_hold_a_job_is_refused_and_what_runs_goes_on(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=TWO_POOLS, config=TWO_POOLS_CONFIG) as world:
        _, runs, _ = await world.started(await world.agent(slots=2), resources={"slots_per_trial": 2})
        text = await refused(world, jobId=runs.job_id, resourcePool="other")
        assert "2 slots are more than pool 'other' can have (its agents have 0)" in text
        await AgentByHand(world.engine, "small-1", slots=1, pool=OTHER).register()
        assert "can have (its agents have 1)" in await refused(world, jobId=runs.job_id, resourcePool="other")
        now, job = world.engine.state.get(Allocation, runs.id), world.engine.state.get(Job, runs.job_id)
        assert now is not None and now.preempt is None and job is not None and job.pool == "default"
        # Of two machines with a slot each, but not on one of them.
        await AgentByHand(world.engine, "small-2", slots=1, pool=OTHER).register()
        single = await world.create(a_config(resources={"slots_per_trial": 2, "is_single_node": True}))
        assert "on one machine (is_single_node)" in await refused(world, jobId=single["jobId"], resourcePool="other")
        await update(world, jobId=runs.job_id, resourcePool="other")


async def test_a_neighbour_or_a_pool_that_is_not_there_is_named_with_what_to_give(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        (job,) = await some_jobs(world, 1)
        assert "experiment '99' not found; `aheadOf` takes the id of a job" in await refused(
            world, jobId=job, aheadOf="99"
        )
        told = await world.error("GET", "/api/v1/resource-pools/defaul/snapshot", status=404)
        assert told == "resource pool 'defaul' not found; did you mean 'default'?"


async def test_a_job_whose_run_still_saves_in_the_pool_that_it_leaves_is_told_so(tmp_path: Path) -> None:
    async with an_api(tmp_path, pools=TWO_POOLS, config=TWO_POOLS_CONFIG) as world:
        _, runs, _ = await world.started(await world.agent(slots=2), resources={"slots_per_trial": 2})
        await AgentByHand(world.engine, "there", slots=2, pool=OTHER).register()
        await update(world, jobId=runs.job_id, resourcePool="other")
        for pools in ("", "&resourcePool=other"):
            (shown,) = (await world.get(f"/api/v1/job-queues?reasons=true{pools}"))["jobs"]
            assert shown["reason"] == (
                "It was moved: its work in pool 'default' is being preempted, and then requests slots here."
            )
            assert (shown["requestedSlots"], shown["allocatedSlots"]) == (2, 0)
            # In no order yet: 0 would be the place of the first.
            assert shown["summary"] == {"state": "STATE_QUEUED", "jobsAhead": -1}
        told = await world.get(f"/api/v1/jobs/{runs.job_id}/explain")
        assert told["reason"] == shown["reason"]


@pytest.mark.parametrize("elastic", [False, True])
async def test_a_pool_that_may_grow_or_that_need_not_hold_it_yet_is_moved_to(tmp_path: Path, elastic: bool) -> None:
    paid = a_paid_pool(slots=2)[PoolName("default")]
    assert paid.scaling is not None
    grows = replace(paid, name=OTHER, scaling=replace(paid.scaling, pool=OTHER))
    other = grows if elastic else PoolPolicy(name=OTHER, launch_error=False)
    async with an_api(tmp_path, pools={**POOLS, OTHER: other}, config=TWO_POOLS_CONFIG) as world:
        await world.agent(slots=2)
        job = (await world.create(a_config(resources={"slots_per_trial": 2})))["jobId"]
        await update(world, jobId=job, resourcePool="other")
        moved = world.engine.state.get(Job, job)
        assert moved is not None and moved.pool == "other"


async def test_an_experiment_s_number_stands_for_its_job(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        first, second, third = await some_jobs(world, 3)
        await update(world, jobId="3", aheadOf="1")
        assert await queue(world) == [third, first, second]
        await update(world, jobId=third, behindOf="2")
        await update(world, jobId="2", priority=7)
        assert await queue(world) == [second, first, third]
        advice = "takes the id of a job or the number of an experiment"
        told = await refused(world, jobId="9", priority=7)
        assert told == f"job '9': experiment '9' not found; `jobId` {advice}"
        told = await refused(world, jobId="1", aheadOf="9")
        assert told == f"job '1': experiment '9' not found; `aheadOf` {advice}"
        assert "behindOf: '9999" in await refused(world, jobId="1", behindOf="9" * 40)


async def test_a_refusal_names_what_was_sent_and_a_job_that_has_ended(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        first, _, over = await some_jobs(world, 3)
        await world.post("/api/v1/experiments/3/kill")
        await settled(world)
        for ended in (over, "3"):
            assert f"job '{over}' has ended" in await refused(world, jobId=ended, priority=7)
        assert "resourcePool: there is no pool 'nope'; use" in await refused(world, jobId=first, resourcePool="nope")
        assert await world.get("/api/v1/job-queues/stats?resourcePools=nope") == {"results": []}
        for path in ("job-queues?resourcePool", "job-queues-v2?resourcePool"):
            text = await world.error("GET", f"/api/v1/{path}=nope", status=400)
            assert text.startswith(f"{path.partition('?')[2]}: there is no pool 'nope'")


async def test_a_batch_that_is_made_in_part_says_so(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        first, second = await some_jobs(world, 2)
        unknown, wrong = {"jobId": "nope", "priority": 3}, {"jobId": first, "priority": 0}
        batch = {"updates": [unknown, {"jobId": second, "priority": 7}, wrong]}
        text = await world.error("POST", "/api/v1/job-queues", batch, status=400)
        assert text.startswith("job 'nope' not found")
        assert f"; job '{first}': priority: 0 is out of range" in text
        assert text.endswith("; the other 1 of 3 changes were made") and await queue(world) == [second, first]
        text = await world.error("POST", "/api/v1/job-queues", {"updates": [unknown, wrong]}, status=400)
        assert "were made" not in text
