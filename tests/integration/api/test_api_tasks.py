"""What running tasks and the master say to each other: polls, rendezvous, barriers; agents, queue, machines."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from resolute.clock import FixedClock
from resolute.wire.states import NoticeKind
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import ReportNotice
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot_file import read_snapshot
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.api import World, a_config, an_api, settled
from support.engines import AgentByHand, joined, launched


async def test_the_poll_answers_at_once_when_the_end_is_asked_for(world: World) -> None:
    trial, allocation, task = await world.started(await world.agent())
    path = f"/api/v1/allocations/{allocation.id}/signals/preemption"
    assert (await world.get(f"{path}?timeout_seconds=0", task=task, token=""))["preempt"] is False
    poll = asyncio.create_task(world.get(f"{path}?timeout_seconds=60", task=task, token=""))
    await asyncio.sleep(0.01)
    assert not poll.done()
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/pause")
    async with asyncio.timeout(20):
        answer = await poll
    assert answer == {"preempt": True, "reason": "the experiment was paused", "notice": None}
    assert (await world.get(path, task=task, token=""))["preempt"] is True
    for _ in range(2):
        acknowledge = f"/api/v1/allocations/{allocation.id}/signals/ack_preemption"
        assert await world.post(acknowledge, {"allocationId": allocation.id}, task=task) == {}
    await world.error("GET", f"{path}?timeoutSeconds=-1", status=400)


async def test_a_poll_that_nothing_happens_to_says_no_when_its_time_is_over(world: World) -> None:
    _, allocation, task = await world.started(await world.agent())
    path = f"/api/v1/allocations/{allocation.id}/signals/preemption?timeout_seconds=1"
    async with asyncio.timeout(20):
        assert (await world.get(path, task=task, token=""))["preempt"] is False


async def test_unknown_allocations_are_told_no(world: World) -> None:
    path = "/api/v1/allocations/1.none.1/signals/preemption?timeout_seconds=60"
    async with asyncio.timeout(20):
        assert (await world.get(path))["preempt"] is False


async def test_a_notice_comes_with_its_deadline(world: World) -> None:
    agent = await world.agent()
    _, allocation, task = await world.started(agent)
    deadline = datetime.now(UTC) + timedelta(minutes=2)
    poll = asyncio.create_task(
        world.get(f"/api/v1/allocations/{allocation.id}/signals/preemption?timeout_seconds=60", task=task, token="")
    )
    await asyncio.sleep(0.01)
    await world.engine.submit(
        ReportNotice(agent=agent.id, incarnation=agent.incarnation, kind=NoticeKind.INTERRUPTION, deadline=deadline, reason="spot")
    )  # fmt: skip
    async with asyncio.timeout(20):
        answer = await poll
    assert answer["preempt"] is True
    assert answer["notice"]["kind"] == "interruption" and answer["notice"]["reason"] == "spot"
    assert datetime.fromisoformat(answer["notice"]["deadline"]) == deadline


async def test_a_preemption_timeout_that_ends_before_the_machine_is_the_deadline_of_the_notice(world: World) -> None:
    agent = await world.agent()
    _, allocation, task = await world.started(agent, preemption_timeout=60)
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    await world.engine.submit(
        ReportNotice(agent=agent.id, incarnation=agent.incarnation, kind=NoticeKind.INTERRUPTION, deadline=deadline, reason="spot")
    )  # fmt: skip
    answer = await world.get(f"/api/v1/allocations/{allocation.id}/signals/preemption", task=task, token="")
    asked = world.engine.state.get(Allocation, allocation.id)
    assert asked is not None and asked.preempt is not None
    ends = datetime.fromisoformat(answer["notice"]["deadline"])
    assert ends == asked.preempt.requested_at + timedelta(seconds=60) < deadline


async def gang(world: World) -> tuple[Trial, Allocation, str]:
    """A trial over two agents."""
    first, second = await world.agent("agent-1", slots=2), await world.agent("agent-2", slots=2)
    experiment = await world.create(a_config(resources={"slots_per_trial": 4}))
    (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
    await world.next_run(first, trial)
    return await world.next_run(second, trial)


async def test_a_gang_meets(world: World) -> None:
    _, allocation, task = await gang(world)
    chief, other = sorted(allocation.containers, key=lambda c: c.rank)
    path = f"/api/v1/allocations/{allocation.id}/resources"
    meeting = asyncio.create_task(world.get(f"{path}/{chief.id}/rendezvous", task=task, token=""))
    again = asyncio.create_task(world.get(f"{path}/{chief.id}/rendezvous", task=task, token=""))
    await asyncio.sleep(0.01)
    assert not meeting.done()
    async with asyncio.timeout(20):
        second = await world.get(f"{path}/{other.id}/rendezvous", task=task, token="")
        first = await meeting
        assert await again == first
    assert first["rendezvousInfo"]["rank"] == 0 and second["rendezvousInfo"]["rank"] == 1
    assert first["rendezvousInfo"]["addresses"] == second["rendezvousInfo"]["addresses"]
    assert first["rendezvousInfo"]["slots"] == [2, 2]
    state = world.engine.state.get(Allocation, allocation.id)
    assert state is not None and state.ready
    await world.error("GET", f"{path}/nobody/rendezvous", task=task, token="", status=400)
    await world.error("GET", "/api/v1/allocations/1.x.1/resources/r/rendezvous", status=404)


async def test_a_rendezvous_ends_with_its_allocation(world: World) -> None:
    trial, allocation, task = await gang(world)
    path = f"/api/v1/allocations/{allocation.id}/resources/{allocation.containers[0].id}/rendezvous"
    meeting = asyncio.create_task(world.error("GET", path, task=task, token="", status=400))
    await asyncio.sleep(0.01)
    await world.post(f"/api/v1/experiments/{trial.experiment_id}/kill")
    for name in ("agent-1", "agent-2"):
        await AgentByHand(world.engine, name).run_all(137)
    async with asyncio.timeout(20):
        assert "ended before" in await meeting


async def test_a_long_rendezvous_is_mentioned_and_goes_on(tmp_path: Path) -> None:
    async with an_api(tmp_path, rendezvous_warning_s=0.05) as world:
        trial, allocation, task = await gang(world)
        chief, other = sorted(allocation.containers, key=lambda c: c.rank)
        path = f"/api/v1/allocations/{allocation.id}/resources"
        meeting = asyncio.create_task(world.get(f"{path}/{chief.id}/rendezvous", task=task, token=""))
        async with asyncio.timeout(20):
            found: list[str] = []
            while not found:
                lines = await world.lines(f"/api/v1/trials/{trial.id}/logs?levels=LOG_LEVEL_WARNING")
                found = [item["result"]["log"] for item in lines]
            assert f"rank 1 on {other.agent}" in found[0]
            await world.get(f"{path}/{other.id}/rendezvous", task=task, token="")
            await meeting


async def test_a_barrier_gives_everyone_everything(world: World) -> None:
    _, allocation, task = await world.started(await world.agent())
    path = f"/api/v1/allocations/{allocation.id}/all_gather"

    def body(number: int) -> dict[str, object]:
        uuid = f"00000000-0000-4000-8000-00000000000{number}"
        return {"numPeers": 2, "requestUuid": uuid, "allocationId": allocation.id, "data": {"n": number}}

    for _ in range(2):
        async with asyncio.timeout(20):
            answers = await asyncio.gather(*(world.post(path, body(i), task=task, token="") for i in (1, 2)))
        assert answers[0] == answers[1] == {"data": [{"n": 1}, {"n": 2}]}
    await world.error("POST", path, {**body(1), "requestUuid": "x"}, task=task, token="", status=400)
    await world.error("POST", path, {**body(1), "numPeers": 0}, task=task, token="", status=400)


async def test_small_reports_of_containers(world: World) -> None:
    _, allocation, task = await world.started(await world.agent())
    path = f"/api/v1/allocations/{allocation.id}"
    data = {"acceleratorData": {"acceleratorType": "cpu", "acceleratorUuids": []}}
    assert await world.post(f"{path}/acceleratorData", data, task=task) == {}
    assert await world.post(f"{path}/proxy_address", {"proxyAddress": "10.0.0.1"}, task=task) == {}
    assert await world.post(f"{path}/waiting", task=task) == {}
    assert (await world.get(path))["allocation"]["state"] == "STATE_WAITING"
    assert await world.post(f"{path}/ready", task=task) == {}
    assert (await world.get(path))["allocation"]["isReady"] is True
    (container,) = allocation.containers
    assert await world.post(f"{path}/resources/{container.id}/daemon", task=task) == {}
    await world.error("POST", f"{path}/resources/none/daemon", task=task, status=404)
    await world.error("POST", "/api/v1/allocations/1.x.1/acceleratorData", data, status=404)
    assert await world.post(f"{path}/signals/pending_preemption", task=task) == {}
    assert (await world.get(f"{path}/signals/preemption"))["preempt"] is True


# ------------------------------------------------------------------------------------------------ agents and queues


async def test_agents_and_their_slots(world: World) -> None:
    agent = await world.agent(slots=2)
    _, allocation, _ = await world.started(agent)
    (shown,) = (await world.get("/api/v1/agents"))["agents"]
    assert shown["slots"]["000"]["container"]["parent"] == allocation.id
    assert shown["slots"]["001"]["container"] is None
    assert shown["slotStats"]["typeStats"]["TYPE_CPU"]["states"] == {"STATE_RUNNING": 1}
    assert list(shown["containers"]) == [allocation.containers[0].id]
    path, root = f"/api/v1/agents/{agent.id}", await world.login("root")
    for action in (f"{path}/disable", f"{path}/enable", f"{path}/slots/1/disable", f"{path}/slots/1/enable"):
        told = await world.error("POST", action, status=403)
        assert told == "user 'ada' may not enable and disable agents; an administrator may"
    slot = (await world.post(f"{path}/slots/1/disable", {"drain": True}, token=root))["slot"]
    assert (slot["id"], slot["enabled"], slot["draining"]) == ("001", False, True)
    assert (await world.post(f"{path}/slots/001/enable", token=root))["slot"]["enabled"] is True
    assert (await world.get(f"{path}/slots/0"))["slot"]["device"]["type"] == "TYPE_CPU"
    disabled = (await world.post(f"{path}/disable", {"drain": True}, token=root))["agent"]
    assert (disabled["enabled"], disabled["draining"]) == (False, True)
    assert (await world.post(f"{path}/enable", token=root))["agent"]["enabled"] is True
    await world.error("POST", f"{path}/slots/7/enable", status=404, token=root)
    await world.error("GET", f"{path}/slots/{'9' * 5000}", status=404)
    await world.error("POST", "/api/v1/agents/none/enable", status=404, token=root)
    light = (await world.get("/api/v1/agents?excludeSlots=true&excludeContainers=true"))["agents"][0]
    assert (light["slots"], light["containers"]) == ({}, {})
    summary = (await world.get("/api/v1/tasks"))["allocationIdToSummary"][allocation.id]
    assert summary["resources"][0]["containerId"] == allocation.containers[0].id


async def test_the_queue_and_why_a_job_waits(world: World) -> None:
    agent = await world.agent(slots=1)
    await world.started(agent)
    waiting = await world.create(a_config(name="second"))
    await settled(world)
    jobs = [job["full"] for job in (await world.get("/api/v1/job-queues-v2?resourcePool=default"))["jobs"]]
    assert [(j["name"], j["summary"]["state"], j["summary"]["jobsAhead"]) for j in jobs] == [
        ("an experiment", "STATE_SCHEDULED", 0),
        ("second", "STATE_QUEUED", 1),
    ]
    assert [(j["requestedSlots"], j["allocatedSlots"]) for j in jobs] == [(1, 1), (1, 0)]
    assert (await world.get(f"/api/v1/experiments/{waiting['id']}"))["jobSummary"]["jobsAhead"] == 1
    only = await world.get("/api/v1/job-queues?states=STATE_QUEUED")
    assert [job["name"] for job in only["jobs"]] == ["second"]
    told = await world.get(f"/api/v1/jobs/{waiting['jobId']}/explain")
    assert told["state"] == "QUEUED" and "slot" in told["reason"]
    stats = (await world.get("/api/v1/job-queues/stats?resourcePools=default"))["results"]
    assert stats[0]["stats"] == {"queuedCount": 1, "scheduledCount": 1}
    await world.error("GET", "/api/v1/job-queues-v2?resourcePool=defualt", status=400)
    await world.error("GET", "/api/v1/jobs/none/explain", status=404)


async def test_why_a_job_waits_names_the_decision_and_what_would_start_it(world: World) -> None:
    agent = await world.agent(slots=1)
    _, running, _ = await world.started(agent)
    waiting = await world.create(a_config(name="second"))
    await settled(world)
    told = await world.get(f"/api/v1/jobs/{waiting['jobId']}/explain")
    assert told["pool"] == "default" and told["cycle"] == world.engine.memory.sequence and told["at"]
    assert told["jobsAhead"] == 1 and told["firstAhead"] == [running.job_id]
    (work,) = told["blockers"]["running"]
    assert (work["allocationId"], work["jobId"], work["slots"]) == (running.id, running.job_id, 1)
    assert (told["blockers"]["smallest"], told["blockers"]["aheadCount"], told["gaveUp"]) == (True, 0, [])
    assert {found["change"]: found["afterCount"] for found in told["whatIf"]} == {"more_agents": 0}


async def test_a_snapshot_of_a_pool_decides_as_the_pool_does(world: World) -> None:
    agent = await world.agent(slots=1)
    _, running, _ = await world.started(agent)
    await world.create(a_config(name="second"))
    await settled(world)
    file = await world.get("/api/v1/resource-pools/default/snapshot")
    assert file["version"] == 1 and list(file["tasks"]) and file["tasks"][running.id]["on"]
    seen = world.engine.snapshot(PoolName("default")).at(datetime.fromisoformat(file["now"]))
    assert schedule(read_snapshot(file)) == schedule(seen)
    await world.error("GET", "/api/v1/resource-pools/defualt/snapshot", status=404)


async def test_jobs_are_changed_one_by_one_and_refusals_named_together(world: World) -> None:
    await world.agent()
    experiment = await world.create()
    job = experiment["jobId"]
    updates = [
        {"jobId": job, "priority": 7, "weight": None, "resourcePool": None},
        {"jobId": job, "priority": 0},
        {"jobId": "gone", "weight": 2.0},
        {"jobId": job},
    ]
    text = await world.error("POST", "/api/v1/job-queues", {"updates": updates}, status=400)
    assert "'gone'" in text and "priority: 0" in text and "exactly one" in text
    config = (await world.get(f"/api/v1/experiments/{experiment['id']}"))["config"]
    assert config["resources"]["priority"] == 7


async def test_pools_decisions_machines_and_books(world: World) -> None:
    agent = await world.agent(slots=2)
    await world.started(agent)
    (pool,) = (await world.get("/api/v1/resource-pools"))["resourcePools"]
    assert (pool["name"], pool["slotsAvailable"], pool["slotsUsed"], pool["numAgents"]) == ("default", 2, 1, 1)
    assert (pool["defaultComputePool"], pool["slotsPerAgent"]) == (True, -1)
    decisions = (await world.get("/api/v1/decisions?limit=5"))["decisions"]
    assert "place" in {decision["kind"] for decision in decisions}
    assert (await world.get("/api/v1/instances")) == {"instances": []}
    ledger = await world.get("/api/v1/ledger")
    assert (ledger["instances"], ledger["totals"]["paidS"]) == ([], 0)


async def test_the_one_workspace_and_its_project(world: World) -> None:
    found = await world.get("/api/v1/workspaces?nameCaseSensitive=Uncategorized")
    assert [w["id"] for w in found["workspaces"]] == [1]
    assert (await world.get("/api/v1/workspaces?name=other"))["workspaces"] == []
    assert (await world.get("/api/v1/workspaces/1/projects"))["projects"][0]["workspaceId"] == 1
    assert (await world.get("/api/v1/projects/1"))["project"]["immutable"] is True
    assert "workspace '2'" in await world.error("GET", "/api/v1/workspaces/2", status=404)
    assert "project '2'" in await world.error("GET", "/api/v1/projects/2", status=404)
    await world.agent()
    id_ = (await world.create())["id"]
    assert await world.post(f"/api/v1/experiments/{id_}/move", {"destinationProjectId": 1, "experimentId": id_}) == {}
    await world.error("POST", f"/api/v1/experiments/{id_}/move", {"destinationProjectId": 2}, status=404)


# --------------------------------------------------------------------------------------------------------- machines


def elastic() -> PoolPolicy:
    offer = Offer(offer_id="local", instance_type="local", zone="here", market=Market.SPOT, slots=1, price_per_hour=3.6)
    return PoolPolicy(name=PoolName("default"), scaling=PoolScaling(pool="default", offers=(offer,), max_instances=2))


async def test_a_machine_from_its_order_to_the_books(tmp_path: Path) -> None:
    """Ten seconds of boot, of which the bill begins after five; then a run that is killed after a minute."""
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    policy = elastic()
    async with an_api(tmp_path, clock=clock, pools={policy.name: policy}) as world:
        experiment = await world.create()
        await settled(world)
        (ordered,) = (await world.get("/api/v1/instances"))["instances"]
        assert (ordered["state"], ordered["slots"], ordered["pricePerHour"]) == ("requested", 1, 3.6)
        (machine,) = world.engine.state.all(Instance)
        assert machine.id == ordered["id"]
        clock.advance(5)
        await launched(world.engine, machine, clock.now())
        clock.advance(5)
        agent = await joined(world.engine, machine)
        (trial,) = world.engine.state.find(Trial, "trials_of_experiment", experiment["id"])
        trial, allocation, task = await world.next_run(agent, trial)
        clock.advance(10)
        await _mark(world, allocation, task, clock, steps=1)
        clock.advance(50)
        await _mark(world, allocation, task, clock, steps=51)
        await agent.run_all(137)
        clock.advance(10)

        (running,) = (await world.get("/api/v1/instances"))["instances"]
        assert (running["state"], running["agentId"]) == ("running", machine.id)
        (attempt,) = (await world.get(f"/api/v1/trials/{trial.id}/allocations"))["allocations"]
        assert (attempt["instanceIds"], attempt["stepsAtEnd"], attempt["stepsKept"]) == ([machine.id], 51, 0)
        ledger = await world.get("/api/v1/ledger")
        (row,) = [each["row"] for each in ledger["instances"]]
        assert row["paidS"] == 75.0
        assert sum(row[f"{part}S"] for part in ("useful", "starting", "checkpointing", "lost", "idle")) == 75.0
        assert (row["startingS"], row["lostS"], row["idleS"]) == (15.0, 50.0, 10.0)
        assert abs(row["cost"] - 0.075) < 1e-9 and abs(sum(row["costs"].values()) - row["cost"]) < 1e-9
        assert ledger["totals"]["paidS"] == row["paidS"]
        pool = (await world.get("/api/v1/resource-pools"))["resourcePools"][0]
        assert (pool["maxAgents"], pool["slotsPerAgent"], pool["preemptible"]) == (2, 1, True)


async def _mark(world: World, allocation: Allocation, task: str, clock: FixedClock, *, steps: int) -> None:
    marks = {"marks": [{"steps": steps, "at": clock.now().isoformat()}]}
    await world.post(f"/api/v1/allocations/{allocation.id}/step_marks", marks, task=task)
