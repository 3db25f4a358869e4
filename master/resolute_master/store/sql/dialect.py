"""What SQLite and PostgreSQL spell differently; every other statement is the same for both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Table,
    Text,
    case,
    cast,
    func,
    literal,
    literal_column,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Executable
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import UserDefinedType

Key = TypeVar("Key")

MOST_KEYS = 5000
"""Named in one statement: both databases end at some 32,000 parameters, and some statements take several for a key."""


def upsert(connection: Connection, table: Table) -> Executable:
    """Insert a row, or replace all columns of the one with the same primary key."""
    return _upsert(table, connection.dialect.name)


def insert_new(connection: Connection, table: Table, *unique: str) -> Executable:
    """Insert a row unless the columns `unique` are already there; the row that is there stays."""
    return _insert_new(table, connection.dialect.name, unique)


@cache
def _upsert(table: Table, dialect: str) -> Executable:
    insert = _insert(table, dialect)
    keys = [column.name for column in table.primary_key]
    rest = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in keys}
    statement: Executable = insert.on_conflict_do_update(index_elements=keys, set_=rest)
    return statement


@cache
def _insert_new(table: Table, dialect: str, unique: tuple[str, ...]) -> Executable:
    statement: Executable = _insert(table, dialect).on_conflict_do_nothing(index_elements=list(unique))
    return statement


def _insert(table: Table, dialect: str) -> Any:
    """With what the standard's INSERT lacks. Only the dialect of the database in use is imported: PostgreSQL's is large."""
    return import_module(f"sqlalchemy.dialects.{dialect}").insert(table)


def batches(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    """Keys to name in one statement at a time."""
    return (keys[first : first + MOST_KEYS] for first in range(0, len(keys), MOST_KEYS))


def contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Whether the column's text has `text` in it, large and small letters of any language alike."""
    return _Lower(column).contains(text.lower(), autoescape=True)


Path = tuple[str | int, ...]
"""To a value within a JSON document: keys of objects and places in lists. Keys have no quotation marks or backslashes."""


def json_text_at(connection: Connection, column: ColumnElement[str], path: Path) -> ColumnElement[str]:
    """The value there as text; null where there is none."""
    if connection.dialect.name == "sqlite":
        return type_coerce(func.json_extract(column, _sqlite_path(path)), Text)
    return type_coerce(_parent(column, path).op("->>")(_step(path[-1])), Text)


def json_number_at(connection: Connection, column: ColumnElement[str], path: Path) -> ColumnElement[float]:
    """The value there if it is a number, else null."""
    if connection.dialect.name == "sqlite":
        at = _sqlite_path(path)
        extracted: ColumnElement[float] = type_coerce(func.json_extract(column, at), Float)
        return case((func.json_type(column, at).in_(("real", "integer")), extracted), else_=None)
    found = _parent(column, path).op("->")(_step(path[-1]))
    number: ColumnElement[float] = cast(json_text_at(connection, column, path), Float)
    return case((func.jsonb_typeof(found) == "number", number), else_=None)


def _parent(column: ColumnElement[str], path: Path) -> ColumnElement[Any]:
    document: ColumnElement[Any] = cast(column, _Binary)
    for part in path[:-1]:
        document = document.op("->")(_step(part))
    return document


def _step(part: str | int) -> ColumnElement[Any]:
    return literal_column(str(part)) if isinstance(part, int) else literal(part, Text)


class _Binary(UserDefinedType[Any]):
    """JSON as PostgreSQL keeps it to look into: to name its own type imports its dialect."""

    cache_ok = True

    def get_col_spec(self, **_options: Any) -> str:
        return "JSONB"


def _sqlite_path(path: Path) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f'."{part}"' for part in path)


def read_in_order(connection: Connection) -> None:
    """For the rest of the transaction: queries for the first rows in the order of an index use that index.

    A PostgreSQL that has not looked at a table since it grew takes a hundred thousand rows for two, and sorts them all.
    """
    if connection.dialect.name == "postgresql":
        paths = ("enable_sort", "enable_bitmapscan", "enable_seqscan")
        settings = ", ".join(f"set_config('{path}', 'off', true)" for path in paths)
        connection.exec_driver_sql(f"SELECT {settings}")


class _Lower(GenericFunction[str]):
    name = "lower"
    type = Text()
    inherit_cache = True


@compiles(_Lower, "postgresql")
def _lower_of_any_language(element: _Lower, compiler: SQLCompiler, **options: Any) -> str:
    """The database's own rules for letters may end at ASCII; those of ICU come with the server."""
    return f'lower({compiler.process(element.clauses, **options)} COLLATE "und-x-icu")'
