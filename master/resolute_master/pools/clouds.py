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
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.local import (
    POWER_OFF_COMMAND,
    LocalCloud,
    LocalCloudSettings,
    ScriptedInterruption,
    ScriptedRefusal,
    machine_environment,
)
from resolute_provisioner.model import RefusalKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPlace:
    """What a pool's cloud is given of its master."""

    directory: Path
    """The pool's own, for the local cloud."""
    environ: Mapping[str, str]
    clock: Clock
    wheel: Callable[[], AgentWheel]
    """What machines of a real cloud fetch their agent from."""


OpenCloud = Callable[[ResourcePool, CloudPlace], Cloud | None]
"""`cloud_of`, or what is composed in its place."""


def cloud_of(pool: ResourcePool, place: CloudPlace) -> Cloud | None:
    """The cloud that the pool's machines come from; None for a pool without a provider. Raises `InvalidInput`."""
    match pool.provider:
        case LocalProvider():
            return _local_cloud(pool.provider, place)
        case AwsProvider():
            return aws_cloud(pool, pool.provider, place.wheel())
        case GcpProvider():
            return gcp_cloud(pool, pool.provider, place.wheel(), place.clock)
        case None:
            return None


def check(config: MasterConfig) -> None:
    """That machines of the pools could be asked for and could boot, as far as it can be known without asking anybody. Raises
    `InvalidInput`. `config` is complete: see `aws.completed` and `gcp.completed`."""
    for pool in config.resource_pools:
        check_pool(pool)
        if isinstance(pool.provider, AwsProvider | GcpProvider):
            reachable_master(pool, pool.provider.master_url, config.host, config.port)


def _local_cloud(provider: LocalProvider, place: CloudPlace) -> LocalCloud:
    settings = LocalCloudSettings(
        root=place.directory,
        environment=machine_environment(place.environ),
        boot_delay_s=provider.boot_delay,
        power_off_command=POWER_OFF_COMMAND if provider.container_runtime == "docker" else (),
        refuse=tuple(ScriptedRefusal(launch=r.launch, error=RefusalKind(r.error)) for r in provider.refuse),
        interruptions=tuple(
            ScriptedInterruption(instance=i.instance, after_s=i.after, after_steps=i.after_steps, notice_s=i.notice)
            for i in provider.interruptions
        ),
    )
    return LocalCloud(settings, clock=place.clock)
