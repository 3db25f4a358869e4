"""The sources of current prices of a pool's offers, built from the pool's configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.ids import IdSource
from resolute_master.domain.ids import PoolName
from resolute_master.engine.engine import Engine
from resolute_master.engine.price_watch import PriceWatch
from resolute_provisioner.clouds.driver import driver_of
from resolute_provisioner.prices import PriceSource

OpenPrices = Callable[[ResourcePool, Clock], PriceSource | None]
"""`price_source_of`, or what is composed in its place."""


def price_source_of(pool: ResourcePool, clock: Clock) -> PriceSource | None:
    """None for a pool whose cloud publishes no current prices."""
    provider = pool.provider
    return None if provider is None else driver_of(provider).price_source(pool, provider, clock)


def price_watches(
    config: MasterConfig, engine: Engine, open_prices: OpenPrices, clock: Clock, ids: IdSource
) -> tuple[PriceWatch, ...]:
    """One for each pool with a source."""
    watches: list[PriceWatch] = []
    for pool in config.resource_pools:
        provider, scaling = pool.provider, engine.pools[PoolName(pool.pool_name)].scaling
        period_s = 0.0 if provider is None else driver_of(provider).price_period_s(provider)
        source = open_prices(pool, clock) if period_s else None
        if source is None or scaling is None:
            continue
        watches.append(
            PriceWatch(
                engine,
                PoolName(pool.pool_name),
                source,
                offers=scaling.offers,
                period_s=period_s,
                clock=clock,
                rng=random.Random(ids.bits(64)),
            )
        )
    return tuple(watches)
