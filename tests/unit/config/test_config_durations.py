"""Durations as people write them."""

from __future__ import annotations

import pytest

from resolute.config import format_duration, parse_duration


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
