"""How Amazon EC2 writes zones and types, and which types share a quota. Pure."""

from __future__ import annotations

import re

_ZONE = re.compile(r"(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d+)(?P<rest>[a-z]|-[a-z0-9-]+)")
_FIRST_LETTERS = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d*)")

QUOTAS = {
    "p": "P",
    "g": "G and VT",
    "gr": "G and VT",
    "vt": "G and VT",
    "trn": "Trn",
    "inf": "Inf",
    "dl": "DL",
    "f": "F",
}
"""What the types of these families are counted under, by the account's service quotas on vCPUs."""

STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"

MANUFACTURERS = {"Trainium": "AWS", "Inferentia": "AWS", "Gaudi": "Habana", "Radeon": "AMD"}
"""By the beginnings of names of accelerators, where nobody tells: the others of the shipped table are NVIDIA's."""

SLOT_TYPES = {"NVIDIA": "cuda", "AMD": "rocm"}
"""By the manufacturer of the accelerators. The agent cannot enumerate those of others: their slots are counted, and a task finds
its devices itself."""


def region_of(zone: str) -> str | None:
    """`us-east-1a` is in us-east-1, and so is the local zone `us-east-1-atl-2a`; None for what is no zone's name."""
    found = _ZONE.fullmatch(zone)
    return found["region"] if found else None


def is_local_zone(zone: str) -> bool:
    """Its prices may differ from those of its region."""
    found = _ZONE.fullmatch(zone)
    return found is not None and len(found["rest"]) > 1


def quota(instance_type: str, *, spot: bool) -> str:
    """The quota of the account under which a type is counted."""
    found = _FIRST_LETTERS.match(instance_type)
    letters = found["letters"] if found else ""
    if spot and letters == "p" and found is not None and int(found["generation"] or 0) >= 5:
        return "P5 and later"  # counted apart from the older ones on the spot market only
    return QUOTAS.get(letters, STANDARD)


def slot_type(accelerator: str, manufacturer: str = "") -> str:
    """Of machines with these accelerators, as in `Offer.slot_type`."""
    if not manufacturer:
        by_name = (maker for name, maker in MANUFACTURERS.items() if accelerator.startswith(name))
        manufacturer = next(by_name, "NVIDIA")
    return SLOT_TYPES.get(manufacturer, "artificial")
