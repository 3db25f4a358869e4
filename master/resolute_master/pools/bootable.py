"""Whether machines of a pool could be asked for and could boot, as far as its configuration tells."""

from __future__ import annotations

from urllib.parse import urlsplit

from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider, GcpProvider
from resolute_master.pools.aws import aws_settings
from resolute_master.pools.gcp import check_base_config, gcp_settings, zones_of
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.clouds import aws_metadata, gcp_metadata

_WHEEL = AgentWheel(name="resolute_ml-0.0.0-py3-none-any.whl", sha256="0" * 64)
"""As long as the real one, so that what machines are given is as long as it will be."""


def check_pool(pool: ResourcePool) -> None:
    """Asks nobody. Raises `InvalidInput` for what the cloud would refuse or no machine could boot with."""
    match pool.provider:
        case AwsProvider():
            aws_settings(pool, pool.provider, _WHEEL)
        case GcpProvider():
            gcp_settings(pool, pool.provider, _WHEEL)
            check_base_config(pool, pool.provider)
        case _:
            pass


def left_to_master(pool: ResourcePool) -> tuple[str, ...]:
    """What the pool does not say because a master in the same cloud knows it of its own machine: see `aws.completed` and
    `gcp.completed`. Names of keys."""
    provider = pool.provider
    match provider:
        case AwsProvider():
            missing = {"region": not provider.region}
            of_metadata = frozenset(aws_metadata.ADDRESSES)
        case GcpProvider():
            missing = {"project": not provider.project, "zone": not provider.zone and "" in zones_of(provider)}
            of_metadata = frozenset(gcp_metadata.ADDRESSES)
        case _:
            return ()
    missing["master_url"] = not provider.master_url or urlsplit(provider.master_url).hostname in of_metadata
    return tuple(f"provider.{key}" for key, is_missing in missing.items() if is_missing)
