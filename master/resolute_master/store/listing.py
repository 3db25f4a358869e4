"""What the stores agree on about listings: names to sort by, pages, text that every database can hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import structs

from resolute.errors import InvalidInput
from resolute_master.domain.change import Decision
from resolute_master.domain.metrics import LogRecord

Flat = TypeVar("Flat", LogRecord, Decision)

EXPERIMENT_SORTS = (
    "id",
    "name",
    "description",
    "start_time",
    "end_time",
    "state",
    "progress",
    "user",
    "num_trials",
    "resource_pool",
    "project_id",
    "workspace_id",
    "forked_from",
    "checkpoint_count",
    "checkpoint_size",
    "searcher_metric_val",
)

TRIAL_SORTS = (
    "id",
    "start_time",
    "end_time",
    "state",
    "best_validation_metric",
    "latest_validation_metric",
    "batches_processed",
    "duration",
    "restarts",
    "checkpoint_size",
)


def check_sort(name: str, known: tuple[str, ...]) -> None:
    """Raises `InvalidInput` naming what can be sorted by."""
    if name not in known:
        raise InvalidInput(f"sort_by: '{name}' is not a column; use one of {', '.join(known)}")


def check_pattern(pattern: str) -> re.Pattern[str]:
    """The compiled regular expression. Raises `InvalidInput` when it is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidInput(
            f"text: '{pattern}' is not a regular expression ({error}); correct it or search for text"
        ) from error


def page_bounds(offset: int, limit: int | None, total: int) -> tuple[int, int]:
    """First row, and the row after the last one. A negative offset counts from the end; both stay within the rows."""
    first = min(max(offset + total if offset < 0 else offset, 0), total)
    return first, total if limit is None else min(first + max(limit, 0), total)


def storable_text(text: str) -> str:
    """The text without what some database refuses: NUL, and halves of surrogate pairs.

    One such line must not fail the batch that it came with.
    """
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def all_storable(columns: Iterable[Sequence[str]]) -> bool:
    """Whether `storable_text` would leave every one of these texts as it is: one look at all of them together."""
    together = "".join(chain.from_iterable(columns))
    return storable_text(together) is together


def storable(records: Sequence[Flat]) -> Sequence[Flat]:
    """Flat rows with `storable_text` applied to all their texts."""
    if all_storable([[each for each in structs.astuple(record) if isinstance(each, str)] for record in records]):
        return records
    return [_storable(record) for record in records]


def _storable(record: Flat) -> Flat:
    texts = {name: text for name, text in structs.asdict(record).items() if isinstance(text, str)}
    return structs.replace(record, **{name: storable_text(text) for name, text in texts.items()})


def sequence_conflict(sequence: int, last: int) -> str:
    """Why a commit is refused, for whoever reads the master's last words."""
    return (
        f"change {sequence} does not follow change {last}, the last one stored: another master has written to this "
        "store; only one may use it at a time"
    )


def snapshot_conflict(sequence: int, last: int) -> str:
    return f"a snapshot after change {sequence} cannot be kept: the last change stored is {last}"


def attempt_number(allocation: str) -> int:
    """Which attempt at its task an allocation is: the number after the last dot of its id, 0 when there is none."""
    suffix = allocation.rpartition(".")[2]
    return int(suffix) if suffix.isdecimal() else 0
