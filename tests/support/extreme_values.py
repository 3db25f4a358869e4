"""Messages and commands with one extreme value each, built from their types, so that new types are covered automatically."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union

import msgspec

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))

TIMES = (
    datetime(1, 1, 1, tzinfo=EAST),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=WEST),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime(9000, 12, 31, tzinfo=UTC),
    datetime(2024, 5, 1, 14, tzinfo=EAST),
)
INTEGERS = (0, -1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30)
FLOATS = (math.nan, math.inf, -math.inf, -0.0, -1.0, 1.7e308, 5e-324)
TEXTS = (
    "",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff",
    "x" * 5_000,
    "1.1.1",
    "99999999999999999999.1",
    "\u202e\x1b[31m",
    "*" * 100,
)
FREE: tuple[Any, ...] = (
    "\ud800",
    "\x00",
    2**64,
    10**30,
    math.nan,
    -math.inf,
    None,
    [[]],
    {"": {"\x00": "\udfff"}},
    "x" * 5_000,
)
"""Extreme values of a free-form field."""

EXTREMES: Mapping[type, tuple[Any, ...]] = {
    datetime: TIMES,
    int: INTEGERS,
    float: FLOATS,
    str: TEXTS,
    bool: (True, False),
    bytes: (b"", b"\x00\xff"),
}

Plausible = Callable[[str, Any], Any]
"""A valid value by the name and type of a field; `NotImplemented` if any value of the type is valid."""

_SIMPLE: Mapping[type, Any] = {
    datetime: datetime(2026, 1, 1, 12, tzinfo=UTC),
    int: 1,
    float: 1.0,
    str: "a",
    bool: False,
    bytes: b"x",
}


def variants(cls: type, plausible: Plausible) -> Iterator[tuple[str, Any]]:
    """Yields the place of the extreme value and the message or command; the plain one first."""
    plain = {name: _plain(name, hint, plausible) for name, hint in _fields(cls)}
    yield "", cls(**plain)
    for name, hint in _fields(cls):
        for where, value in _extremes(name, hint, plausible):
            yield where, cls(**{**plain, name: value})


@cache
def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    if dataclasses.is_dataclass(cls):
        return tuple((field.name, hints[field.name]) for field in dataclasses.fields(cls))
    return tuple((name, hints[name]) for name in cls.__struct_fields__)  # type: ignore[attr-defined]


def _is_whole(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, msgspec.Struct))


def _bare(hint: Any) -> Any:
    """The type without wrappers: `Annotated`, `NewType`."""
    while True:
        if typing.get_origin(hint) is Annotated:
            hint = hint.__origin__
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def _plain(name: str, hint: Any, plausible: Plausible) -> Any:
    found = plausible(name, hint)
    if found is not NotImplemented:
        return found
    bare = _bare(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else _plain(name, arguments[0], plausible)
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        return (
            (_plain(name.removesuffix("s"), arguments[0], plausible),)
            if arguments[1:] == (...,)
            else tuple(_plain(name, each, plausible) for each in arguments)
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"a": _plain("", arguments[1], plausible)}
    if bare is Any:
        return "a"
    if isinstance(bare, type) and issubclass(bare, Enum):
        return next(iter(bare))
    if _is_whole(bare):
        return bare(**{field: _plain(field, inner, plausible) for field, inner in _fields(bare)})
    return _SIMPLE[bare]


def _extremes(name: str, hint: Any, plausible: Plausible) -> Iterator[tuple[str, Any]]:
    bare = _bare(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (Union, types.UnionType):
        for part in arguments:
            if part is type(None):
                yield name, None
            else:
                yield name, _plain(name, part, plausible)
                yield from _extremes(name, part, plausible)
    elif origin is Literal:
        yield from ((name, each) for each in arguments)
    elif origin is tuple:
        yield from _of_tuple(name, arguments, plausible)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        known = plausible(name, hint)
        kept = {} if known is NotImplemented else known
        yield name, dict(kept)
        yield name, {**kept, **{str(number): _plain("", arguments[1], plausible) for number in range(300)}}
        for where, value in _extremes(f"{name}[...]", arguments[1], plausible):
            yield where, {**kept, "a": value}
        if _bare(arguments[0]) is str:
            yield from ((f"{name} (key)", {**kept, key: _plain("", arguments[1], plausible)}) for key in TEXTS)
    elif bare is Any:
        yield from ((name, value) for value in FREE)
    elif isinstance(bare, type) and issubclass(bare, Enum):
        yield from ((name, member) for member in bare)
    elif _is_whole(bare):
        yield from ((f"{name}.{where}", value) for where, value in variants(bare, plausible))
    else:
        yield from ((name, value) for value in EXTREMES[bare])


def _of_tuple(name: str, arguments: tuple[Any, ...], plausible: Plausible) -> Iterator[tuple[str, Any]]:
    if arguments[1:] != (...,):
        plain = [_plain(name, each, plausible) for each in arguments]
        for index, each in enumerate(arguments):
            for where, value in _extremes(f"{name}[{index}]", each, plausible):
                yield where, (*plain[:index], value, *plain[index + 1 :])
        return
    item = _plain(name.removesuffix("s"), arguments[0], plausible)
    yield name, ()
    yield name, (item,) * 300
    for where, value in _extremes(f"{name}[0]", arguments[0], plausible):
        yield where, (item, value)
