"""Converts the configuration of the pools into the inputs of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resolute.config import MasterConfig
from resolute.config.consolidation import ConsolidationPolicy
from resolute.config.disruption import WEEKDAYS, DisruptionPolicy, seconds_after_midnight
from resolute.config.errors import Location
from resolute.config.pools import ResourcePool
from resolute.providers import PROVIDERS
from resolute_master.domain.account import Limits
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.pools.offers import offers_of
from resolute_master.scheduler.policy import policy_of
from resolute_provisioner.catalogue import Catalogue, shipped
from resolute_provisioner.clouds.driver import driver_named
from resolute_provisioner.model import Consolidation, Disruption, Offer, PoolScaling, SpotFallback, Window

LONGEST_LEARNT_IDLE_S = 1200.0
"""Where the idle period is learnt, no machine is kept longer without work."""

Types = Mapping[str, Catalogue]
"""Catalogues of machine types, by the provider that described them."""
NO_TYPES: Types = {}


def pool_policies(config: MasterConfig, types: Types = NO_TYPES) -> dict[PoolName, PoolPolicy]:
    """`types` are the clouds' answers beside the shipped tables. Raises `InvalidConfig` for unknown machines,
    before anything is stored or started."""
    return {
        PoolName(pool.pool_name): _policy(config, pool, place, types)
        for place, pool in enumerate(config.resource_pools)
    }


def catalogues(config: MasterConfig, types: Types = NO_TYPES) -> dict[PoolName, Catalogue]:
    """The machine types that each elastic pool could buy, as far as its cloud or the shipped table describes them."""
    return {
        PoolName(pool.pool_name): types.get(pool.provider.name) or shipped(pool.provider.name)
        for pool in config.resource_pools
        if pool.provider is not None
    }


def found_again(instance: Instance, offers: Sequence[Offer]) -> bool:
    """Whether the cloud that the pool's machines are requested from is the one that has this machine."""
    if any(offer.offer_id == instance.offer_id for offer in offers):
        return True
    bought = instance.offer
    return bought is not None and any(_place(offer) == _place(bought) for offer in offers)


def _place(offer: Offer) -> tuple[str, str]:
    """The cloud, and the region if machines are requested in one region only."""
    cloud = offer.offer_id.partition("/")[0]
    return cloud, offer.region if cloud in PROVIDERS and driver_named(cloud).asked_in_one_region else ""


def _policy(config: MasterConfig, pool: ResourcePool, place: int, types: Types) -> PoolPolicy:
    scheduler = config.scheduler_of(pool)
    return replace(
        policy_of(pool.pool_name, scheduler, max_aux_containers_per_agent=pool.max_aux_containers_per_agent),
        agent_reconnect_wait_s=pool.agent_reconnect_wait,
        description=pool.description,
        launch_error=config.launch_error,
        budget=Limits(per_day=pool.budget.per_day, per_month=pool.budget.per_month),
        scaling=scaling_of(pool, ("resource_pools", place), types),
    )


def _consolidation(given: ConsolidationPolicy | None) -> Consolidation | None:
    return None if given is None else Consolidation(margin=float(given.margin), restart_s=given.restart_cost)


def _disruption(given: DisruptionPolicy) -> Disruption:
    windows = tuple(
        Window(
            weekdays=frozenset(WEEKDAYS.index(day) for day in window.days),
            start_s=seconds_after_midnight(window.start),
            end_s=seconds_after_midnight(window.end),
        )
        for window in given.windows
    )
    return Disruption(max_per_hour=given.max_per_hour, windows=windows)


def scaling_of(pool: ResourcePool, at: Location = (), types: Types = NO_TYPES) -> PoolScaling | None:
    """The elastic part of a pool; None for one that has none. `at` is the path of the pool in its file."""
    provider = pool.provider
    if provider is None:
        return None
    return PoolScaling(
        pool=pool.pool_name,
        offers=offers_of(pool, at, types.get(provider.name)),
        min_instances=provider.min_instances,
        max_instances=provider.max_instances,
        idle_timeout_s=provider.max_idle_agent_period or LONGEST_LEARNT_IDLE_S,
        idle_learnt=provider.max_idle_agent_period is None,
        max_idle_cost=None if provider.max_idle_cost is None else float(provider.max_idle_cost),
        boot_timeout_s=provider.max_agent_starting_period,
        reconnect_wait_s=pool.agent_reconnect_wait,
        consolidation=_consolidation(provider.consolidation),
        disruption=_disruption(provider.disruption),
        max_aux_per_instance=pool.max_aux_containers_per_agent,
        launch_error_timeout_s=provider.launch_error_timeout,
        launch_error_retries=provider.launch_error_retries,
        spot_fallback=SpotFallback(
            after_s=provider.spot_fallback.after, return_after_s=provider.spot_fallback.return_after
        ),
    )
