"""Who tells the prices of the moment of a pool's offers, made from the pool's configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider
from resolute.ids import IdSource
from resolute_master.domain.ids import PoolName
from resolute_master.engine.engine import Engine
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.pools.aws import aws_prices
from resolute_provisioner.prices import PriceSource

OpenPrices = Callable[[ResourcePool, Clock], PriceSource | None]
"""`price_source_of`, or what is composed in its place."""


def price_source_of(pool: ResourcePool, clock: Clock) -> PriceSource | None:
    """None for a pool whose cloud tells no prices of the moment."""
    return aws_prices(pool, pool.provider, clock) if isinstance(pool.provider, AwsProvider) else None


def price_watches(
    config: MasterConfig, engine: Engine, open_prices: OpenPrices, clock: Clock, ids: IdSource
) -> tuple[PriceWatch, ...]:
    """One for each pool that has somebody to ask."""
    watches: list[PriceWatch] = []
    for pool in config.resource_pools:
        provider, scaling = pool.provider, engine.pools[PoolName(pool.pool_name)].scaling
        source = open_prices(pool, clock) if isinstance(provider, AwsProvider) and provider.price_refresh else None
        if source is None or scaling is None or not isinstance(provider, AwsProvider):
            continue
        watches.append(
            PriceWatch(
                engine,
                PoolName(pool.pool_name),
                source,
                offers=scaling.offers,
                period_s=provider.price_refresh,
                clock=clock,
                rng=random.Random(ids.bits(64)),
            )
        )
    return tuple(watches)
