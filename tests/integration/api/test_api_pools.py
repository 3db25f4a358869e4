"""Several pools of one master, each by its own rules, through the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.pools.policies import pool_policies
from support.api import World, a_config, an_api, master_config, settled
from support.engines import AgentByHand

POOLS: dict[str, Any] = {
    "resource_manager": {
        "type": "agent",
        "scheduler": {"type": "priority", "preemption": True},
        "default_compute_resource_pool": "spread",
        "default_aux_resource_pool": "shared",
    },
    "resource_pools": [
        {"pool_name": "shared", "scheduler": {"type": "fair_share"}},
        # A block of its own replaces the manager's as a whole: without preemption.
        {"pool_name": "spread", "scheduler": {"type": "priority", "fitting_policy": "worst"}},
        {"pool_name": "pack"},
    ],
}


@asynccontextmanager
async def three_pools(storage: Path) -> AsyncIterator[tuple[World, dict[str, tuple[AgentByHand, ...]]]]:
    """Two agents of two slots in each."""
    policies = pool_policies(master_config(storage, **POOLS))
    async with an_api(storage, pools=policies, config=POOLS) as world:
        agents: dict[str, tuple[AgentByHand, ...]] = {}
        for pool in policies:
            agents[pool] = tuple(AgentByHand(world.engine, f"{pool}-{i}", pool=PoolName(pool)) for i in (1, 2))
            for agent in agents[pool]:
                await agent.register()
        yield world, agents


async def create(world: World, pool: str | None = None, *, trials: int = 1, **resources: Any) -> int:
    if pool is not None:
        resources["resource_pool"] = pool
    many = {"name": "random", "metric": "loss", "max_trials": trials}
    config = a_config(resources=resources, **({"searcher": many} if trials > 1 else {}))
    id_: int = (await world.create(config))["id"]
    await settled(world)
    return id_


def running(agents: tuple[AgentByHand, ...]) -> list[int]:
    """How many slots of each agent are held."""
    return [sum(len(container.slots) for container in agent.containers()) for agent in agents]


def held(world: World, experiment: int) -> int:
    found = [a for a in world.engine.state.all(Allocation) if a.task_id.startswith(f"{experiment}.")]
    return sum(len(a.held_slots) for a in found if a.preempt is None)


async def test_pools_are_shown_as_they_were_configured(tmp_path: Path) -> None:
    async with three_pools(tmp_path) as (world, _):
        shown = {pool["name"]: pool for pool in (await world.get("/api/v1/resource-pools"))["resourcePools"]}
        rules = {name: (pool["schedulerType"], pool["schedulerFittingPolicy"]) for name, pool in shown.items()}
        assert rules == {
            "shared": ("SCHEDULER_TYPE_FAIR_SHARE", "FITTING_POLICY_BEST"),
            "spread": ("SCHEDULER_TYPE_PRIORITY", "FITTING_POLICY_WORST"),
            "pack": ("SCHEDULER_TYPE_PRIORITY", "FITTING_POLICY_BEST"),
        }
        defaults = {name: (pool["defaultComputePool"], pool["defaultAuxPool"]) for name, pool in shown.items()}
        assert defaults == {"shared": (False, True), "spread": (True, False), "pack": (False, False)}
        preempts = {
            name: (pool["details"]["priorityScheduler"] or {}).get("preemption") for name, pool in shown.items()
        }
        assert preempts == {"shared": None, "spread": False, "pack": True}


async def test_work_without_a_pool_goes_to_the_default_of_its_kind(tmp_path: Path) -> None:
    async with three_pools(tmp_path) as (world, agents):
        await create(world)
        await create(world, slots_per_trial=0)
        assert {pool: [len(a.containers()) for a in group] for pool, group in agents.items()} == {
            "shared": [1, 0],
            "spread": [1, 0],
            "pack": [0, 0],
        }
        text = await world.error(
            "POST", "/api/v1/experiments", {"config": '{"resources": {"resource_pool": "none"}}'}, status=400
        )
        assert "'none'" in text and "pack, shared, spread" in text


async def test_each_pool_fits_and_preempts_by_its_own_rules(tmp_path: Path) -> None:
    async with three_pools(tmp_path) as (world, agents):
        for pool in ("spread", "pack"):
            await create(world, pool, trials=2, priority=50)
        assert running(agents["spread"]) == [1, 1]
        assert sorted(running(agents["pack"])) == [0, 2]
        for pool in ("spread", "pack"):
            await create(world, pool, slots_per_trial=4, priority=1)
        asked = {a.pool for a in world.engine.state.all(Allocation) if a.preempt is not None or a.killed_at is not None}
        assert asked == {"pack"}
        assert running(agents["shared"]) == [0, 0]


async def test_fair_share_divides_its_own_pool_only(tmp_path: Path) -> None:
    async with three_pools(tmp_path) as (world, agents):
        first = await create(world, "shared", trials=4)
        for agent in agents["shared"]:
            for container in agent.containers():
                await agent.report(container, ContainerState.RUNNING)
        assert held(world, first) == 4
        await create(world, "shared", trials=4)
        assert held(world, first) == 2
        assert running(agents["spread"]) == running(agents["pack"]) == [0, 0]
