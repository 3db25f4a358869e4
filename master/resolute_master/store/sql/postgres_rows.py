"""Rows of our tables in the form that PostgreSQL takes in bulk: by COPY, or as one array a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Table
from sqlalchemy.engine.default import DefaultDialect

from resolute_master.store.sql import tables

_DIALECT = DefaultDialect()

_ARRAYS: Mapping[type[Any], str] = {
    tables.Moment: "bigint[]",
    tables.StoredText: "text[]",
    tables.NameText: "text[]",
    BigInteger: "bigint[]",
    Integer: "integer[]",
    Boolean: "boolean[]",
    Float: "float8[]",
    LargeBinary: "bytea[]",
}


def array_type(column: Column[Any]) -> str:
    """The type of an array of that column's values, as the server spells it."""
    return _ARRAYS[type(column.type)]


def stored(column: Column[Any], value: Any) -> Any:
    """The value as the driver takes it."""
    convert = _converter(column)
    return value if convert is None else convert(value)


@cache
def _converter(column: Column[Any]) -> Callable[[Any], Any] | None:
    type_ = column.type
    if isinstance(type_, tables.Moment | tables.StoredText):
        return lambda value: type_.process_bind_param(value, _DIALECT)
    return None


def columns_of(table: Table) -> tuple[Column[Any], ...]:
    """Those that we give; the database numbers the rest."""
    return tuple(column for column in table.columns if column.autoincrement is not True)


def as_arrays(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """One list a column of `columns_of`, in its order."""
    arrays: list[list[Any]] = []
    for column in columns_of(table):
        name, convert = column.name, _converter(column)
        arrays.append([row[name] for row in rows] if convert is None else [convert(row[name]) for row in rows])
    return arrays
