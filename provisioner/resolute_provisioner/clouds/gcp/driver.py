"""Google Compute Engine as a provider: what a pool's configuration comes to. The SDK is imported when a cloud is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from resolute.clock import Clock
from resolute.config.errors import Location, Problem, quoted
from resolute.config.pools import ResourcePool
from resolute.errors import InvalidInput
from resolute.wire.rest.enums import ResourcePoolType
from resolute.wire.rest.pools import ResourcePoolGcpDetail
from resolute_provisioner.bootstrap import AgentWheel, render_boot_script
from resolute_provisioner.catalogue import Catalogue, shipped
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.configured_offers import Line, OfferReader, lines_of
from resolute_provisioner.clouds.driver import BootedDriver, CloudPlace, MasterPlace, named
from resolute_provisioner.clouds.gcp.boot import METADATA
from resolute_provisioner.clouds.gcp.catalogue import REGIONS, RULES, region_of
from resolute_provisioner.clouds.gcp.configuration import GcpProvider
from resolute_provisioner.clouds.gcp.metadata import ADDRESSES, ENDPOINT, GceMetadata
from resolute_provisioner.clouds.gcp.request import GcpSettings, label_value
from resolute_provisioner.clouds.machine_host import EXAMPLE_WHEEL, host_setup, resolved_master_url
from resolute_provisioner.model import Market, Offer

UNNAMED_OWNER = "determined-ai-determined"
"""The original's value of the owner label outside of Google Cloud. Nothing here looks for it."""
ENDPOINT_VARIABLE = "GOOGLE_ENDPOINT_URL"
"""Variable of the master's environment: the address of an emulator of Compute Engine."""
DERIVED_PREFIX = 30
"""Length of the prefix of the master's own name in machines' names."""


class GcpDriver(BootedDriver[GcpProvider]):
    """Pools on Google Compute Engine."""

    name = "gcp"
    title = "Google Cloud"
    address_words = frozenset(ADDRESSES)
    regions = REGIONS
    remembered_keys = ("zone",)

    def offers(
        self, pool: ResourcePool, provider: GcpProvider, here: Location, catalogue: Catalogue | None
    ) -> tuple[Offer, ...]:
        reader = OfferReader(
            rules=RULES,
            catalogue=self.catalogue() if catalogue is None else catalogue,
            prices=provider.prices,
            cpu_slots_allowed=provider.cpu_slots_allowed,
            further=_unsupported_limit,
        )
        return reader.offers(pool.pool_name, here, _lines(provider, here))

    def catalogue(self) -> Catalogue:
        return shipped(self.name)

    def completed(self, pool: ResourcePool, provider: GcpProvider, master: MasterPlace) -> GcpProvider:
        host = master.environ.get("GCE_METADATA_HOST")
        metadata = GceMetadata(f"http://{host}" if host else ENDPOINT)
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
        master_url = resolved_master_url(
            pool,
            provider,
            master.port,
            kinds=ADDRESSES,
            usual="internal-ip",
            address_of=metadata.address,
            tls=master.tls,
        )
        if master_url is not None:
            changes["master_url"] = master_url
        return provider.model_copy(update=changes)

    def left_to_master(self, provider: GcpProvider) -> tuple[str, ...]:
        missing = {
            "project": not provider.project,
            "zone": not provider.zone and "" in zones_of(provider),
            "master_url": not provider.master_url or urlsplit(provider.master_url).hostname in self.address_words,
        }
        return tuple(f"provider.{key}" for key, is_missing in missing.items() if is_missing)

    def check(self, pool: ResourcePool, provider: GcpProvider) -> None:
        gcp_settings(pool, provider, EXAMPLE_WHEEL)
        _check_base_config(pool, provider)

    def regions_of(self, provider: GcpProvider) -> Mapping[str, str]:
        return {region_of(zone) or zone: zone for zone in sorted(zones_of(provider)) if zone}

    def open(self, pool: ResourcePool, provider: GcpProvider, place: CloudPlace) -> Cloud:
        endpoint = place.environ.get(ENDPOINT_VARIABLE, "")
        return gcp_cloud(pool, provider, place.wheel(), place.clock, place.certificate, endpoint=endpoint)

    def shown(self, provider: GcpProvider, offers: Sequence[Offer]) -> dict[str, Any]:
        return {
            **super().shown(provider, offers),
            "type": ResourcePoolType.GCP,
            "image_id": provider.boot_disk_source_image or "",
        }

    def shown_details(self, provider: GcpProvider, offers: Sequence[Offer]) -> dict[str, Any]:
        return {"gcp": _detail(provider, offers)}


