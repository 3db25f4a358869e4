"""Checks of a pool's file before it costs an hour: addresses that no machine can reach, and regions that do not exist.

A starting master queries the cloud instead; a file is checked without one. So a new region, which the list does not contain yet,
is refused here only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from resolute.config.errors import suggestion
from resolute.config.pools import ResourcePool
from resolute_provisioner.clouds.driver import Driver, driver_of, drivers


def file_problems(pool: ResourcePool, listens_on: str) -> Iterator[str]:
    """Problems of one pool that can be found from the file alone. `listens_on` is the master's own `host`, if the file contains
    it."""
    provider = pool.provider
    if provider is None or provider.on_masters_machine:
        return
    driver = driver_of(provider)
    why = _unreachable(driver, provider.master_url, listens_on)
    if why:
        yield f"resource_pools: provider.master_url of pool '{pool.pool_name}' {why}"
    found = driver.regions_of(provider)
    for region in sorted(found.keys() - driver.regions) if driver.regions else ():
        yield (
            f"resource_pools: provider of pool '{pool.pool_name}': {found[region]} is in no region of the cloud that this "
            f"version lists; {suggestion(region, driver.regions)} (a master starts nevertheless)"
        )


def _unreachable(driver: Driver[Any], master_url: str, listens_on: str) -> str:
    """Why no machine could reach the master; empty where one could."""
    if not master_url:
        if not _only_here(listens_on):
            return ""
        return (
            f"must be given: the master listens on {listens_on} (host), which no other machine reaches; "
            "set host to 0.0.0.0, or name what passes requests on"
        )
    host = urlsplit(master_url).hostname or ""
    if _only_here(host) or host in ("0.0.0.0", "::"):
        return f"names {host}, by which each machine reaches itself (value {master_url}); name an address of the master"
    # A word has no dots; for an address the other providers are not imported.
    if "." not in host and host not in driver.address_words and any(host in other.address_words for other in drivers()):
        words = ", ".join(sorted(driver.address_words))
        advice = f"use an address, or one of: {words}" if words else "use an address"
        return f"names {host}, a word of another cloud (value {master_url}); {advice}"
    return ""


def _only_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local
