"""Names of regions that are a place and a number. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def numbered(places: Mapping[str, str], join: str) -> frozenset[str]:
    """Names of regions from places and numbers: `{"us-east": "1 2"}` joined by `-` gives us-east-1 and us-east-2."""
    return frozenset(f"{place}{join}{number}" for place, numbers in places.items() for number in numbers.split())
