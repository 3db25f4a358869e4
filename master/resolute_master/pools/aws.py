"""A pool on Amazon EC2, made from its configuration. The SDK is imported here only when there is such a pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import AwsProvider
from resolute.errors import InvalidInput
from resolute_master.pools.machine_host import host_setup, told_master_url
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.catalogue.source import TypeSource
from resolute_provisioner.clouds.aws_metadata import ADDRESSES, Ec2Metadata
from resolute_provisioner.clouds.aws_request import AwsSettings
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.prices import PriceSource

if TYPE_CHECKING:
    from resolute_provisioner.clouds.aws_prices import AwsPrices

UNNAMED_OWNER = "determined-ai-determined"
"""The original's value of the owner tag outside of EC2. Nothing here looks for it: clusters may share it without harm."""


def completed(config: MasterConfig, environ: Mapping[str, str], metadata: Ec2Metadata) -> MasterConfig:
    """With what the pools on AWS leave to the master's own machine: region, address, owner tag. Blocking.

    Raises `InvalidInput` when nobody knows the region or the address that `master_url` asks for.
    """
    if not any(isinstance(pool.provider, AwsProvider) for pool in config.resource_pools):
        return config
    pools = tuple(_completed(pool, config, environ, metadata) for pool in config.resource_pools)
    return config.model_copy(update={"resource_pools": pools})


def _completed(
    pool: ResourcePool, config: MasterConfig, environ: Mapping[str, str], metadata: Ec2Metadata
) -> ResourcePool:
    provider = pool.provider
    if not isinstance(provider, AwsProvider):
        return pool
    changes: dict[str, Any] = {}
    if not provider.region:
        region = metadata.region() or environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise InvalidInput(
                f"resource_pools: provider.region of pool '{pool.pool_name}' must be given: this master is not on EC2, and "
                "AWS_DEFAULT_REGION is not set"
            )
        changes["region"] = region
    master_url = told_master_url(
        pool,
        provider,
        config.port,
        kinds=ADDRESSES,
        usual="local-ipv4",
        address_of=metadata.address,
        tls=config.security.tls.on,
    )
    if master_url is not None:
        changes["master_url"] = master_url
    if not provider.tag_value:
        changes["tag_value"] = metadata.instance_id() or UNNAMED_OWNER
    return pool.model_copy(update={"provider": provider.model_copy(update=changes)})


def aws_settings(pool: ResourcePool, provider: AwsProvider, wheel: AgentWheel, master_cert: str = "") -> AwsSettings:
    """Raises `InvalidInput` for what EC2 would refuse or no machine could boot with."""
    try:
        return _settings(pool, provider, wheel, master_cert)
    except InvalidInput as error:
        raise InvalidInput(f"resource_pools: provider of pool '{pool.pool_name}': {error}") from error


def _settings(pool: ResourcePool, provider: AwsProvider, wheel: AgentWheel, master_cert: str) -> AwsSettings:
    network = provider.network_interface
    groups = (network.security_group_id,) if network.security_group_id else network.security_group_ids
    log_options = {
        "awslogs-region": provider.region or "",
        **({"awslogs-group": provider.log_group} if provider.log_group else {}),
        **({"awslogs-stream": provider.log_stream} if provider.log_stream else {}),
    }
    return AwsSettings(
        region=provider.region or "",
        image_id=provider.image_id or "",
        host=host_setup(
            pool,
            provider,
            metadata="ec2",
            wheel=wheel,
            log_driver="awslogs" if provider.log_group else "",
            log_options=log_options if provider.log_group else {},
            master_cert=master_cert,
        ),
        key_name=provider.ssh_key_name,
        instance_profile_arn=provider.iam_instance_profile_arn or "",
        subnets=network.subnets,
        subnet_id=network.subnet_id or "",
        security_group_ids=tuple(groups),
        public_ip=network.public_ip,
        root_volume_gb=provider.root_volume_size,
        name=provider.instance_name,
        tags={
            **{tag.key: tag.value for tag in provider.custom_tags},
            provider.tag_key: provider.tag_value or UNNAMED_OWNER,
        },
    )


def aws_cloud(pool: ResourcePool, provider: AwsProvider, wheel: AgentWheel, master_cert: str = "") -> Cloud:
    """The cloud of that pool. Raises `InvalidInput`, also when the SDK is not installed."""
    settings = aws_settings(pool, provider, wheel, master_cert)
    try:
        from resolute_provisioner.clouds.aws import AwsCloud
        from resolute_provisioner.clouds.aws_calls import Ec2
    except ImportError as error:
        raise _not_installed(pool, error) from error
    return AwsCloud(settings, Ec2(settings.region))


def aws_prices(pool: ResourcePool, provider: AwsProvider, clock: Clock) -> PriceSource:
    """Who tells the spot prices of the pool's region. Raises `InvalidInput` when the SDK is not installed."""
    return _teller(pool, provider, clock)


def aws_types(pool: ResourcePool, provider: AwsProvider, clock: Clock) -> TypeSource:
    """Who tells of the machine types of the pool's region. Raises `InvalidInput` when the SDK is not installed."""
    return _teller(pool, provider, clock)


def _teller(pool: ResourcePool, provider: AwsProvider, clock: Clock) -> AwsPrices:
    try:
        from resolute_provisioner.clouds.aws_calls import Ec2
        from resolute_provisioner.clouds.aws_prices import AwsPrices
    except ImportError as error:
        raise _not_installed(pool, error) from error
    return AwsPrices(Ec2(provider.region or ""), clock=clock)


def _not_installed(pool: ResourcePool, error: ImportError) -> InvalidInput:
    return InvalidInput(
        f"resource_pools: provider.type aws of pool '{pool.pool_name}' needs a package that is not installed "
        f"({error.name}); run pip install 'resolute-ml[aws]'"
    )
