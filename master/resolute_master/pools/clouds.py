"""The clouds behind the elastic pools, made from the pools' configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider, GcpProvider, LocalProvider
from resolute_master.pools.aws import aws_cloud
from resolute_master.pools.bootable import check_pool
from resolute_master.pools.gcp import gcp_cloud
from resolute_master.pools.machine_host import reachable_master
from resolute_master.trust import NO_TRUST, Trust
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.clouds.base import Cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPlace:
    """What a pool's cloud is given of its master."""

    directory: Path
    """The pool's own, for the local cloud."""
    environ: Mapping[str, str]
    clock: Clock
    wheel: Callable[[], AgentWheel]
    """What machines of a real cloud fetch their agent from."""
    trust: Trust = NO_TRUST
    """What machines check the master's certificate with."""


OpenCloud = Callable[[ResourcePool, CloudPlace], Cloud | None]
"""`cloud_of`, or what is composed in its place."""


def cloud_of(pool: ResourcePool, place: CloudPlace) -> Cloud | None:
    """The cloud that the pool's machines come from; None for a pool without a provider. Raises `InvalidInput`."""
    match pool.provider:
        case LocalProvider():
            # Imported where it is used: a master without such a pool starts no processes and looks at none.
            from resolute_master.pools.local import local_cloud

            return local_cloud(pool.provider, place.directory, place.environ, place.clock)
        case AwsProvider():
            return aws_cloud(pool, pool.provider, place.wheel(), place.trust.pem)
        case GcpProvider():
            return gcp_cloud(pool, pool.provider, place.wheel(), place.clock, place.trust.pem)
        case None:
            return None


def check(config: MasterConfig) -> None:
    """That machines of the pools could be asked for and could boot, as far as it can be known without asking anybody. Raises
    `InvalidInput`. `config` is complete: see `aws.completed` and `gcp.completed`."""
    for pool in config.resource_pools:
        check_pool(pool)
        if isinstance(pool.provider, AwsProvider | GcpProvider):
            reachable_master(pool, pool.provider.master_url, config.host, config.port, tls=config.security.tls.on)
