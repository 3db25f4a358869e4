"""Machines of Amazon EC2."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from resolute.config.base import ConfigModel, Count, Flag, NonEmptyText, Text, broken_at, broken_rule
from resolute.config.durations import Duration
from resolute.config.providers.common import (
    MIN_DISK_GB,
    CloudOffer,
    CloudProvider,
    Problems,
    price_text,
    prices_of_no_type,
    set_beside_offers,
)

PRICE_REFRESH_S = 300.0
"""Spot prices change a few times a day; an older price than this is seldom wrong, and each pool queries once."""


ZONE = r"[a-z]{2,}(?:-[a-z]+)+-[0-9]+(?:[a-z]|-[a-z0-9-]+)"
"""A region and a letter, or a local zone of it such as us-east-1-atl-2a."""


def _image(text: str | None) -> str | None:
    if text and not re.fullmatch(r"ami-[0-9a-f]+|resolve:ssm:.+", text):
        raise broken_rule("must be the id of a machine image, such as ami-0123456789abcdef0, not its name")
    return text


def _profile(text: str | None) -> str | None:
    if text and not re.fullmatch(r"arn:aws[a-z-]*:iam::[0-9]{12}:instance-profile/\S+", text):
        raise broken_rule(
            "must be the ARN of an instance profile, such as arn:aws:iam::111122223333:instance-profile/NAME"
        )
    return text


def _security_group(text: str | None) -> str | None:
    if text and not re.fullmatch(r"sg-[0-9a-f]+", text):
        raise broken_rule("must be the id of a security group, such as sg-0123456789abcdef0, not its name")
    return text


class AwsTag(ConfigModel):
    """One more tag of the machines."""

    key: NonEmptyText
    """Its key."""
    value: Text
    """Its value."""


class AwsNetworkInterface(ConfigModel):
    """Network of the machines."""

    public_ip: Flag = True
    """Give each a public address."""
    subnet_id: Text | None = None
    """Subnet, and with it the zone."""
    security_group_id: Annotated[Text | None, AfterValidator(_security_group)] = None
    """Security group."""
    subnets: dict[str, NonEmptyText] = Field(default_factory=dict)
    """Subnets by zone, for machines in several zones; instead of subnet_id."""
    security_group_ids: tuple[Annotated[NonEmptyText, AfterValidator(_security_group)], ...] = ()
    """Several security groups; instead of security_group_id."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        found: Problems = []
        if self.subnet_id and self.subnets:
            found.append((("subnet_id",), "is given beside subnets; put it there and remove it here", self.subnet_id))
        if self.security_group_id and self.security_group_ids:
            text = "is given beside security_group_ids; put it there and remove it here"
            found.append((("security_group_id",), text, self.security_group_id))
        if found:
            raise broken_at(*found)
        return self


def _region(name: str) -> str:
    zone = re.fullmatch(r"([a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]", name)
    if zone is not None:
        raise broken_rule(f"is a zone; write its region {zone[1]} here, and zones in network_interface.subnets")
    return name


def _refresh(value: object) -> object:
    return {True: PRICE_REFRESH_S, False: 0.0}[value] if isinstance(value, bool) else value


