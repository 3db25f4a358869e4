"""What the reports of a trial come to: for each group and name the type, and for numbers their range and mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from resolute_master.domain.metrics import MetricReport

_KEYS = {"training": "avg_metrics", "validation": "validation_metrics"}
_SPECIAL = {"nan", "infinity", "-infinity"}
_TIME = re.compile(r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")


def summaries(reports: Iterable[MetricReport]) -> dict[str, Any]:
    """Over unarchived reports in the order of their steps. A name whose type changes becomes a string."""
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for report in reports:
        if report.archived:
            continue
        group = groups.setdefault(_KEYS.get(report.group, report.group), {})
        for name, summary in group.items():
            if name not in report.metrics:
                summary["last"] = None
        for name in sorted(report.metrics):
            group[name] = _with(group.get(name), report.metrics[name])
    for group in groups.values():
        for summary in group.values():
            if summary["type"] == "number" and summary["count"]:
                summary["mean"] = summary["sum"] / summary["count"]
    return groups


def _with(before: Mapping[str, Any] | None, value: Any) -> dict[str, Any]:
    kind = _type_of(value)
    if before is not None and before["type"] != kind:
        return {"type": "string", "last": value}
    if kind != "number" or (before is not None and "count" not in before):
        return {"type": kind, "last": value}
    number = float(value)
    low, high, total, count = number, number, number, 1
    if before is not None:
        low, high = min(before["min"], number), max(before["max"], number)
        total, count = before["sum"] + number, before["count"] + 1
    return {"type": "number", "min": low, "max": high, "sum": total, "count": count, "last": value}


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        if value.lower() in _SPECIAL:
            return "number"
        return "date" if _TIME.match(value) else "string"
    return "array" if isinstance(value, list | tuple) else "object"
