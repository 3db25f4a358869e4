"""Times from outside: one in UTC with room for arithmetic is taken, any other is refused by its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

import pytest

from resolute.errors import InvalidInput
from resolute.wire.times import FIRST_YEAR, LAST_YEAR, check_times, in_utc, is_settled, times_settled

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))
GOOD = datetime(2024, 5, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Part:
    at: datetime | None = None
    number: int = 0


@dataclass(frozen=True)
class Whole:
    first: datetime
    parts: tuple[Part, ...] = ()
    named: Mapping[str, Part] | None = None
    noted: Annotated[datetime | None, "a note"] = None


@dataclass(frozen=True)
class Timeless:
    number: int = 0
    free: Any = None


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=EAST),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(FIRST_YEAR - 1, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC),
        datetime(2024, 5, 1),
    ],
)
def test_what_is_not_taken_is_named(moment: datetime) -> None:
    assert not is_settled(moment)
    with pytest.raises(
        InvalidInput, match=rf"^at: the time {moment.isoformat()[:10]}.* is not taken; send a time with"
    ):
        in_utc(moment, "at")


@pytest.mark.parametrize("zone", [UTC, EAST, WEST])
@pytest.mark.parametrize("year", [FIRST_YEAR, 2024, LAST_YEAR])
def test_the_same_moment_in_utc(year: int, zone: timezone) -> None:
    moment = datetime(year, 6, 1, 12, tzinfo=zone)
    settled = in_utc(moment, "at")
    assert settled == moment and is_settled(settled) and is_settled(moment) is (zone is UTC)


def test_every_place_of_a_message_is_looked_at() -> None:
    far = datetime(9500, 1, 1, tzinfo=UTC)
    check_times(Whole(GOOD, (Part(GOOD), Part()), {"a": Part(GOOD)}, GOOD))
    for wrong, where in (
        (Whole(far), "first"),
        (Whole(GOOD, (Part(GOOD), Part(far))), r"parts\[1\].at"),
        (Whole(GOOD, (), {"a": Part(far)}), "named.a.at"),
        (Whole(GOOD, noted=far), "noted"),
    ):
        assert not times_settled(wrong)
        with pytest.raises(InvalidInput, match=f"^{where}: the time 9500"):
            check_times(wrong)
    assert times_settled(Timeless(free="0001-01-01T00:00:00+14:00"))