class AwsProvider(CloudProvider):
    """Machines of Amazon EC2."""

    type: Literal["aws"] = "aws"
    """Tag of the provider."""
    region: Annotated[Text, AfterValidator(_region)] | None = None
    """Region; null means the master's own, or AWS_DEFAULT_REGION."""
    image_id: Annotated[Text | None, AfterValidator(_image)] = None
    """Machine image; mandatory, because no image is released."""
    instance_type: NonEmptyText = "g4dn.metal"
    """Kind of machine."""
    instance_slots: Count | None = None
    """Slots of it, where the type is not known."""
    cpu_slots_allowed: Flag = False
    """A machine without GPUs has one slot."""
    root_volume_size: Annotated[Count, Field(ge=MIN_DISK_GB)] = 200
    """Disk in GB."""
    ssh_key_name: NonEmptyText
    """Key pair for logins."""
    iam_instance_profile_arn: Annotated[Text | None, AfterValidator(_profile)] = None
    """Role of the machines."""
    network_interface: AwsNetworkInterface = AwsNetworkInterface()
    """Network."""
    tag_key: NonEmptyText = "managed_by"
    """Key of a tag for the owner of the machines; the master finds machines by another tag."""
    tag_value: Text | None = None
    """Its value; null means the master's own instance id."""
    instance_name: NonEmptyText = "determined-ai-agent"
    """Name tag."""
    custom_tags: tuple[AwsTag, ...] = ()
    """More tags."""
    log_group: Text | None = None
    """CloudWatch group for the output of the agent's container; needs `agent_docker_image`."""
    log_stream: Text | None = None
    """CloudWatch stream of it; needs `log_group`."""
    spot: Flag = False
    """Use spot machines."""
    spot_max_price: Annotated[Text | None, BeforeValidator(price_text)] = None
    """Highest price of a spot machine's hour; null means the on-demand price."""
    offers: tuple[CloudOffer, ...] = ()
    """What may be bought, instead of one instance_type on one market."""
    price_refresh: Annotated[Duration, BeforeValidator(_refresh)] = PRICE_REFRESH_S
    """Interval of fetching spot prices from the cloud; false disables it, true means five minutes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found: Problems = []
        if self.offers:
            single = ("instance_type", "instance_slots", "spot", "spot_max_price")
            found += set_beside_offers(self, single)
        types = [type_ for offer in self.offers for type_ in offer.instance_types] or [self.instance_type]
        found += prices_of_no_type(self.prices, types)
        found += self._wrong_tags()
        if self.log_stream and not self.log_group:
            text = "is a stream of no group; name the group in log_group, or remove it"
            found.append((("log_stream",), text, self.log_stream))
        for index, offer in enumerate(self.offers):
            found += [(("offers", index, *path), text, value) for path, text, value in self._wrong_zones(offer)]
        for zone in (zone for zone in self.network_interface.subnets if not self._is_here(zone)):
            found.append((("network_interface", "subnets", zone), self._no_zone(), zone))
        if found:
            raise broken_at(*found)
        return self

    def _wrong_tags(self) -> Problems:
        found: Problems = []
        keys = [tag.key for tag in self.custom_tags]
        for place, key in enumerate(keys):
            path = ("custom_tags", place, "key")
            if key in keys[:place]:
                found.append((path, "occurs twice; remove one", key))
            elif key == self.tag_key:
                found.append((path, "is the tag_key of the pool; set tag_value in its place", key))
            elif key.startswith("resolute:"):
                found.append((path, "is the master's own; choose another key", key))
        return found

    def _is_here(self, zone: str) -> bool:
        if self.region is None:
            return re.fullmatch(ZONE, zone) is not None
        return zone.startswith(self.region) and zone != self.region

    def _no_zone(self) -> str:
        if self.region is None:
            return "is no zone; name zones such as us-east-1a, each a region and a letter"
        return f"is no zone of the region {self.region}; name zones such as {self.region}a"

    def _wrong_zones(self, offer: CloudOffer) -> Problems:
        network = self.network_interface
        found: Problems = []
        for place, zone in enumerate(offer.zones or ()):
            if not self._is_here(zone):
                found.append((("zones", place), self._no_zone(), zone))
            elif network.subnets and zone not in network.subnets:
                text = f"has no subnet; add one to network_interface.subnets, which has {', '.join(network.subnets)}"
                found.append((("zones", place), text, zone))
        if network.subnet_id and len(offer.zones or ()) > 1:
            text = "are several, and network_interface.subnet_id is in one of them; name subnets by zone in its place"
            found.append((("zones",), text, list(offer.zones or ())))
        if offer.reservation is not None and offer.zones is None and len(network.subnets) != 1:
            found.append((("zones",), "must name the zone of the reservation", None))
        return found


CONFIGURATION = AwsProvider
