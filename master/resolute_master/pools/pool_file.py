"""Pools of a file, without a master, for `det pool offers --config` and `det simulate`.

A file is a master's configuration, or a single entry of its `resource_pools`. It is read as a starting master reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from resolute.config import InvalidConfig, MasterConfig, ResourcePool, load_master_config
from resolute.config.errors import Location, problems_of, suggestion
from resolute.config.layers import read_file
from resolute.errors import InvalidInput
from resolute.wire.rest.offers import GetPoolOffersResponse
from resolute_master.domain.copies import replace
from resolute_master.pools.clouds import check_pool, left_to_master, prices_from
from resolute_master.pools.file_checks import file_problems
from resolute_master.pools.offer_rows import shown_offers
from resolute_master.pools.policies import scaling_of
from resolute_provisioner.model import PoolScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePool:
    """One pool of a file."""

    pool: ResourcePool
    scaling: PoolScaling | None
    """None for a pool that is not elastic."""
    listens_on: str = ""
    """The master's own `host`; empty if the file does not contain it."""


def read_pools(path: Path) -> tuple[FilePool, ...]:
    """Every pool of the file. Raises `InvalidInput`, with all that is wrong in it."""
    raw = read_file(path, what="the configuration")
    pools: list[tuple[ResourcePool, Location]]
    listens_on = ""
    if "pool_name" in raw or "provider" in raw:
        try:
            pools = [(ResourcePool.model_validate(raw), ())]
        except ValidationError as error:
            raise InvalidConfig(str(path), problems_of(error)) from None
    else:
        config = config_of_pools(path, raw)
        pools = [(pool, ("resource_pools", place)) for place, pool in enumerate(config.resource_pools)]
        listens_on = config.host
    return tuple(FilePool(pool=pool, scaling=scaling_of(pool, at), listens_on=listens_on) for pool, at in pools)


def config_of_pools(path: Path, raw: Mapping[str, Any]) -> MasterConfig:
    """A master's configuration, of which the pools are wanted: which of them is the default is not asked where the file does
    not say. Raises `InvalidInput`."""
    defaults = {"resource_manager": {"no_default_resource_pools": True}}
    return load_master_config(path, {}, {} if "resource_manager" in raw else defaults)


def offers_in(path: Path, now: datetime, name: str | None = None) -> tuple[GetPoolOffersResponse, ...]:
    """What the elastic pools of the file, or the one of that name, may buy, as long as nothing was learnt of it. Raises
    `InvalidInput`, with all that a starting master would refuse of them."""
    pools = read_pools(path)
    names = [each.pool.pool_name for each in pools]
    if name is not None and name not in names:
        raise InvalidInput(f"{path}: there is no pool '{name}'; {suggestion(name, names)}")
    wanted = [each for each in pools if name in (None, each.pool.pool_name)]
    if name is not None and wanted[0].scaling is None:
        raise InvalidInput(f"{path}: pool '{name}' has no provider, and so buys no machines")
    _check(wanted)
    return tuple(
        replace(
            shown_offers(each.scaling, {}, now),
            left_to_master=left_to_master(each.pool),
            asks_prices_of=prices_from(each.pool),
        )
        for each in wanted
        if each.scaling is not None
    )


def _check(pools: Iterable[FilePool]) -> None:
    found = []
    for each in pools:
        try:
            check_pool(each.pool)
        except InvalidInput as error:
            found.append(str(error))
        found += file_problems(each.pool, each.listens_on)
    if found:
        raise InvalidInput("\n".join(found))
