"""A pool on Google Cloud, made from its configuration. The SDK is imported here only when there is such a pool."""

from __future__ import annotations

from typing import Any

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import GcpProvider
from resolute.errors import InvalidInput
from resolute_master.pools.machine_host import host_setup, told_master_url
from resolute_provisioner.bootstrap import AgentWheel, render_boot_script
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.gcp_metadata import ADDRESSES, GceMetadata
from resolute_provisioner.clouds.gcp_request import GcpSettings, label_value

UNNAMED_OWNER = "determined-ai-determined"
"""The original's value of the owner label outside of Google Cloud. Nothing here looks for it."""
DERIVED_PREFIX = 30
"""Of the master's own name so much begins the machines' names."""


def completed(config: MasterConfig, metadata: GceMetadata) -> MasterConfig:
    """With what the pools on Google Cloud leave to the master's own machine: project, zone, names, address. Blocking.

    Raises `InvalidInput` when nobody knows what a pool cannot do without.
    """
    if not any(isinstance(pool.provider, GcpProvider) for pool in config.resource_pools):
        return config
    pools = tuple(_completed(pool, config, metadata) for pool in config.resource_pools)
    return config.model_copy(update={"resource_pools": pools})


def _completed(pool: ResourcePool, config: MasterConfig, metadata: GceMetadata) -> ResourcePool:
    provider = pool.provider
    if not isinstance(provider, GcpProvider):
        return pool
    changes: dict[str, Any] = {}
    if not provider.project:
        changes["project"] = _known(pool, "project", metadata.project())
    if not provider.zone and "" in zones_of(provider):
        changes["zone"] = _known(pool, "zone", metadata.zone())
    name = None if provider.label_value and provider.name_prefix is not None else metadata.name()
    if not provider.label_value:
        changes["label_value"] = name or UNNAMED_OWNER
    if provider.name_prefix is None:
        changes["name_prefix"] = f"{(name or UNNAMED_OWNER)[: DERIVED_PREFIX - 1].rstrip('-')}-"
    master_url = told_master_url(
        pool,
        provider,
        config.port,
        kinds=ADDRESSES,
        usual="internal-ip",
        address_of=metadata.address,
        tls=config.security.tls.on,
    )
    if master_url is not None:
        changes["master_url"] = master_url
    return pool.model_copy(update={"provider": provider.model_copy(update=changes)})


def zones_of(provider: GcpProvider) -> frozenset[str]:
    """Where the pool may have machines; "" stands for the zone that is not known yet."""
    own = provider.zones or (provider.zone or "",)
    return frozenset(zone for offer in provider.offers for zone in offer.zones or own) or frozenset(own)


def _known(pool: ResourcePool, key: str, found: str | None) -> str:
    if not found:
        raise InvalidInput(
            f"resource_pools: provider.{key} of pool '{pool.pool_name}' must be given: this master is not on Google Cloud"
        )
    return found


def gcp_settings(pool: ResourcePool, provider: GcpProvider, wheel: AgentWheel, master_cert: str = "") -> GcpSettings:
    """Raises `InvalidInput` for what Compute Engine would refuse or no machine could boot with."""
    if not provider.boot_disk_source_image:
        raise InvalidInput(
            f"resource_pools: provider.boot_disk_source_image of pool '{pool.pool_name}' must be given: no image is released; "
            "name one with Docker and, for GPUs, their driver, such as projects/PROJECT/global/images/family/FAMILY"
        )
    driver = "gcplogs" if provider.use_cloud_logging else ""
    network, account = provider.network_interface, provider.service_account
    try:
        host = host_setup(pool, provider, metadata="gce", wheel=wheel, log_driver=driver, master_cert=master_cert)
        return GcpSettings(
            project=provider.project or "",
            startup_script=lambda boot: render_boot_script(boot, host),
            source_image=provider.boot_disk_source_image,
            zone=provider.zone or "",
            base_config=provider.base_config or {},
            boot_disk_gb=provider.boot_disk_size,
            boot_disk_type=provider.boot_disk_type or "pd-standard",
            labels={**provider.labels, provider.label_key: label_value(provider.label_value or UNNAMED_OWNER)},
            name_prefix=provider.name_prefix or "",
            network=network.network or "",
            subnetwork=network.subnetwork or "",
            external_ip=network.external_ip,
            network_tags=provider.network_tags,
            service_account=account.email,
            scopes=account.scopes,
            operation_timeout_s=provider.operation_timeout_period,
        )
    except InvalidInput as error:
        raise InvalidInput(f"resource_pools: provider of pool '{pool.pool_name}': {error}") from error


def check_base_config(pool: ResourcePool, provider: GcpProvider) -> None:
    """Google's own library knows its keys. Raises `InvalidInput`, also when that is not installed."""
    if not provider.base_config:
        return
    try:
        from resolute_provisioner.clouds.gcp_calls import parsed
    except ImportError as error:
        raise _not_installed(pool, "provider.base_config", error) from error
    try:
        parsed(provider.base_config, what="provider.base_config")
    except InvalidInput as error:
        raise InvalidInput(f"resource_pools: pool '{pool.pool_name}': {error}") from error


def _not_installed(pool: ResourcePool, key: str, error: ImportError) -> InvalidInput:
    return InvalidInput(
        f"resource_pools: {key} of pool '{pool.pool_name}' needs a package that is not installed ({error.name}); "
        "run pip install 'resolute-ml[gcp]'"
    )


def gcp_cloud(
    pool: ResourcePool,
    provider: GcpProvider,
    wheel: AgentWheel,
    clock: Clock,
    master_cert: str = "",
    *,
    endpoint: str = "",
    credentials: Any = None,
) -> Cloud:
    """The cloud of that pool; `endpoint` and `credentials` are Google's own and those of the environment when left out.

    Raises `InvalidInput`, also when the SDK is not installed.
    """
    settings = gcp_settings(pool, provider, wheel, master_cert)
    try:
        from resolute_provisioner.clouds.gcp import GcpCloud
    except ImportError as error:
        raise _not_installed(pool, "provider.type gcp", error) from error
    return GcpCloud(settings, clock=clock, zones=zones_of(provider), endpoint=endpoint, credentials=credentials)
