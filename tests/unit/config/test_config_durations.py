"""Durations as people write them."""

from __future__ import annotations

import pytest

from resolute.config import InvalidConfig, format_duration, parse_duration, parse_master_config
from resolute.config.durations import MAX_DURATION_HOURS, MAX_DURATION_S


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("25s", 25.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1m30.5s", 90.5), ("0", 0.0), ("2h", 7200.0), ("1us", 1e-6)],
)
def test_texts_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "-5s", "1d", "five", "1h-5m", "1.2.3s"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (25, "25s"), (5400, "1h30m"), (0.5, "500ms"), (86400, "24h"), (3661, "1h1m1s")]
)
def test_seconds_are_written(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds


def test_the_longest_duration_is_taken_and_no_longer_one() -> None:
    """Other places of durations are among the bad masters and the bad experiments."""

    def read(value: object) -> float:
        master = parse_master_config({"resource_manager": {"scheduler": {"min_runtime": value}}})
        return master.resource_manager.scheduler.min_runtime

    assert read(f"{MAX_DURATION_HOURS}h") == read(MAX_DURATION_S) == MAX_DURATION_S
    for longer in (f"{MAX_DURATION_HOURS}h1s", MAX_DURATION_S + 1):
        with pytest.raises(
            InvalidConfig, match=rf"is longer than a hundred years .*; write at most {MAX_DURATION_HOURS}h"
        ):
            read(longer)


@pytest.mark.parametrize("digits", [400, 5000])
def test_what_no_number_holds_is_no_duration(digits: int) -> None:
    with pytest.raises(InvalidConfig, match="must be a duration"):
        parse_master_config({"resource_manager": {"scheduler": {"min_runtime": "9" * digits + "h"}}})
