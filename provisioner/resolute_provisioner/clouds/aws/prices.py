"""Current prices and machine types from EC2."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from resolute.clock import Clock
from resolute_provisioner.catalogue.shapes import Shape
from resolute_provisioner.clouds.aws.calls import SDK_ERRORS, Ec2, cloud_error
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.prices import LivePrice

PRODUCT = "Linux/UNIX"
PAGE = 1000
MOST_PRICES = 20_000
"""Most prices of a query. A region has some tens of thousands of (type, zone); a pool names a few of them."""
TYPES_AT_ONCE = 100
MIB_PER_GIB = 1024.0

ACCELERATORS = (
    ("GpuInfo", "Gpus"),
    ("NeuronInfo", "NeuronDevices"),
    ("InferenceAcceleratorInfo", "Accelerators"),
)
"""EC2's fields for a type's accelerators. The last two both contain Inferentia: the first non-empty one counts."""


class AwsPrices:
    """Implements `PriceSource`: the spot price history of one region, at the present time."""

    name = "EC2 spot price history"

    def __init__(self, ec2: Ec2, *, clock: Clock) -> None:
        self._ec2 = ec2
        self._clock = clock

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        """Current prices. An offer without a zone may be served by any zone: it has the price of the most expensive one."""
        wanted = [offer for offer in offers if offer.market is Market.SPOT]
        if not wanted:
            return ()
        # Asked for the present moment, EC2 answers with the price in force of each (type, zone).
        now = self._clock.now()
        try:
            told = await self._ec2.pages(
                "describe_spot_price_history",
                "SpotPriceHistory",
                page=PAGE,
                most=MOST_PRICES,
                InstanceTypes=sorted({offer.instance_type for offer in wanted}),
                ProductDescriptions=[PRODUCT],
                StartTime=now,
                EndTime=now,
            )
        except SDK_ERRORS as error:
            raise cloud_error(error) from error
        newest = _newest(told)
        found = (live_price(offer, newest) for offer in sorted(wanted, key=lambda each: each.offer_id))
        return tuple(price for price in found if price is not None)

    async def shapes(self, instance_types: Collection[str]) -> tuple[Shape, ...]:
        """EC2's descriptions of these types; types that the region does not have are omitted. Raises a `CloudError`."""
        found: list[Shape] = []
        names = sorted(set(instance_types))
        for start in range(0, len(names), TYPES_AT_ONCE):
            filters = [{"Name": "instance-type", "Values": names[start : start + TYPES_AT_ONCE]}]
            try:
                told = await self._ec2.pages(
                    "describe_instance_types", "InstanceTypes", page=TYPES_AT_ONCE, Filters=filters
                )
            except SDK_ERRORS as error:
                raise cloud_error(error) from error
            found += [shape_of(each) for each in told]
        return tuple(sorted(found, key=lambda shape: shape.instance_type))

    async def zones(self) -> tuple[str, ...]:
        """The zones of the region that the account may use. Raises a `CloudError`."""
        try:
            answer = await self._ec2.call(
                "describe_availability_zones", Filters=[{"Name": "state", "Values": ["available"]}]
            )
        except SDK_ERRORS as error:
            raise cloud_error(error) from error
        return tuple(sorted(zone["ZoneName"] for zone in answer["AvailabilityZones"]))


Newest = dict[tuple[str, str], tuple[datetime, float]]
"""Price per hour by type and zone, and the time since which it applies."""


def _newest(told: Sequence[Any]) -> Newest:
    newest: Newest = {}
    for each in told:
        place, at = (each["InstanceType"], each["AvailabilityZone"]), each["Timestamp"].astimezone(UTC)
        if place not in newest or newest[place][0] < at:
            newest[place] = (at, float(each["SpotPrice"]))
    return newest


def live_price(offer: Offer, newest: Newest) -> LivePrice | None:
    """The price of the most expensive zone that may serve it, as of the last change in any of them: if that zone becomes cheaper
    than another, the other's price is new for the offer, although it has not changed for long. None without a known zone."""
    places = [
        told
        for (instance_type, zone), told in newest.items()
        if instance_type == offer.instance_type and offer.zone in ("", zone)
    ]
    if not places:
        return None
    return LivePrice(
        offer_id=offer.offer_id, per_hour=max(price for _, price in places), as_of=max(since for since, _ in places)
    )


def shape_of(told: Any) -> Shape:
    """The shape in one entry of the answer of `DescribeInstanceTypes`."""
    kinds = next(filter(None, ((told.get(info) or {}).get(devices) for info, devices in ACCELERATORS)), ())
    return Shape(
        instance_type=told["InstanceType"],
        vcpus=told["VCpuInfo"]["DefaultVCpus"],
        memory_gib=told["MemoryInfo"]["SizeInMiB"] / MIB_PER_GIB,
        accelerator=str(kinds[0].get("Name", "")) if kinds else "",
        # Of a fraction of a GPU (g6f) AWS counts none, and one logical GPU.
        accelerators=sum(int(kind.get("Count") or kind.get("LogicalGpuCount") or 0) for kind in kinds),
        # EC2 reports no maker of Neuron devices, which are all its own.
        manufacturer=str(kinds[0].get("Manufacturer") or ("AWS" if told.get("NeuronInfo") else "")) if kinds else "",
    )
