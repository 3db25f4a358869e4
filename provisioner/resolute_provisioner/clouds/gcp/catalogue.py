"""How Google Compute Engine writes zones and machine types, and what can be attached to which. Pure."""

from __future__ import annotations

import re

from resolute_provisioner.catalogue.regions import numbered
from resolute_provisioner.catalogue.shapes import Catalogue, Shape

_ZONE = re.compile(r"(?P<region>[a-z]+(?:-[a-z]+)+\d+)-[a-z]")
_PREDEFINED = re.compile(r"(?P<family>[a-z]\d+[a-z]?)-(?P<kind>[a-z]+)-(?P<vcpus>\d+)(?:-[a-z]+)?")
_CUSTOM = re.compile(r"(?:(?P<family>[a-z]\d+[a-z]?)-)?custom-(?P<vcpus>\d+)-(?P<memory_mib>\d+)(?:-ext)?")

KINDS = frozenset({"standard", "highmem", "highcpu", "ultramem", "megamem", "hypermem", "highlssd", "standardlssd"})
CUSTOM_FAMILIES = frozenset({"n1", "n2", "n2d", "n4", "e2"})

GIB_PER_VCPU = {
    ("n1", "standard"): 3.75,
    ("n1", "highmem"): 6.5,
    ("n1", "highcpu"): 0.9,
    ("n2", "standard"): 4.0,
    ("n2", "highmem"): 8.0,
    ("n2", "highcpu"): 1.0,
    ("n2d", "standard"): 4.0,
    ("n2d", "highmem"): 8.0,
    ("n2d", "highcpu"): 1.0,
    ("e2", "standard"): 4.0,
    ("e2", "highmem"): 8.0,
    ("e2", "highcpu"): 1.0,
    ("c2", "standard"): 4.0,
    ("c2d", "standard"): 4.0,
    ("c2d", "highmem"): 8.0,
    ("c2d", "highcpu"): 2.0,
    ("c3", "standard"): 4.0,
    ("c3", "highmem"): 8.0,
    ("c3", "highcpu"): 2.0,
}
"""The memory that the name of a machine type contains; empty for others."""

ATTACHABLE = frozenset({"nvidia-tesla-t4", "nvidia-tesla-p100", "nvidia-tesla-p4", "nvidia-tesla-v100"})
"""Accelerators that are added to an n1 machine. All others are built into the machine types that have them."""


REGIONS = numbered(
    {
        "africa-south": "1",
        "asia-east": "1 2",
        "asia-northeast": "1 2 3",
        "asia-south": "1 2",
        "asia-southeast": "1 2 3",
        "australia-southeast": "1 2",
        "europe-central": "2",
        "europe-north": "1 2",
        "europe-southwest": "1",
        "europe-west": "1 2 3 4 6 8 9 10 12",
        "me-central": "1 2",
        "me-west": "1",
        "northamerica-northeast": "1 2",
        "northamerica-south": "1",
        "southamerica-east": "1",
        "southamerica-west": "1",
        "us-central": "1",
        "us-east": "1 4 5",
        "us-south": "1",
        "us-west": "1 2 3 4",
    },
    "",
)
"""Regions at the time of this version, only to detect mistakes: a cloud opens a new one now and then."""


def region_of(zone: str) -> str | None:
    """`us-central1-a` is in us-central1; None for what is no zone's name."""
    found = _ZONE.fullmatch(zone)
    return found["region"] if found else None


def takes_accelerators(machine_type: str) -> bool:
    """Whether accelerators may be attached to it."""
    return machine_type.startswith(("n1-", "custom-"))


def machine_family(machine_type: str) -> str:
    """`n2` of `n2-standard-4`; machine types of one family share the quota on their CPUs."""
    return "n1" if machine_type.startswith("custom-") else machine_type.partition("-")[0]


def shape_of(catalogue: Catalogue, machine_type: str) -> Shape | None:
    """The shape of a type that is in the catalogue, or whose name defines it; None for an unknown type."""
    known = catalogue.shapes.get(machine_type)
    if known is not None:
        return known
    custom = _CUSTOM.fullmatch(machine_type)
    if custom is not None and (custom["family"] or "n1") in CUSTOM_FAMILIES:
        memory = int(custom["memory_mib"]) / 1024
        return Shape(instance_type=machine_type, vcpus=int(custom["vcpus"]), memory_gib=memory)
    found = _PREDEFINED.fullmatch(machine_type)
    if (
        found is None or found["kind"] not in KINDS or found["family"][0] in "ag"
    ):  # those have accelerators, how many is unknown
        return None
    vcpus, ratio = int(found["vcpus"]), GIB_PER_VCPU.get((found["family"], found["kind"]))
    return Shape(instance_type=machine_type, vcpus=vcpus, memory_gib=None if ratio is None else vcpus * ratio)


class Rules:
    """Implements `TypeRules`."""

    cloud = "gcp"

    def region_of(self, zone: str) -> str | None:
        return region_of(zone)

    def has_list_price(self, zone: str) -> bool:
        return True

    def quota_of(self, shape: Shape, *, spot: bool) -> str:
        return shape.accelerator or f"{machine_family(shape.instance_type)} CPUs"

    def shape_of(self, catalogue: Catalogue, instance_type: str) -> Shape | None:
        return shape_of(catalogue, instance_type)

    def takes_accelerators(self, instance_type: str) -> bool:
        return takes_accelerators(instance_type)


RULES = Rules()
