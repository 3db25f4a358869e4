"""What Prometheus reads while work runs."""

from __future__ import annotations

import json
from pathlib import Path

from resolute.errors import Unavailable
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState, FailureKind
from resolute_master.domain.commands import LoseAgentLink, SetAgentEnabled
from resolute_master.store.memory import MemoryStore
from support.api import a_config, settled
from support.observed import an_observed_api, samples


async def test_a_trial_from_its_request_to_its_end(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path) as (world, _):
        empty = await samples(world)
        assert empty("resolute_slots", pool="default", state="free") == 0
        agent = await world.agent(slots=2)
        await world.engine.submit(SetAgentEnabled(agent=agent.id, enabled=False))
        await world.create(a_config())
        waiting = await samples(world)
        assert waiting("resolute_allocations", pool="default", state="PENDING") == 1
        assert waiting("resolute_queue_slots", pool="default") == 1
        assert waiting("resolute_queue_oldest_seconds", pool="default") >= 0
        assert waiting("resolute_slots", pool="default", state="disabled") == 2

        await world.engine.submit(SetAgentEnabled(agent=agent.id, enabled=True))
        await settled(world)
        (container,) = agent.containers()
        await agent.report(container, ContainerState.RUNNING)
        running = await samples(world)
        assert running("resolute_slots", pool="default", state="used") == 1
        assert running("resolute_slots", pool="default", state="free") == 1
        assert running("resolute_agents", pool="default", state="connected") == 1
        assert running("resolute_allocations_started_total", pool="default") == 1
        assert running("resolute_allocation_start_seconds_count", pool="default") == 1
        assert running("resolute_queue_slots", pool="default") == 0

        await agent.report(container, ContainerState.TERMINATED, Exit(code=3, failure=FailureKind.CONTAINER_FAILED))
        ended = await samples(world)
        assert ended("resolute_allocations_ended_total", pool="default", reason="container_failed") == 1
        assert ended("resolute_experiments_ended_total", state="ERROR") == 1
        assert ended("resolute_slots", pool="default", state="free") == 2
        assert ended.all("resolute_allocations", pool="default") == []


async def test_slots_of_an_agent_that_takes_nothing_new(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path) as (world, _):
        agent = await world.agent(slots=3)
        await world.started(agent, resources={"slots_per_trial": 1})
        await world.engine.submit(SetAgentEnabled(agent=agent.id, enabled=False, draining=True))
        found = await samples(world)
        assert found("resolute_slots", pool="default", state="draining") == 1
        assert found("resolute_slots", pool="default", state="disabled") == 2
        assert found("resolute_agents", pool="default", state="draining") == 1


async def test_every_part_of_the_way_is_timed(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path) as (world, _):
        agent = await world.agent()
        trial, _, token = await world.started(agent)
        report = {
            "trial_id": trial.id,
            "trial_run_id": 1,
            "steps_completed": 1,
            "metrics": {"avg_metrics": {"loss": 1}},
        }
        await world.post(f"/api/v1/trials/{trial.id}/metrics", {"metrics": report, "group": "training"}, task=token)
        await world.get(f"/api/v1/trials/{trial.id}")
        await world.error("GET", "/api/v1/nothing/of/the/kind", status=404)
        await (await world.send("PROPFIND", "/metrics")).read()
        found = await samples(world)
        for part in ("decide", "commit", "publish"):
            assert found("resolute_engine_cycle_part_seconds_count", part=part) > 0
        assert found("resolute_scheduler_pass_seconds_count", pool="default") > 0
        assert found("resolute_store_call_seconds_count", call="commit") > 0
        assert found("resolute_ingest_rows_total", stream="metrics") == 1
        assert found("resolute_ingest_unstored_rows", stream="metrics") == 0
        assert found("resolute_api_request_seconds_count", method="GET", route="/api/v1/trials/{trialId}") == 1
        assert found("resolute_api_requests_total", method="GET", route="(none)", status="404") == 1
        assert found("resolute_api_requests_total", method="other") == 1


async def test_labels_do_not_grow_with_what_there_is(tmp_path: Path) -> None:
    """The same series, however many experiments, tasks and agents there have been."""
    async with an_observed_api(tmp_path) as (world, _):
        sizes = []
        agent = await world.agent(slots=8)
        for number in range(3):
            await world.agent(f"beside-{number}", slots=0)
            trial, _, _ = await world.started(agent)
            await world.get(f"/api/v1/trials/{trial.id}")
            await samples(world)
            sizes.append(sum(len(family.samples) for family in (await samples(world)).families))
        assert sizes[1] == sizes[2]


class BusyStore(MemoryStore):
    """A store whose listing of machines is away."""

    async def instances(self):  # type: ignore[no-untyped-def]
        raise Unavailable("the database is away")


async def test_failures_of_the_store_are_counted_by_kind(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path, store=BusyStore()) as (world, _):
        await world.error("GET", "/api/v1/instances", status=503)
        assert (await samples(world))("resolute_store_errors_total", call="instances", error="Unavailable") == 1


# ------------------------------------------------------------------------------------------------------------ access


async def test_users_and_the_token_for_it_may_read_the_metrics(tmp_path: Path) -> None:
    config = {"observability": {"metrics_token": "for Prometheus"}}
    async with an_observed_api(tmp_path, config=config) as (world, _):
        for path in ("/metrics", "/prom/det-state-metrics", "/debug/prom/metrics", "/prom/det-http-sd-config"):
            assert (await world.send("GET", path)).status == 200
            assert (await world.send("GET", path, token="for Prometheus")).status == 200
            assert (await world.send("GET", path, token="for somebody")).status == 401
            assert (await world.send("GET", path, token="")).status == 401
        assert (await world.send("GET", "/api/v1/me", token="for Prometheus")).status == 401


async def test_metrics_can_be_switched_off(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path, config={"observability": {"enable_prometheus": False}}) as (world, _):
        assert "enable_prometheus" in await world.error("GET", "/metrics", status=404)


async def test_machines_are_found_by_service_discovery(tmp_path: Path) -> None:
    async with an_observed_api(tmp_path) as (world, _):
        agent = await world.agent("agent-1")
        (group,) = json.loads(await (await world.send("GET", "/prom/det-http-sd-config")).text())
        assert group["labels"] == {"det_agent_id": "agent-1", "det_resource_pool": "default"}
        (target,) = group["targets"]
        assert target.endswith(":9400")
        (group,) = json.loads(await (await world.send("GET", "/prom/det-http-sd-config?port=9100")).text())
        assert group["targets"] == [target.replace(":9400", ":9100")]
        for port in ("0", "65536", "http", "-1", "²"):
            assert "port:" in await world.error("GET", f"/prom/det-http-sd-config?port={port}", status=400)
        await world.engine.submit(LoseAgentLink(agent=agent.id, incarnation=agent.incarnation))
        assert await world.get("/prom/det-http-sd-config") == []
