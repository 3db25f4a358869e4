"""Properties of log lines that all stores share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from resolute_master.store.base import LOG_FIELDS, LogFields


def fields_of(rows: Iterable[tuple[Any, ...]]) -> LogFields:
    """The distinct values of each field. Rows have the values of `LOG_FIELDS` and the number of the last line with these values;
    empty values are left out."""
    columns = list(zip(*rows, strict=True))
    if not columns:
        return LogFields()
    *values, numbers = columns
    told = {
        name: tuple(sorted({value for value in column if value not in (None, "")}))
        for name, column in zip(LOG_FIELDS, values, strict=True)
    }
    return LogFields(last_id=max(numbers), **told)
