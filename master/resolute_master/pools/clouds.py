"""The clouds of the elastic pools, built from the pools' configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute_master.trust import NO_TRUST, Trust
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.driver import CloudPlace, MasterPlace, driver_of

OpenCloud = Callable[[ResourcePool, CloudPlace], Cloud | None]
"""`cloud_of`, or what is composed in its place."""


def cloud_of(pool: ResourcePool, place: CloudPlace) -> Cloud | None:
    """The cloud that the pool's machines come from; None for a pool without a provider. Raises `InvalidInput`."""
    provider = pool.provider
    return None if provider is None else driver_of(provider).open(pool, provider, place)


def master_place(config: MasterConfig, environ: Mapping[str, str], trust: Trust = NO_TRUST) -> MasterPlace:
    """What the machines of a pool need to know of this master."""
    state = [config.cluster_state_dir, *([str(config.sqlite_path)] if config.sqlite_path is not None else [])]
    return MasterPlace(
        host=config.host,
        port=config.port,
        tls=config.security.tls.on,
        certificate=trust.pem,
        certificate_file=trust.file,
        private_paths=tuple(os.path.abspath(path) for path in state),
        environ=environ,
    )


def completed(config: MasterConfig, environ: Mapping[str, str]) -> MasterConfig:
    """Completes the pools with facts of the master's machine: regions, addresses, names. Blocking. Raises `InvalidInput` when a
    required fact is not available.
    """
    master = master_place(config, environ)
    pools = tuple(_completed(pool, master) for pool in config.resource_pools)
    return config.model_copy(update={"resource_pools": pools})


def _completed(pool: ResourcePool, master: MasterPlace) -> ResourcePool:
    provider = pool.provider
    if provider is None:
        return pool
    found = driver_of(provider).completed(pool, provider, master)
    return pool if found is provider else pool.model_copy(update={"provider": found})


def check(config: MasterConfig) -> None:
    """Checks that machines of the pools can be requested and can boot, as far as possible without a query to a cloud. Raises
    `InvalidInput`. `config` is complete: see `completed`."""
    master = master_place(config, {})
    for pool in config.resource_pools:
        check_pool(pool)
        if pool.provider is not None:
            driver_of(pool.provider).link(pool, pool.provider, master)


def check_pool(pool: ResourcePool) -> None:
    """Checks a pool without a query to its cloud. Raises `InvalidInput` for values that the cloud would refuse or with which no
    machine could boot."""
    if pool.provider is not None:
        driver_of(pool.provider).check(pool, pool.provider)


def left_to_master(pool: ResourcePool) -> tuple[str, ...]:
    """Keys that the pool omits because a master in the same cloud completes them from its own machine."""
    return () if pool.provider is None else driver_of(pool.provider).left_to_master(pool.provider)


def prices_from(pool: ResourcePool) -> str:
    """The cloud that publishes the spot prices of the pool, for display; empty if none does."""
    driver = None if pool.provider is None else driver_of(pool.provider)
    return driver.title if driver is not None and driver.reports_spot_prices else ""
