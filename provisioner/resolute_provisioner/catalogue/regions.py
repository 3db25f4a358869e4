"""The clouds' regions when this version was made. For people's mistakes only: a cloud opens a new one now and then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def _numbered(places: Mapping[str, str], join: str) -> frozenset[str]:
    return frozenset(f"{place}{join}{number}" for place, numbers in places.items() for number in numbers.split())


AWS_REGIONS = _numbered(
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

GCP_REGIONS = _numbered(
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

REGIONS: Mapping[str, frozenset[str]] = {"aws": AWS_REGIONS, "gcp": GCP_REGIONS}


def unknown(cloud: str, regions: Iterable[str]) -> tuple[str, ...]:
    """Those that are in no list, in order."""
    return tuple(sorted(set(regions) - REGIONS[cloud]))
