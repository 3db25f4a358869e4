"""Who may change a job's place in the queue: its owner, but not ahead of the work of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from support.api import World, a_config, an_api
from support.engines import AgentByHand

QUEUE = "/api/v1/job-queues"
BEFORE_ADA = (
    "user 'bob' may not put work ahead of job '{job}' (experiment {number}) of 'ada'; its owner or an administrator may"
)


async def jobs_of(world: World, *owners: str) -> list[str]:
    """One job after the other, each of the user named."""
    found = []
    for owner in owners:
        body = {"config": a_text(f"of {owner}"), "activate": True}
        made = await world.post("/api/v1/experiments", body, token=await world.login(owner))
        found.append(made["experiment"]["jobId"])
    return found


def a_text(name: str) -> str:
    return str(a_config(name=name))


async def in_order(world: World) -> list[str]:
    return [job["jobId"] for job in (await world.get(QUEUE))["jobs"]]


async def refused(world: World, user: str, **control: Any) -> str:
    body = {"updates": [control]}
    return await world.error("POST", QUEUE, body, status=403, token=await world.login(user))


async def done(world: World, user: str, **control: Any) -> None:
    assert await world.post(QUEUE, {"updates": [control]}, token=await world.login(user)) == {}


async def test_a_job_is_changed_by_its_owner_and_administrators(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        (job,) = await jobs_of(world, "ada")
        for change in ({"priority": 50}, {"weight": 2.0}, {"resourcePool": "default"}):
            told = await refused(world, "bob", jobId=job, **change)
            what = f"the priority, weight, pool or place in the queue of job '{job}' (experiment 1) of 'ada'"
            assert told == f"user 'bob' may not change {what}; its owner or an administrator may"
        await done(world, "ada", jobId=job, priority=50)
        await done(world, "root", jobId=job, weight=3.0)
        now = world.engine.state.get(Job, job)
        assert now is not None and (now.priority, now.weight) == (50, 3.0)


async def test_a_job_goes_ahead_of_its_owner_s_work_only(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        ada, bob, bob_2 = await jobs_of(world, "ada", "bob", "bob")
        await done(world, "bob", jobId=bob_2, aheadOf=bob)
        assert await in_order(world) == [ada, bob_2, bob]
        first = BEFORE_ADA.format(job=ada, number=1)
        for change in ({"aheadOf": ada}, {"priority": 1}):
            assert await refused(world, "bob", jobId=bob, **change) == f"job '{bob}': {first}"
        patch = {"resources": {"priority": 1}}
        told = await world.error("PATCH", "/api/v1/experiments/2", patch, status=403, token=await world.login("bob"))
        assert told == first
        # Back, and behind others, is the owner's to say; ahead again is not.
        await done(world, "ada", jobId=ada, behindOf=bob)
        assert await in_order(world) == [bob_2, bob, ada]
        assert "may not put work ahead of" in await refused(world, "ada", jobId=ada, behindOf=bob_2)
        await done(world, "root", jobId=ada, aheadOf=bob_2)
        assert await in_order(world) == [ada, bob_2, bob]
        await done(world, "bob", jobId=bob_2, behindOf=bob)
        await done(world, "bob", jobId=bob, priority=60)
        await done(world, "bob", jobId=bob_2, priority=70)
        assert await in_order(world) == [ada, bob, bob_2]


async def test_paused_work_and_that_of_other_pools_is_in_nobody_s_way(tmp_path: Path) -> None:
    other = PoolName("other")
    pools = {name: PoolPolicy(name=name) for name in (PoolName("default"), other)}
    config = {"resource_pools": [{"pool_name": "default"}, {"pool_name": "other"}]}
    async with an_api(tmp_path, pools=pools, config=config) as world:
        await world.agent()
        await AgentByHand(world.engine, "there", pool=other).register()
        _, elsewhere, bob = await jobs_of(world, "ada", "ada", "bob")
        assert "may not put work ahead of" in await refused(world, "bob", jobId=bob, priority=1)
        await world.post("/api/v1/experiments/1/pause")
        assert f"'{elsewhere}'" in await refused(world, "bob", jobId=bob, priority=1)
        await done(world, "ada", jobId=elsewhere, resourcePool="other")
        await done(world, "bob", jobId=bob, priority=1)


async def test_a_fair_share_has_no_place_and_its_weights_are_their_owners(tmp_path: Path) -> None:
    policy = PoolPolicy(name=PoolName("default"), scheduler=SchedulerKind.FAIR_SHARE)
    async with an_api(tmp_path, pools={policy.name: policy}) as world:
        await world.agent()
        ada, bob = await jobs_of(world, "ada", "bob")
        await done(world, "bob", jobId=bob, weight=5.0)
        await done(world, "bob", jobId=bob, priority=1)
        assert "may not change" in await refused(world, "bob", jobId=ada, weight=0.5)


async def test_each_change_of_a_batch_is_decided_by_itself(tmp_path: Path) -> None:
    async with an_api(tmp_path) as world:
        await world.agent()
        ada, bob = await jobs_of(world, "ada", "bob")
        token = await world.login("bob")
        batch = {"updates": [{"jobId": ada, "priority": 70}, {"jobId": bob, "priority": 60}]}
        told = await world.error("POST", QUEUE, batch, status=403, token=token)
        assert f"job '{ada}' (experiment 1) of 'ada'" in told and told.endswith("; the other 1 of 2 changes were made")
        kept = [job.priority for id_ in (ada, bob) if (job := world.engine.state.get(Job, id_)) is not None]
        assert kept == [42, 60]
        mixed = {"updates": [{"jobId": ada, "priority": 70}, {"jobId": "nope", "priority": 9}]}
        assert "'nope' not found" in await world.error("POST", QUEUE, mixed, status=400, token=token)


@pytest.mark.parametrize("user", ["ada", "bob"])
async def test_the_open_rules_leave_the_queue_to_everybody(tmp_path: Path, user: str) -> None:
    async with an_api(tmp_path, config={"security": {"authz": {"type": "open"}}}) as world:
        await world.agent()
        ada, bob = await jobs_of(world, "ada", "bob")
        await done(world, user, jobId=bob, aheadOf=ada)
        assert await in_order(world) == [bob, ada]
        await done(world, user, jobId=ada, priority=1)
        assert await in_order(world) == [ada, bob]
