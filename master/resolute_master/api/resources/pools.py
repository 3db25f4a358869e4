"""Resource pools: their configuration and state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from resolute.config import MasterConfig
from resolute.wire.rest.enums import DeviceType, FittingPolicy, SchedulerType
from resolute.wire.rest.pools import (
    GetResourcePoolsQuery,
    GetResourcePoolsResponse,
    ResourcePool,
    ResourcePoolDetail,
    ResourcePoolPrioritySchedulerDetail,
)
from resolute.wire.states import SlotKind
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.http.paging import page_of
from resolute_master.api.queue.positions import queue_stats
from resolute_master.api.render.providers import provider_details, provider_fields, slot_type
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Container
from resolute_master.domain.pool import Fitting, SchedulerKind
from resolute_master.domain.workspace import PoolBinding
from resolute_master.event_loop import yielding
from resolute_master.scheduler.snapshot import PoolSnapshot

_SLOT_TYPES = {SlotKind.CPU: DeviceType.CPU, SlotKind.CUDA: DeviceType.CUDA, SlotKind.ROCM: DeviceType.ROCM}
_FITTINGS = {Fitting.BEST: FittingPolicy.BEST, Fitting.WORST: FittingPolicy.WORST}
_SCHEDULERS = {SchedulerKind.PRIORITY: SchedulerType.PRIORITY, SchedulerKind.FAIR_SHARE: SchedulerType.FAIR_SHARE}


async def list_pools(call: Call, _: None) -> GetResourcePoolsResponse:
    """One page of resource pools."""
    query = call.query(GetResourcePoolsQuery)
    engine, config = call.api.engine, call.api.config
    names = sorted(engine.pools)
    if query.unbound:
        names = [name for name in names if engine.state.get(PoolBinding, name) is None]
    snapshots = [engine.snapshot(name) for name in names]
    # In a thread: it looks at every agent, allocation and job.
    pools = await asyncio.to_thread(lambda: [show_pool(snapshot, config) for snapshot in snapshots])
    rows, pages = page_of(pools, offset=query.offset, limit=query.limit)
    return GetResourcePoolsResponse(resource_pools=rows, pagination=pages)


def show_pool(snapshot: PoolSnapshot, config: MasterConfig) -> ResourcePool:
    policy, manager = snapshot.policy, config.resource_manager
    provider = next((pool.provider for pool in config.resource_pools if pool.pool_name == policy.name), None)
    agents = [agent for agent in snapshot.agents.values() if agent.connected]
    running = _running(snapshot, agents)
    scaling = policy.scaling
    offers = scaling.offers if scaling else ()
    detail = ResourcePoolPrioritySchedulerDetail(preemption=policy.preemption, default_priority=policy.default_priority)
    is_priority = policy.scheduler is SchedulerKind.PRIORITY
    return ResourcePool(
        name=policy.name,
        description=policy.description,
        num_agents=len(agents),
        slots_available=sum(len([s for s in a.slots if s.enabled]) for a in agents if a.enabled),
        slots_used=sum(len(c.slots) for c in running),
        slot_type=_slot_type(agents) or slot_type(offers),
        slots_per_agent=max((o.slots for o in offers), default=0) if scaling else -1,
        aux_container_capacity=policy.max_aux_containers_per_agent * len(agents),
        aux_container_capacity_per_agent=policy.max_aux_containers_per_agent,
        aux_containers_running=sum(not c.slots for c in running),
        default_aux_pool=policy.name == manager.default_aux_resource_pool,
        default_compute_pool=policy.name == manager.default_compute_resource_pool,
        min_agents=scaling.min_instances if scaling else 0,
        max_agents=scaling.max_instances if scaling else 0,
        max_idle_agent_period=scaling.idle_timeout_s if scaling else 0.0,
        max_agent_starting_period=scaling.boot_timeout_s if scaling else 0.0,
        scheduler_type=_SCHEDULERS[policy.scheduler],
        scheduler_fitting_policy=_FITTINGS[policy.fitting],
        details=ResourcePoolDetail(
            priority_scheduler=detail if is_priority else None,
            **provider_details(provider, offers),
        ),
        cluster_name=manager.cluster_name,
        resource_manager_metadata={str(k): str(v) for k, v in manager.metadata.items()},
        stats=queue_stats(snapshot),
        **provider_fields(provider, offers),
    )


def _running(snapshot: PoolSnapshot, agents: Iterable[Agent]) -> list[Container]:
    """Running containers on these agents."""
    here = {agent.id for agent in agents}
    containers = (
        container for allocation in yielding(snapshot.allocations.values()) for container in allocation.containers
    )
    return [container for container in containers if container.agent in here and not container.ended]


def _slot_type(agents: Iterable[Agent]) -> DeviceType | None:
    """Type of the first slot, because most pools hold machines of one kind; None without a slot."""
    return next((_SLOT_TYPES[s.device.kind] for a in agents for s in a.slots), None)


ROUTES = (Route("GET", "/api/v1/resource-pools", Action.VIEW, nothing, list_pools),)
