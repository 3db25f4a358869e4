"""Lists that come in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import quote

from resolute.client.errors import ServerError
from resolute.wire.rest.paging import Pagination

T = TypeVar("T")


def all_pages(fetch: Callable[[int], tuple[tuple[T, ...], Pagination | None]], offset: int = 0) -> Iterator[T]:
    """The items of every page. `fetch(offset)` returns one page; a list without pagination is a single page."""
    while True:
        items, page = fetch(offset)
        yield from items
        if page is None or page.end_index >= page.total:
            return
        if page.end_index <= offset:
            raise ServerError(f"the master repeats the page that begins at {offset} of {page.total}")
        offset = page.end_index


def segment(value: object) -> str:
    """A value as one part of a path."""
    return quote(str(value), safe="")
