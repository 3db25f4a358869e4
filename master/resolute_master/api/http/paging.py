"""Pages of lists, by the contract's rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from resolute.errors import InvalidInput
from resolute.wire.rest.paging import Pagination
from resolute_master.api.http.limits import MAX_PAGE_ROWS

Row = TypeVar("Row")


def page_of(rows: Sequence[Row], *, offset: int, limit: int) -> tuple[tuple[Row, ...], Pagination]:
    """The page of a list. `limit` 0 means all rows; a negative `offset` counts from the end. Raises `InvalidInput` for an offset
    outside of the rows.

    A page has at most `MAX_PAGE_ROWS`, also of everything: the next one begins at `end_index`.
    """
    total = len(rows)
    start, end = bounds_of(total, offset=offset, limit=limit)
    return tuple(rows[start:end]), pagination(start=start, count=end - start, total=total, limit=limit)


def bounds_of(total: int, *, offset: int, limit: int) -> tuple[int, int]:
    """The first row of the page, and the one after its last; for lists of which only the page is read. Raises as `page_of`."""
    start = offset + total if offset < 0 else offset
    if not 0 <= start <= total:
        raise InvalidInput(f"offset: {offset} is outside of the {total} rows; send an offset from -{total} to {total}")
    if limit < 0:
        raise InvalidInput(f"limit: {limit} must not be negative; 0 means no limit")
    return start, min(start + min(limit or MAX_PAGE_ROWS, MAX_PAGE_ROWS), total)


def pagination(*, start: int, count: int, total: int, limit: int) -> Pagination:
    """The next page begins at `end_index`."""
    return Pagination(offset=start, limit=limit, start_index=start, end_index=start + count, total=total)
