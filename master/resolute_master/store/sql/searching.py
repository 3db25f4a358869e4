"""Log lines by a regular expression: RE2 in SQLite, the server's own engine in PostgreSQL; both for a limited time.

RE2 reads the expression first, whatever the database is, so that both take the same ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, Connection, func
from sqlalchemy.exc import DBAPIError

from resolute.clock import SystemClock
from resolute_master.store.listing import SEARCH_S, search_takes_long, searcher

_FOUND = "resolute_found"
"""Our function in SQLite. Its own operator REGEXP is whatever the driver makes of it: Python's engine, which backtracks."""

_CANCELLED = "57014"
"""What PostgreSQL calls a statement that took too long."""

_clock = SystemClock()


class _TookTooLong(Exception):
    """SQLite only reports that its function has failed."""


def add_search(connection: sqlite3.Connection) -> None:
    """Our function for a new connection."""
    connection.create_function(_FOUND, 3, _found)


def _found(pattern: str, text: str | None, until: float) -> bool:
    if _clock.monotonic() > until:
        raise _TookTooLong
    return text is not None and searcher(pattern)(text)


@contextmanager
def searching(
    connection: Connection, column: ColumnElement[str], pattern: str, *, limit_s: float = SEARCH_S
) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """A condition that holds where the pattern is found, for one statement that is executed within.

    Raises `InvalidInput` for what is no expression, and for a search that takes longer than `limit_s`.
    """
    searcher(pattern)
    until = _clock.monotonic() + limit_s
    sqlite = connection.dialect.name == "sqlite"
    if not sqlite:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(limit_s * 1000))}")
    try:
        if sqlite:
            yield (getattr(func, _FOUND)(pattern, column, until),)
        else:
            yield (func.rtrim(column, "\n").regexp_match(pattern),)
    except DBAPIError as error:
        ended = _clock.monotonic() > until if sqlite else getattr(error.orig, "sqlstate", None) == _CANCELLED
        if ended:
            raise search_takes_long(pattern) from None
        raise
