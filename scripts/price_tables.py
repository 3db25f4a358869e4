"""Write the shipped tables of machine shapes and on-demand prices: `python scripts/price_tables.py <folder of the sources>`.

The sources are `prices-aws.csv`, `prices-gcp.csv` and `prices-gcp-accelerators.csv`: rows of type, vcpus, memory_gib,
accelerator, accelerator_count, region, zone, price_usd_h (and a spot price, which is not taken: it would be old before it
was read), made from the public catalogue github.com/skypilot-org/skypilot-catalog. Prices that cannot be right are left out,
so that they count as unknown. Types that are known by their makers' pages alone are added with no price.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "provisioner" / "resolute_provisioner" / "clouds"

Row = tuple[str, ...]

IMPLAUSIBLE = {
    ("A100", "europe-west4"),
    ("A100", "asia-southeast1"),
    ("A100-80GB", "us-central1"),
    ("A100-80GB", "europe-west4"),
    ("H100", "us-central1"),
    ("H100", "us-west1"),
    ("H100", "asia-southeast1"),
    ("H100-MEGA", "asia-southeast1"),
    ("H200", "europe-west4"),
    ("B200", "asia-southeast1"),
}
"""Below their own spot price, or far below every other region: perhaps a discount of one customer."""

GCP_WORDS = {
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-a100-80gb",
    "B200": "nvidia-b200",
    "H100": "nvidia-h100-80gb",
    "H100-MEGA": "nvidia-h100-mega-80gb",
    "H200": "nvidia-h200-141gb",
    "L4": "nvidia-l4",
    "P100": "nvidia-tesla-p100",
    "T4": "nvidia-tesla-t4",
    "V100": "nvidia-tesla-v100",
}

GCP_BUILT_IN = {
    "a2-highgpu": "nvidia-tesla-a100",
    "a2-megagpu": "nvidia-tesla-a100",
    "a2-ultragpu": "nvidia-a100-80gb",
    "a3-edgegpu": "nvidia-h100-80gb",
    "a3-highgpu": "nvidia-h100-80gb",
    "a3-megagpu": "nvidia-h100-mega-80gb",
    "a3-ultragpu": "nvidia-h200-141gb",
    "a4-highgpu": "nvidia-b200",
}
"""The count is in the name: `a2-highgpu-4g` has 4."""

G2_COUNTS = {4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8}
"""L4s of `g2-standard-<vCPUs>`."""

SIZES = {"nano": 0.125, "micro": 0.25, "small": 0.5, "medium": 1, "large": 2, "xlarge": 4}
"""vCPUs of a size of most AWS families; `<n>xlarge` has 4 n."""

CPU_FAMILIES: Sequence[tuple[str, float, str]] = (
    ("c4", 1.875, "large xlarge 2xlarge 4xlarge"),
    ("c5", 2, "large xlarge 2xlarge 4xlarge 9xlarge 12xlarge 18xlarge 24xlarge"),
    ("c5d", 2, "large xlarge 2xlarge 4xlarge 9xlarge 12xlarge 18xlarge 24xlarge"),
    ("c5n", 2.625, "large xlarge 2xlarge 4xlarge"),
    ("m4", 4, "large xlarge 2xlarge 4xlarge 10xlarge 16xlarge"),
    ("m5", 4, "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"),
    ("m5d", 4, "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"),
    ("m5dn", 4, "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"),
    ("m5n", 4, "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"),
    ("m5zn", 4, "large xlarge 2xlarge 3xlarge 6xlarge 12xlarge"),
    ("m6i", 4, "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge"),
)
"""Family, GiB a vCPU, sizes that keep to that ratio."""

IRREGULAR: Sequence[Row] = (
    ("c4.8xlarge", "36", "60", "", "0"),
    ("c5.metal", "96", "192", "", "0"),
    ("c5d.metal", "96", "192", "", "0"),
    ("c5n.9xlarge", "36", "96", "", "0"),
    ("c5n.18xlarge", "72", "192", "", "0"),
    ("c5n.metal", "72", "192", "", "0"),
    ("g3s.xlarge", "4", "30.5", "M60", "1"),
    ("g3.4xlarge", "16", "122", "M60", "1"),
    ("g3.8xlarge", "32", "244", "M60", "2"),
    ("g3.16xlarge", "64", "488", "M60", "4"),
    ("m5.metal", "96", "384", "", "0"),
    ("m5d.metal", "96", "384", "", "0"),
    ("m5dn.metal", "96", "384", "", "0"),
    ("m5n.metal", "96", "384", "", "0"),
    ("m5zn.metal", "48", "192", "", "0"),
    ("m6i.metal", "128", "512", "", "0"),
    ("p2.xlarge", "4", "61", "K80", "1"),
    ("p2.8xlarge", "32", "488", "K80", "8"),
    ("p2.16xlarge", "64", "732", "K80", "16"),
    ("t2.medium", "2", "4", "", "0"),
    ("t2.large", "2", "8", "", "0"),
    ("t2.xlarge", "4", "16", "", "0"),
    ("t2.2xlarge", "8", "32", "", "0"),
    ("t3.nano", "2", "0.5", "", "0"),
    ("t3.micro", "2", "1", "", "0"),
    ("t3.small", "2", "2", "", "0"),
    ("t3.medium", "2", "4", "", "0"),
    ("t3.large", "2", "8", "", "0"),
    ("t3.xlarge", "4", "16", "", "0"),
    ("t3.2xlarge", "8", "32", "", "0"),
)
"""Types that no source row has and no ratio gives."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    sources = Path(arguments[0])
    aws, hosts, accelerators = (
        _rows(sources / name) for name in ("prices-aws.csv", "prices-gcp.csv", "prices-gcp-accelerators.csv")
    )
    shape = ("instance_type", "vcpus", "memory_gib", "accelerator", "accelerators")
    _write("aws/shapes.csv", shape, _aws_shapes(aws))
    _write("aws/prices.csv", ("instance_type", "region", "usd_per_hour"), _prices(aws))
    _write("gcp/shapes.csv", shape, _gcp_shapes(hosts))
    _write("gcp/prices.csv", ("instance_type", "region", "usd_per_hour"), _prices(hosts))
    columns = ("accelerator", "accelerators", "region", "usd_per_hour")
    _write("gcp/accelerator-prices.csv", columns, _accelerator_prices(accelerators))
    return 0


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


