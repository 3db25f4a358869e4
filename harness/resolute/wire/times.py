"""Times that come from outside: in UTC, and of years that leave room for arithmetic.

A time with an offset may have no UTC value (`0001-01-01T00:00:00+14:00`), and near the ends of the calendar a duration cannot be
added to it. Each such time is refused where it enters, because it could be accepted and then never be stored, shown or compared.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Union

from resolute.errors import InvalidInput
from resolute.wire.codec import wire_names

FIRST_YEAR = 1970
"""Earliest year of a time that is sent to the master, in UTC: such a time minus a duration is still a valid date."""

LAST_YEAR = 9000
"""Latest year of such a time: the time plus a duration or a retention is still a valid date."""

HOW_TO_WRITE = f"send a time with its zone, of the years {FIRST_YEAR} to {LAST_YEAR}, like 2024-05-01T12:00:00Z"

Check = Callable[[Any], bool]


def is_settled(moment: datetime | None) -> bool:
    """Whether the time is in UTC already, and of an accepted year. True for None."""
    return moment is None or (moment.tzinfo is UTC and FIRST_YEAR <= moment.year <= LAST_YEAR)


def in_utc(moment: datetime, where: str) -> datetime:
    """The moment in UTC. Raises `InvalidInput`, which names the key `where`, for one that is not accepted."""
    try:
        settled = moment.astimezone(UTC) if moment.tzinfo is not None else None
    except (OverflowError, ValueError):
        settled = None
    if settled is None or not is_settled(settled):
        raise InvalidInput(f"{where}: the time {moment.isoformat()} is not taken; {HOW_TO_WRITE}")
    return settled


def times_settled(message: object) -> bool:
    """Whether `is_settled` holds for every time in a message of the wire (a dataclass)."""
    check = _check_of(_type_of(message))
    return check is None or check(message)


def _type_of(message: object) -> Any:
    return type(message)


def check_times(message: object) -> None:
    """Raises `InvalidInput` naming the key on the wire of the first time in the message that is not taken.

    The times of the message are in UTC, as the codec makes them.
    """
    if times_settled(message):
        return
    for where, moment in _times_in(message, ""):
        in_utc(moment, where)


def _times_in(value: object, where: str) -> Iterator[tuple[str, datetime]]:
    if isinstance(value, datetime):
        yield where, value
    elif dataclasses.is_dataclass(value):
        for name, key in wire_names(type(value)).items():
            yield from _times_in(getattr(value, name), f"{where}.{key}" if where else key)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _times_in(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _times_in(item, f"{where}[{index}]")


@cache
def _check_of(hint: Any) -> Check | None:
    """A check of the times in a type; None if it has none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _check_of(hint.__origin__)
    if origin in (Union, types.UnionType):
        parts = [part for part in arguments if part is not type(None)]
        check = _check_of(parts[0]) if len(parts) == 1 else None
        return None if check is None else lambda value: value is None or check(value)
    if origin is tuple:
        each = _check_of(arguments[0]) if arguments[1:] == (...,) else None
        return None if each is None else lambda values: all(map(each, values))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = _check_of(arguments[1])
        return None if item is None else lambda values: all(map(item, values.values()))
    if hint is datetime:
        return is_settled
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _fields_check(hint)
    return None


def _fields_check(cls: type) -> Check | None:
    hints = typing.get_type_hints(cls, include_extras=True)
    checks = [(field.name, check) for field in dataclasses.fields(cls) if (check := _check_of(hints[field.name]))]
    if not checks:
        return None
    return lambda message: all(check(getattr(message, name)) for name, check in checks)
