"""Converts the configuration of a pool into its offers."""

from __future__ import annotations

from resolute.config.errors import Location
from resolute.config.pools import ResourcePool
from resolute_provisioner.catalogue import Catalogue
from resolute_provisioner.clouds.driver import driver_of
from resolute_provisioner.model import Offer


def offers_of(pool: ResourcePool, at: Location = (), catalogue: Catalogue | None = None) -> tuple[Offer, ...]:
    """What the pool may buy, by id; empty for a pool that is not elastic. `at` is the path of the pool in its file, `catalogue`
    the known types of the cloud beside the shipped table. Raises `InvalidConfig` for types that are not known, slots that
    contradict the type, and what is offered twice.
    """
    provider = pool.provider
    if provider is None:
        return ()
    return driver_of(provider).offers(pool, provider, (*at, "provider"), catalogue)
