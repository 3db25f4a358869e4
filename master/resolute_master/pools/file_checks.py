"""What is said of a pool's file before it costs an hour: addresses that no machine reaches, and regions that nobody has.

A starting master asks the cloud and finds out; a file is looked at without one. So a new region, which the list does not have yet,
is refused here only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from resolute.config.errors import suggestion
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider, GcpProvider
from resolute_master.pools.gcp import zones_of
from resolute_provisioner.catalogue import aws, gcp, regions
from resolute_provisioner.clouds import aws_metadata, gcp_metadata

_ADDRESSES = {"aws": frozenset(aws_metadata.ADDRESSES), "gcp": frozenset(gcp_metadata.ADDRESSES)}
"""Words that stand for an address of the master's own machine, by cloud."""


def file_problems(pool: ResourcePool, listens_on: str) -> Iterator[str]:
    """Of one pool; `listens_on` is the master's own `host`, as far as the file says."""
    provider = pool.provider
    if not isinstance(provider, AwsProvider | GcpProvider):
        return
    cloud = provider.type
    why = _unreachable(cloud, provider.master_url, listens_on)
    if why:
        yield f"resource_pools: provider.master_url of pool '{pool.pool_name}' {why}"
    found = _aws_regions(provider) if isinstance(provider, AwsProvider) else _gcp_regions(provider)
    for region in regions.unknown(cloud, found):
        yield (
            f"resource_pools: provider of pool '{pool.pool_name}': {found[region]} is in no region of the cloud that this version "
            f"knows; {suggestion(region, regions.REGIONS[cloud])} (a master starts with a newer one all the same)"
        )


def _unreachable(cloud: str, master_url: str, listens_on: str) -> str:
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
    others = {word: other for other, words in _ADDRESSES.items() for word in words}
    if others.get(host, cloud) != cloud:
        words = ", ".join(sorted(_ADDRESSES[cloud]))
        return f"names {host}, a word of another cloud (value {master_url}); use an address, or one of: {words}"
    return ""


def _only_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local


def _aws_regions(provider: AwsProvider) -> dict[str, str]:
    """Every region that is meant, and the words that mean it."""
    zones = [*provider.network_interface.subnets, *(zone for offer in provider.offers for zone in offer.zones or ())]
    named = {aws.region_of(zone) or zone: zone for zone in zones}
    return {**named, provider.region: provider.region} if provider.region else named


def _gcp_regions(provider: GcpProvider) -> dict[str, str]:
    return {gcp.region_of(zone) or zone: zone for zone in sorted(zones_of(provider)) if zone}
