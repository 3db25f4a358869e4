"""When and how often work that runs may be moved for the sake of money."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from resolute.config.base import ConfigModel, Count, Text, broken_rule

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _time_of_day(text: str) -> str:
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text):
        raise broken_rule('must be a time of day in UTC, quoted, such as "22:00"')
    return text


def _some_days(days: tuple[Weekday, ...]) -> tuple[Weekday, ...]:
    if not days:
        raise broken_rule("must name at least one day; leave it out for every day")
    return days


TimeOfDay = Annotated[Text, AfterValidator(_time_of_day)]


class DisruptionWindow(ConfigModel):
    """A stretch of time, in UTC."""

    days: Annotated[tuple[Weekday, ...], AfterValidator(_some_days)] = WEEKDAYS
    """Days on which it begins: mon, tue, wed, thu, fri, sat, sun."""
    start: TimeOfDay
    """When it begins, such as "22:00"."""
    end: TimeOfDay
    """When it ends; at or before `start` it is on the day after."""


class DisruptionPolicy(ConfigModel):
    """The disruption budget of a pool: how often consolidation and returns to spot may preempt running work. It does not limit the
    release of failed, reclaimed or excess machines."""

    max_per_hour: Count | None = None
    """Maximum number of machines with work that are released per hour; null is no limit."""
    windows: tuple[DisruptionWindow, ...] = ()
    """Only within one of these; empty is always."""


def seconds_after_midnight(time_of_day: str) -> float:
    hours, minutes = time_of_day.split(":")
    return 3600.0 * int(hours) + 60.0 * int(minutes)
