"""Rows of our tables in the form that PostgreSQL takes in bulk: by COPY, or as one array a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, LargeBinary, Table
from sqlalchemy.engine.default import DefaultDialect

from resolute_master.domain.metrics import LogRecord, MetricReport
from resolute_master.store.encoding import encode, encode_free
from resolute_master.store.listing import all_storable, storable_text, with_nul_kept
from resolute_master.store.sql import tables

_DIALECT = DefaultDialect()

_ARRAYS: Mapping[type[Any], str] = {
    tables.Moment: "bigint[]",
    tables.StoredText: "text[]",
    tables.NameText: "text[]",
    tables.LogText: "text[]",
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


@cache
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


def metric_arrays(reports: Sequence[MetricReport]) -> list[list[Any]]:
    """Reports as `as_arrays` would have their rows, without making a row of each."""
    return [
        [report.trial_id for report in reports],
        [report.run_id for report in reports],
        _storable([[report.group for report in reports]])[0],
        [report.steps_completed for report in reports],
        _moments([report.reported_at for report in reports]),
        [report.archived for report in reports],
        [encode_free(report.metrics) for report in reports],
        [None if report.batch_metrics is None else encode(report.batch_metrics).decode() for report in reports],
    ]


def log_arrays(records: Sequence[LogRecord]) -> list[list[Any]]:
    """The same for log lines."""
    key, task, allocation, agent, container, level, stdtype, source, log = _storable(
        [
            [record.key for record in records],
            [record.task_id for record in records],
            [record.allocation_id or "" for record in records],
            [record.agent_id for record in records],
            [record.container_id for record in records],
            [record.level for record in records],
            [record.stdtype for record in records],
            [record.source for record in records],
            [with_nul_kept(record.log) for record in records],
        ]
    )
    allocations = [
        None if record.allocation_id is None else id_ for record, id_ in zip(records, allocation, strict=True)
    ]
    ranks, times = [record.rank for record in records], _moments([record.at for record in records])
    return [key, task, allocations, agent, container, ranks, times, level, stdtype, source, log]


def _storable(columns: list[list[str]]) -> list[list[str]]:
    """The same columns but for texts that some database refuses, of which nearly every batch has none."""
    if all_storable(columns):
        return columns
    return [[storable_text(text) for text in column] for column in columns]


def _moments(times: Sequence[datetime]) -> list[int]:
    """Microseconds since the epoch. Reports without a time of their own share one, so it is worked out once."""
    found: list[int] = []
    last, micros = tables.EPOCH, 0
    for at in times:
        if at is not last:
            since = at - tables.EPOCH
            last, micros = at, (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        found.append(micros)
    return found
