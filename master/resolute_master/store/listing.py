"""What the stores agree on about listings: names to sort by, pages, text that every database can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from msgspec import structs

from resolute.config.patterns import compiled
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

SEARCH_S = 10.0
"""Time for a search of one page of a log by a regular expression: it occupies one of few readers."""

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


def searcher(pattern: str) -> Callable[[str], bool]:
    """Whether the regular expression, as RE2 reads it, is found in a line, whose line end does not count.

    Raises `InvalidInput` when it is none.
    """
    try:
        expression = compiled(pattern)
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f"searchText: '{storable_text(pattern)[:80]}' is not a regular expression that RE2 takes ({error}); "
            "correct it, or search for text"
        ) from None
    return lambda text: expression.search(text.removesuffix("\n").encode(errors="replace")) is not None


def search_takes_long(pattern: str) -> InvalidInput:
    """The error of a search that was cancelled."""
    return InvalidInput(
        f"searchText: the search for '{storable_text(pattern)[:80]}' takes more than {SEARCH_S:g} s; "
        "search for text, or name a part of the log (timestampAfter, timestampBefore)"
    )


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
    """Why a commit is refused, for the master's final log line."""
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


NUL_KEPT = "\U0010ffff"
"""The replacement for NUL in stored lines of logs: a code point that Unicode has given to no character and never will."""


def with_nul_kept(line: str) -> str:
    """A line of a log as it is stored: databases refuse NUL, and programs write it."""
    return line.replace("\x00", NUL_KEPT) if "\x00" in line else line


def with_nul_again(line: str) -> str:
    """The line that was stored so."""
    return line.replace(NUL_KEPT, "\x00") if NUL_KEPT in line else line


def storable_lines(records: Sequence[LogRecord]) -> Sequence[LogRecord]:
    """As `storable`, but for NULs in the lines themselves."""
    if not any("\x00" in record.log for record in records):
        return storable(records)
    kept = storable([structs.replace(record, log=with_nul_kept(record.log)) for record in records])
    return [structs.replace(record, log=with_nul_again(record.log)) for record in kept]
