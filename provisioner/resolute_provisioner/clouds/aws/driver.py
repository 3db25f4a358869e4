"""Amazon EC2 as a provider: what a pool's configuration comes to. The SDK is imported when a cloud or a source is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from resolute.clock import Clock
from resolute.config.errors import Location, Problem
from resolute.config.pools import ResourcePool
from resolute.errors import InvalidInput
from resolute.wire.rest.enums import ResourcePoolType
from resolute.wire.rest.pools import AwsCustomTag, ResourcePoolAwsDetail
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.catalogue import Catalogue, shipped
from resolute_provisioner.catalogue.source import TypeSource
from resolute_provisioner.clouds.aws.boot import METADATA
from resolute_provisioner.clouds.aws.catalogue import REGIONS, RULES, region_of
from resolute_provisioner.clouds.aws.configuration import AwsProvider
from resolute_provisioner.clouds.aws.metadata import ADDRESSES, ENDPOINT, Ec2Metadata
from resolute_provisioner.clouds.aws.request import AwsSettings
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.configured_offers import Line, OfferReader, lines_of
from resolute_provisioner.clouds.driver import BootedDriver, CloudPlace, MasterPlace, named
from resolute_provisioner.clouds.machine_host import EXAMPLE_WHEEL, host_setup, resolved_master_url
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.prices import PriceSource

if TYPE_CHECKING:
    from resolute_provisioner.clouds.aws.prices import AwsPrices

UNNAMED_OWNER = "determined-ai-determined"
"""The original's value of the owner tag outside of EC2. Nothing here looks for it: clusters may share it without harm."""


class AwsDriver(BootedDriver[AwsProvider]):
    """Pools on Amazon EC2."""

    name = "aws"
    title = "AWS"
    address_words = frozenset(ADDRESSES)
    regions = REGIONS
    asked_in_one_region = True
    remembered_keys = ("region",)
    types_file = "instance-types.json"
    reports_spot_prices = True

    def offers(
        self, pool: ResourcePool, provider: AwsProvider, here: Location, catalogue: Catalogue | None
    ) -> tuple[Offer, ...]:
        reader = OfferReader(
            rules=RULES,
            catalogue=self.catalogue() if catalogue is None else catalogue,
            prices=provider.prices,
            cpu_slots_allowed=provider.cpu_slots_allowed,
            region=provider.region or "",
            together=lambda offers: _not_one_region(here, offers),
        )
        return reader.offers(pool.pool_name, here, _lines(provider, here))

    def catalogue(self) -> Catalogue:
        return shipped(self.name)

    def type_source(self, pool: ResourcePool, provider: AwsProvider, clock: Clock) -> TypeSource | None:
        return _source(pool, provider, clock)

    def types_named(self, provider: AwsProvider) -> frozenset[str]:
        named_ = (instance_type for offer in provider.offers for instance_type in offer.instance_types)
        return frozenset(named_) or frozenset({provider.instance_type})

    def price_source(self, pool: ResourcePool, provider: AwsProvider, clock: Clock) -> PriceSource | None:
        return _source(pool, provider, clock)

    def price_period_s(self, provider: AwsProvider) -> float:
        return provider.price_refresh

    def completed(self, pool: ResourcePool, provider: AwsProvider, master: MasterPlace) -> AwsProvider:
        metadata = Ec2Metadata(master.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT)
        changes: dict[str, Any] = {}
        if not provider.region:
            region = metadata.region() or master.environ.get("AWS_DEFAULT_REGION")
            if not region:
                raise InvalidInput(
                    f"resource_pools: provider.region of pool '{pool.pool_name}' must be given: this master is not on EC2, "
                    "and AWS_DEFAULT_REGION is not set"
                )
            changes["region"] = region
        master_url = resolved_master_url(
            pool,
            provider,
            master.port,
            kinds=ADDRESSES,
            usual="local-ipv4",
            address_of=metadata.address,
            tls=master.tls,
        )
        if master_url is not None:
            changes["master_url"] = master_url
        if not provider.tag_value:
            changes["tag_value"] = metadata.instance_id() or UNNAMED_OWNER
        return provider.model_copy(update=changes)

    def left_to_master(self, provider: AwsProvider) -> tuple[str, ...]:
        missing = {
            "region": not provider.region,
            "master_url": not provider.master_url or urlsplit(provider.master_url).hostname in self.address_words,
        }
        return tuple(f"provider.{key}" for key, is_missing in missing.items() if is_missing)

    def check(self, pool: ResourcePool, provider: AwsProvider) -> None:
        aws_settings(pool, provider, EXAMPLE_WHEEL)

    def regions_of(self, provider: AwsProvider) -> Mapping[str, str]:
        zones = [
            *provider.network_interface.subnets,
            *(zone for offer in provider.offers for zone in offer.zones or ()),
        ]
        found = {region_of(zone) or zone: zone for zone in zones}
        return {**found, provider.region: provider.region} if provider.region else found

    def open(self, pool: ResourcePool, provider: AwsProvider, place: CloudPlace) -> Cloud:
        settings = aws_settings(pool, provider, place.wheel(), place.certificate)
        try:
            from resolute_provisioner.clouds.aws.calls import Ec2
            from resolute_provisioner.clouds.aws.cloud import AwsCloud
        except ImportError as error:
            raise _not_installed(pool, error) from error
        return AwsCloud(settings, Ec2(settings.region))

    def shown(self, provider: AwsProvider, offers: Sequence[Offer]) -> dict[str, Any]:
        return {
            **super().shown(provider, offers),
            "type": ResourcePoolType.AWS,
            "image_id": provider.image_id or "",
        }

    def shown_details(self, provider: AwsProvider, offers: Sequence[Offer]) -> dict[str, Any]:
        return {"aws": _detail(provider, offers)}


