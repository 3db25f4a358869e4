"""How Amazon EC2 writes zones and types, and which types share a quota. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from resolute_provisioner.catalogue.regions import numbered
from resolute_provisioner.catalogue.shapes import Catalogue, Shape

_ZONE = re.compile(r"(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)(?P<rest>[a-z]|-[a-z0-9-]+)")
_FIRST_LETTERS = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")


@dataclass(frozen=True, slots=True)
class Quota:
    """A service quota of EC2 on vCPUs, and its codes by the market."""

    name: str
    on_demand: str
    spot: str

    def code(self, *, spot: bool) -> str:
        return self.spot if spot else self.on_demand


STANDARD = Quota("Standard (A, C, D, H, I, M, R, T, Z)", "L-1216C47A", "L-34B43A08")
P5_AND_LATER = Quota("P5 and later", "L-417A185B", "L-C4BD4855")
"""Quota of the newer types, which count separately on the spot market only."""
_G_AND_VT = Quota("G and VT", "L-DB2E81BA", "L-3819A6DF")
QUOTAS = {
    "p": Quota("P", "L-417A185B", "L-7212CCBC"),
    "g": _G_AND_VT,
    "gr": _G_AND_VT,
    "vt": _G_AND_VT,
    "trn": Quota("Trn", "L-2C3B7624", "L-6B0D517C"),
    "inf": Quota("Inf", "L-1945791B", "L-B5D1601B"),
    "dl": Quota("DL", "L-6E869C2A", "L-85EED4F7"),
    "f": Quota("F", "L-74FC7D96", "L-88CF9481"),
    "x": Quota("X", "L-7295265B", "L-E3A00192"),
}
"""Quotas of the types of these families; all others count under `STANDARD`."""


REGIONS = numbered(
    {
        "af-south": "1",
        "ap-east": "1 2",
        "ap-northeast": "1 2 3",
        "ap-south": "1 2",
        "ap-southeast": "1 2 3 4 5 6 7",
        "ca-central": "1",
        "ca-west": "1",
        "cn-north": "1",
        "cn-northwest": "1",
        "eu-central": "1 2",
        "eu-north": "1",
        "eu-south": "1 2",
        "eu-west": "1 2 3",
        "eusc-de-east": "1",
        "il-central": "1",
        "me-central": "1",
        "me-south": "1",
        "mx-central": "1",
        "sa-east": "1",
        "us-east": "1 2",
        "us-gov-east": "1",
        "us-gov-west": "1",
        "us-west": "1 2",
    },
    "-",
)
"""Regions at the time of this version, only to detect mistakes: a cloud opens a new one now and then."""


def region_of(zone: str) -> str | None:
    """`us-east-1a` is in us-east-1, and so is the local zone `us-east-1-atl-2a`; None for what is no zone's name."""
    found = _ZONE.fullmatch(zone)
    return found["region"] if found else None


def is_local_zone(zone: str) -> bool:
    """Whether the zone is a local one, whose prices may differ from those of its region."""
    found = _ZONE.fullmatch(zone)
    return found is not None and len(found["rest"]) > 1


def quota(instance_type: str, *, spot: bool) -> Quota:
    """The quota of the account under which a type is counted."""
    found = _FIRST_LETTERS.match(instance_type)
    letters = found["letters"] if found else ""
    if spot and letters == "p" and found is not None and int(found["generation"] or 0) >= 5:
        return P5_AND_LATER
    return QUOTAS.get(letters, STANDARD)


class Rules:
    """Implements `TypeRules`."""

    cloud = "aws"

    def region_of(self, zone: str) -> str | None:
        return region_of(zone)

    def has_list_price(self, zone: str) -> bool:
        return not is_local_zone(zone)

    def quota_of(self, shape: Shape, *, spot: bool) -> str:
        return quota(shape.instance_type, spot=spot).name

    def shape_of(self, catalogue: Catalogue, instance_type: str) -> Shape | None:
        return catalogue.shapes.get(instance_type)

    def takes_accelerators(self, instance_type: str) -> bool:
        return False


RULES = Rules()
