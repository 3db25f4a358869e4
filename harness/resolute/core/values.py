"""User values as JSON of the contract: times, non-finite numbers, numbers of array libraries."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from resolute.errors import InvalidInput

logger = logging.getLogger("resolute.core")


def rfc3339(moment: datetime) -> str:
    """UTC with microseconds and `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """An aware UTC datetime of an RFC 3339 text; more than microseconds are cut."""
    head, dot, rest = text.replace("Z", "+00:00").partition(".")
    if dot:
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        head, rest = f"{head}.{digits[:6].ljust(6, '0')}", rest[len(digits) :]
    moment = datetime.fromisoformat(head + rest)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(UTC)


def encodable(value: Any, key: str = "value") -> Any:
    """`value` with everything JSON cannot carry replaced by what the contract writes.

    Non-finite floats become "NaN", "Infinity" and "-Infinity"; scalars of NumPy and torch become numbers; arrays
    become lists. Raises `InvalidInput` naming the key of a value that has no such form.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _finite_or_name(value)
    if isinstance(value, Mapping):
        return {str(name): encodable(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable(item, f"{key}[{index}]") for index, item in enumerate(value)]
    tolist = getattr(value, "tolist", None)  # NumPy and torch, scalars and arrays alike, without importing either
    if callable(tolist):
        return encodable(tolist(), key)
    raise InvalidInput(
        f"{key} is a {type(value).__name__}, which cannot be sent to the master; "
        "convert it to numbers, texts, lists or objects"
    )


def _finite_or_name(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def encodable_metrics(group: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of one report. Bytes are left out with a warning: they are of no use in a metric."""
    kept: dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"metric names are non-empty texts, not {name!r}")
        if isinstance(value, (bytes, bytearray)):
            logger.warning("metric %r of group %r is bytes and is left out", name, group)
            continue
        if value is None:
            raise InvalidInput(f"metric {name!r} of group {group!r} is None; report a number or omit it")
        kept[name] = encodable(value, name)
    return kept
