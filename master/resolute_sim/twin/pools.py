"""POOL.yaml, read as a starting master reads it: a single entry of `resource_pools`, or a whole master's configuration."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from resolute.config import InvalidConfig, MasterConfig, ResourceManager, ResourcePool
from resolute.config.errors import problems_of, suggestion
from resolute.config.layers import read_file
from resolute.errors import InvalidInput
from resolute_master.domain.pool import PoolPolicy
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.pool_file import config_of_pools


def read_pool(path: Path, name: str | None = None) -> PoolPolicy:
    """The elastic pool of the file, or the one of that name. Raises `InvalidInput`, with all that is wrong in it."""
    policies = {str(id_): policy for id_, policy in pool_policies(_config(path)).items()}
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


def _config(path: Path) -> MasterConfig:
    raw = read_file(path, what="--pool")
    if not ("pool_name" in raw or "provider" in raw):
        return config_of_pools(path, raw)
    try:
        pool = ResourcePool.model_validate({"pool_name": "default", **raw})
    except ValidationError as error:
        raise InvalidConfig(str(path), problems_of(error)) from None
    manager = ResourceManager(default_aux_resource_pool=pool.pool_name, default_compute_resource_pool=pool.pool_name)
    return MasterConfig(resource_pools=(pool,), resource_manager=manager)
