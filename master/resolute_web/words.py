"""How values are written for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400

UNKNOWN = "–"


def duration(seconds: float | None) -> str:
    """Two units at the most: "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"."""
    if seconds is None:
        return UNKNOWN
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    for unit, name, part, part_name in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit} {name} {rest} {part_name}" if rest else f"{whole // unit} {name}"
    raise AssertionError("a number of seconds is below a minute or not")


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since, or until; one unit: "3 min ago", "in 2 h"."""
    if moment is None:
        return UNKNOWN
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    if size < 5:
        return "now"
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1, "s")):
        if size >= unit:
            text = f"{int(size // unit)} {name}"
            return f"{text} ago" if seconds > 0 else f"in {text}"
    raise AssertionError("a difference of five seconds and more has a unit")


def utc(moment: datetime | None) -> str:
    return UNKNOWN if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%H:%M:%S")


def number(value: Any, digits: int = 4) -> str:
    """Text of a metric or a hyperparameter: four significant digits for numbers; text is unchanged."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value)
    if isinstance(value, float):
        return _float(value, digits)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={number(each)}" for name, each in value.items()) or UNKNOWN
    if isinstance(value, list | tuple):
        return ", ".join(number(each) for each in value) or UNKNOWN
    return str(value)


def _float(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return count(int(value))
    return f"{value:.{digits}g}"


def count(value: int | None) -> str:
    """Groups of three with a thin space, from 10,000 on."""
    if value is None:
        return UNKNOWN
    return f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)


def size(value: int | None) -> str:
    """Bytes."""
    if value is None:
        return UNKNOWN
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("the last unit takes every size")


def money(value: float | None) -> str:
    """In the currency of the prices, which the configuration does not name: a sign would claim one."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < 0.01:
        return f"{value:.4f}"
    return f"{value:,.2f}".replace(",", "\u202f")


def percent(part: float, whole: float) -> str:
    return UNKNOWN if whole <= 0 else f"{100 * part / whole:.0f} %"


def share(part: float, whole: float) -> float:
    """Per cent as a number, for lengths."""
    return 0.0 if whole <= 0 else round(100 * part / whole, 3)


def plural(amount: int, one: str, many: str = "") -> str:
    return f"{count(amount)} {one if amount == 1 else many or one + 's'}"
