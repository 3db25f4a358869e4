"""Reads POOL.yaml as a starting master does: a single entry of `resource_pools`, or a master's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from resolute.config import InvalidConfig, MasterConfig, ResourceManager, ResourcePool
from resolute.config.base import ConfigModel
from resolute.config.errors import problems_of, suggestion
from resolute.config.layers import read_file
from resolute.errors import InvalidInput
from resolute.providers import PROVIDERS
from resolute_master.domain.pool import PoolPolicy
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.pool_file import config_of_pools

MOST_SLOTS = 100_000
"""Most slots of one machine, far more than any has. A larger number is a mistake, and its simulation would not end in time."""

NOT_SIMULATED = {
    "agent_reconnect_wait": "its agents never lose contact",
    "max_aux_containers_per_agent": "every job of a trace has slots",
}
"""Keys of a pool without a counterpart in a simulation, each with the reason."""

NOT_SIMULATED_OF_PROVIDER = {
    "boot_delay": "--boot sets how long machines take to join",
    "refuse": "--spot defines when machines are available",
    "interruptions": "--spot defines when machines are reclaimed",
}


def read_pool(path: Path, name: str | None = None) -> PoolPolicy:
    """The elastic pool of the file, or the one with that name. Raises `InvalidInput` with every error of the file, and for a key
    that has no counterpart in a simulation."""
    config = _config(path)
    found = _chosen(path, config, name)
    _refuse_not_simulated(path, next(each for each in config.resource_pools if each.pool_name == found.name))
    largest = max((offer.slots for offer in found.scaling.offers), default=0) if found.scaling is not None else 0
    if largest > MOST_SLOTS:
        raise InvalidInput(
            f"--pool: {path}: a machine of pool '{found.name}' has {largest} slots, and a simulation takes {MOST_SLOTS} at most; "
            "correct the number"
        )
    return found


def _chosen(path: Path, config: MasterConfig, name: str | None) -> PoolPolicy:
    policies = {str(id_): policy for id_, policy in pool_policies(config).items()}
    elastic = {id_: policy for id_, policy in policies.items() if policy.scaling is not None}
    if name is not None:
        if name not in policies:
            raise InvalidInput(f"--pool: {path}: there is no pool '{name}'; {suggestion(name, policies)}")
        if name not in elastic:
            raise InvalidInput(f"--pool: {path}: pool '{name}' has no provider, so that it never grows; give it one")
        return elastic[name]
    if not elastic:
        raise InvalidInput(
            f"--pool: {path}: no pool of it has a provider, so that nothing would be bought; give it one"
        )
    if len(elastic) > 1:
        raise InvalidInput(
            f"--pool: {path} has several elastic pools; name one of {', '.join(sorted(elastic))} with --resource-pool"
        )
    return next(iter(elastic.values()))


def _refuse_not_simulated(path: Path, pool: ResourcePool) -> None:
    """Refuses a key that changes decisions of a master but would have no effect here."""
    _refuse(path, pool, pool.pool_name, NOT_SIMULATED)
    if pool.provider is not None:
        _refuse(path, pool.provider, f"{pool.pool_name}.provider", NOT_SIMULATED_OF_PROVIDER)


def _refuse(path: Path, given: ConfigModel, where: str, not_simulated: Mapping[str, str]) -> None:
    fields = type(given).model_fields
    for name, why in not_simulated.items():
        if name in fields and getattr(given, name) != fields[name].default:
            raise InvalidInput(f"--pool: {path}: {where}.{name} has no effect in a simulation: {why}; remove it")


def _completed(raw: dict[str, Any]) -> dict[str, Any]:
    """Adds required keys that no simulation uses, such as the name of a key pair, if the file lacks them."""

    def completed(pool: Any) -> Any:
        provider = pool.get("provider") if isinstance(pool, Mapping) else None
        registered = PROVIDERS.get(str(provider.get("type"))) if isinstance(provider, Mapping) else None
        if not isinstance(provider, Mapping) or registered is None:
            return pool
        return {**pool, "provider": {**registered.unneeded_to_simulate, **provider}}

    pools = raw.get("resource_pools")
    if isinstance(pools, list):
        return {**raw, "resource_pools": [completed(pool) for pool in pools]}
    found: dict[str, Any] = completed(raw)
    return found


def _config(path: Path) -> MasterConfig:
    raw = _completed(read_file(path, what="--pool"))
    if not ("pool_name" in raw or "provider" in raw):
        return config_of_pools(path, raw)
    try:
        pool = ResourcePool.model_validate({"pool_name": "default", **raw})
    except ValidationError as error:
        raise InvalidConfig(str(path), problems_of(error)) from None
    manager = ResourceManager(default_aux_resource_pool=pool.pool_name, default_compute_resource_pool=pool.pool_name)
    return MasterConfig(resource_pools=(pool,), resource_manager=manager)
