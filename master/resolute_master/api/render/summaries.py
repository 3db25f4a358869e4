"""What the reports of a trial come to: for each group and name the type, and for numbers their range and mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resolute_master.domain.json_text import number_out
from resolute_master.store.metric_chunks import NUMBER, Chunk, NameSummary, whole

_KEYS = {"training": "avg_metrics", "validation": "validation_metrics"}


def summaries(chunks: Mapping[str, Sequence[Chunk]]) -> dict[str, Any]:
    """Summaries of the metrics of each group, by name. `chunks` are in the order of the reports. A name whose type changes is a
    string."""
    return {
        _KEYS.get(group, group): {name: summary(one) for name, one in sorted(together.names.items())}
        for group, of_group in sorted(chunks.items())
        if (together := whole(of_group)) is not None
    }


def summary(one: NameSummary) -> dict[str, Any]:
    """A summary in the form of the contract. Numbers that JSON cannot express are strings."""
    if one.type != NUMBER:
        return {"type": one.type, "last": one.last}
    return {
        "type": one.type,
        "min": number_out(one.low),
        "max": number_out(one.high),
        "sum": number_out(one.total),
        "count": one.count,
        "last": one.last,
        "mean": number_out(one.total / one.count),
    }