DRIVER = AwsDriver()


def aws_settings(pool: ResourcePool, provider: AwsProvider, wheel: AgentWheel, master_cert: str = "") -> AwsSettings:
    """Settings of a pool's machines. Raises `InvalidInput` for values that EC2 would refuse or with which no machine could boot."""
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
            metadata=METADATA,
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


def _lines(provider: AwsProvider, here: Location) -> Iterator[Line]:
    zones = tuple(provider.network_interface.subnets) or ("",)
    if not provider.offers:
        limit = provider.spot_max_price if provider.spot else None
        yield Line(
            at=(*here, "instance_type"),
            instance_type=provider.instance_type,
            slots_at=(*here, "instance_slots"),
            slots=provider.instance_slots,
            zones=zones,
            markets=(Market.SPOT if provider.spot else Market.ON_DEMAND,),
            max_price=None if limit is None else float(limit),
        )
    for place, offer in enumerate(provider.offers):
        yield from lines_of(offer, (*here, "offers", place), zones)


def _not_one_region(here: Location, offers: Sequence[Offer]) -> list[Problem]:
    """Problems with offers in several regions: the machines of a pool are requested in one region."""
    regions = sorted({offer.region for offer in offers if offer.zone})
    if len(regions) < 2:
        return []
    message = f"the zones are in several regions, {', '.join(regions)}; keep to one, and make a pool for each other"
    return [Problem(path=here, message=message)]


def _source(pool: ResourcePool, provider: AwsProvider, clock: Clock) -> AwsPrices:
    """The source of the machine types and the spot prices of the pool's region."""
    try:
        from resolute_provisioner.clouds.aws.calls import Ec2
        from resolute_provisioner.clouds.aws.prices import AwsPrices
    except ImportError as error:
        raise _not_installed(pool, error) from error
    return AwsPrices(Ec2(provider.region or ""), clock=clock)


def _not_installed(pool: ResourcePool, error: ImportError) -> InvalidInput:
    return InvalidInput(
        f"resource_pools: provider.type aws of pool '{pool.pool_name}' needs a package that is not installed "
        f"({error.name}); run pip install 'resolute-ml[aws]'"
    )


def _detail(provider: AwsProvider, offers: Sequence[Offer]) -> ResourcePoolAwsDetail:
    network = provider.network_interface
    return ResourcePoolAwsDetail(
        iam_instance_profile_arn=provider.iam_instance_profile_arn or "",
        image_id=provider.image_id or "",
        instance_name=provider.instance_name,
        public_ip=network.public_ip,
        region=provider.region or named(offer.region for offer in offers),
        root_volume_size=provider.root_volume_size,
        security_group_id=network.security_group_id or ", ".join(network.security_group_ids),
        spot_enabled=any(offer.market is Market.SPOT for offer in offers),
        ssh_key_name=provider.ssh_key_name,
        tag_key=provider.tag_key,
        tag_value=provider.tag_value or "",
        custom_tags=tuple(AwsCustomTag(key=tag.key, value=tag.value) for tag in provider.custom_tags),
        instance_type=named(offer.instance_type for offer in offers),
        log_group=provider.log_group,
        log_stream=provider.log_stream,
        spot_max_price=provider.spot_max_price,
        subnet_id=network.subnet_id or ", ".join(network.subnets.values()) or None,
    )
