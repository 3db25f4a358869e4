"""Ids, texts, bodies and their mutations, drawn from a given generator."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from support.extreme_values import FLOATS, FREE, INTEGERS, TEXTS

NUMBERS = (*map(str, INTEGERS), "1e3", "0x10", "01", "-0", "+1", "1.0", "NaN", "١٢")
"""Values in paths and queries in place of a number."""

NAMES = (
    *TEXTS,
    "..",
    "../../state/resolute.db",
    "%2e%2e%2f",
    "'; DROP TABLE experiments; --",
    "${jndi:ldap://127.0.0.1/a}",
    "{{7*7}}",
    "(a+)+$",
    "a" * 4_000,
    "%",
    "_",
    "ada\n",
)
PATTERNS = ("(a+)+$", "(.*a){20}", "[", "(?P<", "\\", "(?i)" * 100, "a{1000}{1000}", ".*" * 200)
TIMES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z", "now", "")

DEEP = 200
"""Depth of nested lists, which exceeds the master's limit."""


def number(random_: random.Random) -> str:
    return random_.choice(NUMBERS)


def name(random_: random.Random) -> str:
    return random_.choice(NAMES)


def leaf(random_: random.Random) -> Any:
    """A value for a key of a body."""
    match random_.randrange(7):
        case 0:
            return random_.choice(INTEGERS)
        case 1:
            return random_.choice(FLOATS)
        case 2:
            return random_.choice(NAMES)
        case 3:
            return random_.choice(TIMES)
        case 4:
            return random_.choice(FREE)
        case 5:
            return random_.choice((None, True, False, [], {}, [None], {"": None}))
        case _:
            return random_.choice(PATTERNS)


def deep(random_: random.Random) -> Any:
    value: Any = leaf(random_)
    for _ in range(DEEP):
        value = [value] if random_.random() < 0.5 else {"a": value}
    return value


def mutated(random_: random.Random, body: Any) -> Any:
    """The body with one to three changed values."""
    for _ in range(random_.randint(1, 3)):
        body = _changed(random_, body)
    return body


def _changed(random_: random.Random, value: Any) -> Any:
    if isinstance(value, Mapping) and value and random_.random() < 0.85:
        key = random_.choice(sorted(value))
        match random_.randrange(8):
            case 0:
                return {name: inner for name, inner in value.items() if name != key}
            case 1:
                return {**value, name(random_): leaf(random_)}
            case 2:
                return {**value, key: deep(random_)}
            case 3:
                return {**value, key: [value[key]] * random_.choice((0, 2, 300))}
            case _:
                return {**value, key: _changed(random_, value[key])}
    if isinstance(value, list) and value and random_.random() < 0.7:
        index = random_.randrange(len(value))
        return [*value[:index], _changed(random_, value[index]), *value[index + 1 :]]
    return leaf(random_)


def query(random_: random.Random, names: Sequence[str]) -> list[tuple[str, str]]:
    """Parameters of a list or a stream, including unknown ones."""
    found = []
    for _ in range(random_.choice((0, 0, 1, 1, 2, 4))):
        asked = random_.choice(names) if random_.random() < 0.9 else name(random_)
        if asked == "follow":
            continue
        value = random_.choice((number, name, _pattern, _time, _flag))(random_)
        found.append((asked, value))
    return found


def _pattern(random_: random.Random) -> str:
    return random_.choice(PATTERNS)


def _time(random_: random.Random) -> str:
    return random_.choice(TIMES)


def _flag(random_: random.Random) -> str:
    return random_.choice(("true", "false", "1", "TRUE", ""))
