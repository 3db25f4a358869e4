"""Durations in configuration files: `25s`, `1h30m`, `500ms`, or a number of seconds."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

from resolute.config.base import Count
from resolute.config.errors import RULE

MAX_DURATION_HOURS = 876_000
"""Maximum of every duration, a hundred years: a time plus some of them is still a valid date."""

MAX_DURATION_S = 3600 * MAX_DURATION_HOURS

_UNITS: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """Seconds of a text such as `1h30m`; `0` needs no unit. Raises ValueError for anything else."""
    text = text.strip()
    if text == "0":
        return 0.0
    try:
        if _WHOLE.fullmatch(text):
            return float(sum(Fraction(amount) * _UNITS[unit] for amount, unit in _PART.findall(text)))
    except OverflowError:
        pass  # no float is as large
    raise ValueError(f"'{text}' is not a duration; write it like 30s, 1m30s, 2h or 500ms")


def format_duration(seconds: float) -> str:
    """The shortest text of whole units that `parse_duration` reads back as the same number of seconds."""
    if seconds != int(seconds):
        milliseconds = round(seconds * 1000)
        exact = milliseconds / 1000 == seconds
        return f"{milliseconds}ms" if exact else f"{format(Decimal(repr(seconds)), 'f')}s"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + (f"{left}s" if left else "")
    return text or "0s"


def _seconds(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError(RULE, "must be a duration; write it like 30s, 1m30s, 2h or a number of seconds")
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            raise PydanticCustomError(
                RULE, "must be a duration; write it like 30s, 1m30s, 2h or a number of seconds"
            ) from None
    return value


def not_too_long(seconds: float) -> float:
    """A number of seconds that may be added to a time; a longer one is refused."""
    if seconds > MAX_DURATION_S:
        longest = f"{MAX_DURATION_HOURS}h, which are {MAX_DURATION_S} seconds"
        raise PydanticCustomError(RULE, "is longer than a hundred years; write at most {longest}", {"longest": longest})
    return seconds


class DurationMark:
    """Marks a field that holds seconds and is written as a duration."""


_READ = BeforeValidator(_seconds)

_BOUNDED = AfterValidator(not_too_long)

_WRITTEN = PlainSerializer(format_duration, when_used="json")

Duration = Annotated[float, Field(ge=0, allow_inf_nan=False), _READ, _BOUNDED, _WRITTEN, DurationMark()]
"""Seconds, not negative, at most MAX_DURATION_S; read from a Go-style text or a number, shown as a text."""

PositiveDuration = Annotated[float, Field(gt=0, allow_inf_nan=False), _READ, _BOUNDED, _WRITTEN, DurationMark()]
"""Seconds, more than zero, at most MAX_DURATION_S."""

WholeSeconds = Annotated[Count, Field(le=MAX_DURATION_S)]
"""A number of seconds that is never written as a text."""