WITHOUT_PRICE: Sequence[Row] = (
    ("dl1.24xlarge", "96", "768", "Gaudi", "8"),
    ("g4ad.xlarge", "4", "16", "Radeon Pro V520", "1"),
    ("g4ad.2xlarge", "8", "32", "Radeon Pro V520", "1"),
    ("g4ad.4xlarge", "16", "64", "Radeon Pro V520", "1"),
    ("g4ad.8xlarge", "32", "128", "Radeon Pro V520", "2"),
    ("g4ad.16xlarge", "64", "256", "Radeon Pro V520", "4"),
    ("g5g.xlarge", "4", "8", "T4g", "1"),
    ("g5g.2xlarge", "8", "16", "T4g", "1"),
    ("g5g.4xlarge", "16", "32", "T4g", "1"),
    ("g5g.8xlarge", "32", "64", "T4g", "1"),
    ("g5g.16xlarge", "64", "128", "T4g", "2"),
    ("g5g.metal", "64", "128", "T4g", "2"),
    ("g6f.large", "2", "8", "L4", "1"),
    ("g6f.xlarge", "4", "16", "L4", "1"),
    ("g6f.2xlarge", "8", "32", "L4", "1"),
    ("g6f.4xlarge", "16", "64", "L4", "1"),
    ("gr6f.4xlarge", "16", "128", "L4", "1"),
    ("inf1.xlarge", "4", "8", "Inferentia", "1"),
    ("inf1.2xlarge", "8", "16", "Inferentia", "1"),
    ("inf1.6xlarge", "24", "48", "Inferentia", "4"),
    ("inf1.24xlarge", "96", "192", "Inferentia", "16"),
    ("inf2.xlarge", "4", "16", "Inferentia2", "1"),
    ("inf2.8xlarge", "32", "128", "Inferentia2", "1"),
    ("inf2.24xlarge", "96", "384", "Inferentia2", "6"),
    ("inf2.48xlarge", "192", "768", "Inferentia2", "12"),
    ("trn2.3xlarge", "12", "128", "Trainium2", "1"),
)
"""Machines with accelerators of which the source has no price; what they are is in AWS's pages of instance types."""


def _aws_shapes(rows: Iterable[dict[str, str]]) -> Iterator[Row]:
    for family, ratio, sizes in CPU_FAMILIES:
        for size in sizes.split():
            count = size.removesuffix("xlarge")
            vcpus = 4 * int(count) if count.isdigit() else SIZES[size]
            yield (f"{family}.{size}", f"{vcpus:g}", f"{vcpus * ratio:g}", "", "0")
    yield from IRREGULAR
    yield from WITHOUT_PRICE
    for row in rows:
        yield (
            row["instance_type"],
            row["vcpus"],
            row["memory_gib"],
            row["accelerator"],
            row["accelerator_count"] or "0",
        )


def _gcp_shapes(rows: Iterable[dict[str, str]]) -> Iterator[Row]:
    for row in rows:
        family, kind, size, *_ = row["instance_type"].split("-")
        name, count = "", 0
        if family == "g2":
            name, count = GCP_WORDS["L4"], G2_COUNTS[int(size)]
        elif f"{family}-{kind}" in GCP_BUILT_IN:
            name, count = GCP_BUILT_IN[f"{family}-{kind}"], int(size.removesuffix("g"))
        yield (row["instance_type"], row["vcpus"], row["memory_gib"], name, str(count))


def _prices(rows: Iterable[dict[str, str]]) -> Iterator[Row]:
    return (
        (row["instance_type"], row["region"], f"{float(row['price_usd_h']):.10g}") for row in rows if row["price_usd_h"]
    )


def _accelerator_prices(rows: Iterable[dict[str, str]]) -> Iterator[Row]:
    for row in rows:
        name, region, price = row["accelerator"], row["region"], row["price_usd_h"]
        if price and (name, region) not in IMPLAUSIBLE:
            yield (GCP_WORDS[name], row["accelerator_count"], region, f"{float(price):.10g}")


def _write(name: str, columns: Row, rows: Iterable[Row]) -> None:
    """Each row once, sorted; two that disagree (a zone more expensive than its region) are an error of the sources."""
    kept = sorted(set(rows))
    keys = [row[:-1] for row in kept] if columns[-1] == "usd_per_hour" else [row[:1] for row in kept]
    doubled = sorted({key for key in keys if keys.count(key) > 1})
    if doubled:
        raise SystemExit(f"{name}: the sources contradict each other about {doubled}")
    with (TARGET / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
