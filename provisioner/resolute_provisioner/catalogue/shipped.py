"""The catalogues that come with the distribution, each read from the files of its provider's package.

shapes.csv               machine types: instance_type, vcpus, memory_gib, accelerator, accelerators
prices.csv               on demand: instance_type, region, usd_per_hour
accelerator-prices.csv   of accelerators that are priced apart: accelerator, accelerators, region, usd_per_hour
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from resolute.providers import PROVIDERS
from resolute_provisioner.catalogue.shapes import Catalogue, Shape

SOURCE = "shipped table, date unknown"
"""The figures are from the public SkyPilot catalogue, which does not contain their date."""


@cache
def shipped(provider: str) -> Catalogue:
    """The types of a registered provider; an empty catalogue for one without tables."""
    shapes = _rows(provider, "shapes.csv")
    if not shapes:
        return Catalogue()
    prices, apart = _rows(provider, "prices.csv"), _rows(provider, "accelerator-prices.csv")
    return Catalogue(
        shapes={row["instance_type"]: _shape(row) for row in shapes},
        prices={(row["instance_type"], row["region"]): float(row["usd_per_hour"]) for row in prices},
        accelerator_prices={
            (row["accelerator"], int(row["accelerators"]), row["region"]): float(row["usd_per_hour"]) for row in apart
        },
        source=SOURCE,
    )


def _rows(provider: str, name: str) -> list[dict[str, str]]:
    try:
        with resources.files(PROVIDERS[provider].package).joinpath(name).open(encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except (FileNotFoundError, KeyError):
        return []


def _shape(row: dict[str, str]) -> Shape:
    return Shape(
        instance_type=row["instance_type"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]),
    )
