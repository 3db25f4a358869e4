"""The slot type of an accelerator. Pure."""

from __future__ import annotations

MANUFACTURERS = {"Trainium": "AWS", "Inferentia": "AWS", "Gaudi": "Habana", "Radeon": "AMD"}
"""By the prefixes of names of accelerators, where no cloud reports the vendor: the others of the shipped tables are NVIDIA's."""

SLOT_TYPES = {"NVIDIA": "cuda", "AMD": "rocm"}
"""By the manufacturer of the accelerators. The agent cannot enumerate those of others: their slots are counted, and a task finds
its devices itself."""


def slot_type(accelerator: str, manufacturer: str = "") -> str:
    """The slot type of machines with these accelerators, as in `Offer.slot_type`."""
    if not manufacturer:
        by_name = (maker for name, maker in MANUFACTURERS.items() if accelerator.startswith(name))
        manufacturer = next(by_name, "NVIDIA")
    return SLOT_TYPES.get(manufacturer, "artificial")
