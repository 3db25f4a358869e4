"""The catalogues that come with the distribution, read from its own files."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

from resolute_provisioner.catalogue.shapes import Catalogue, Shape

SOURCE = "shipped table, date unknown"
"""The figures are from the public SkyPilot catalogue, which says nothing of their day."""


@cache
def shipped(cloud: str) -> Catalogue:
    """The types of `aws` or `gcp`; of another cloud nothing is known."""
    if cloud not in ("aws", "gcp"):
        return Catalogue()
    apart = _rows("gcp-accelerator-prices.csv") if cloud == "gcp" else []
    return Catalogue(
        shapes={row["instance_type"]: _shape(row) for row in _rows(f"{cloud}-shapes.csv")},
        prices={
            (row["instance_type"], row["region"]): float(row["usd_per_hour"]) for row in _rows(f"{cloud}-prices.csv")
        },
        accelerator_prices={
            (row["accelerator"], int(row["accelerators"]), row["region"]): float(row["usd_per_hour"]) for row in apart
        },
        source=SOURCE,
    )


def _rows(name: str) -> list[dict[str, str]]:
    with resources.files("resolute_provisioner.catalogue").joinpath(name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _shape(row: dict[str, str]) -> Shape:
    return Shape(
        instance_type=row["instance_type"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]),
    )