DRIVER = GcpDriver()


def zones_of(provider: GcpProvider) -> frozenset[str]:
    """Zones in which the pool may have machines; "" is a zone that is not known yet."""
    own = provider.zones or (provider.zone or "",)
    return frozenset(zone for offer in provider.offers for zone in offer.zones or own) or frozenset(own)


def _known(pool: ResourcePool, key: str, found: str | None) -> str:
    if not found:
        raise InvalidInput(
            f"resource_pools: provider.{key} of pool '{pool.pool_name}' must be given: this master is not on Google Cloud"
        )
    return found


def _lines(provider: GcpProvider, here: Location) -> Iterator[Line]:
    zones = provider.zones or (provider.zone or "",)
    if not provider.offers:
        single = provider.instance_type
        yield Line(
            at=(*here, "instance_type", "machine_type"),
            instance_type=single.machine_type,
            accelerator=single.gpu_type if single.gpu_num else "",
            accelerators=single.gpu_num,
            slots_at=(),
            slots=None,
            zones=zones,
            markets=(Market.SPOT if single.preemptible else Market.ON_DEMAND,),
        )
    for place, offer in enumerate(provider.offers):
        at = (*here, "offers", place)
        yield from lines_of(offer, at, zones, accelerator=offer.gpu_type, accelerators=offer.gpu_num)


def _unsupported_limit(line: Line, spot_price: float | None) -> Problem | None:
    """A problem with a price limit of a spot machine, which other clouds accept and Google Cloud does not."""
    if line.max_price is None or Market.SPOT not in line.markets:
        return None
    at = (*line.at[:-2], "max_price")
    message = (
        f"cannot be kept for spot machines{quoted(line.max_price, at)}: Google Cloud publishes no spot prices and "
        "accepts no limit; "
        "set spot_price, or remove it from this entry"
    )
    return Problem(path=at, message=message) if spot_price is None else None


def gcp_settings(pool: ResourcePool, provider: GcpProvider, wheel: AgentWheel, master_cert: str = "") -> GcpSettings:
    """Settings of a pool's machines. Raises `InvalidInput` for values that Compute Engine would refuse or with which no machine
    could boot."""
    if not provider.boot_disk_source_image:
        raise InvalidInput(
            f"resource_pools: provider.boot_disk_source_image of pool '{pool.pool_name}' must be given: no image is released; "
            "name one with Docker and, for GPUs, their driver, such as projects/PROJECT/global/images/family/FAMILY"
        )
    driver = "gcplogs" if provider.use_cloud_logging else ""
    network, account = provider.network_interface, provider.service_account
    try:
        host = host_setup(pool, provider, metadata=METADATA, wheel=wheel, log_driver=driver, master_cert=master_cert)
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


def _check_base_config(pool: ResourcePool, provider: GcpProvider) -> None:
    """Checks `base_config` with Google's own library. Raises `InvalidInput`, also if that is not installed."""
    if not provider.base_config:
        return
    try:
        from resolute_provisioner.clouds.gcp.calls import parsed
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
        from resolute_provisioner.clouds.gcp.cloud import GcpCloud
    except ImportError as error:
        raise _not_installed(pool, "provider.type gcp", error) from error
    return GcpCloud(settings, clock=clock, zones=zones_of(provider), endpoint=endpoint, credentials=credentials)


def _detail(provider: GcpProvider, offers: Sequence[Offer]) -> ResourcePoolGcpDetail:
    network, account = provider.network_interface, provider.service_account
    return ResourcePoolGcpDetail(
        boot_disk_size=provider.boot_disk_size,
        boot_disk_source_image=provider.boot_disk_source_image or "",
        external_ip=network.external_ip,
        gpu_num=max((offer.accelerators for offer in offers), default=0),
        gpu_type=named(offer.accelerator for offer in offers),
        label_key=provider.label_key,
        label_value=provider.label_value or "",
        machine_type=named(offer.instance_type for offer in offers),
        name_prefix=provider.name_prefix or "",
        network=network.network or "",
        operation_timeout_period=provider.operation_timeout_period,
        preemptible=any(offer.market is Market.SPOT for offer in offers),
        project=provider.project or "",
        service_account_email=account.email,
        service_account_scopes=account.scopes,
        zone=named(offer.zone for offer in offers),
        network_tags=provider.network_tags,
        subnetwork=network.subnetwork,
    )
