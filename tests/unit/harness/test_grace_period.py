"""How long work trains on after the notice of its machine's end."""

from __future__ import annotations

import pytest

from resolute.grace_period import LONGEST_S, SHORTEST_S, GracePeriod, reserve_s, trained_s


def left_at(notice_s: float, *, save_s: float, step_s: float = 1.0) -> float:
    """Time from the notice to the look at which a program leaves."""
    period, now = GracePeriod(), 0.0
    period.asked_whether_to_save()
    while not period.over(now, notice_s - now):
        if now == 0.0:
            period.save_requested(now)
            now += save_s
        now += step_s
    return now


@pytest.mark.parametrize("save_s", [0.1, 5.0, 20.0])
def test_there_is_time_for_another_save_and_the_margin(save_s: float) -> None:
    left_s = 120.0 - left_at(120.0, save_s=save_s)
    assert left_s >= reserve_s(save_s)
    assert left_s <= reserve_s(save_s + 1.0) + 2.0, "no more than needed, to a step"


def test_a_short_notice_is_for_one_save() -> None:
    assert left_at(SHORTEST_S - 1.0, save_s=1.0) == 0.0


def test_work_does_not_outstay_its_replacement() -> None:
    assert left_at(3600.0, save_s=5.0) == pytest.approx(LONGEST_S, abs=1.0)


def test_a_slow_save_is_followed_by_one_step_at_most() -> None:
    assert left_at(120.0, save_s=50.0) == 51.0


def test_long_steps_are_not_begun_when_they_would_end_too_late() -> None:
    assert left_at(120.0, save_s=5.0, step_s=20.0) <= 120.0 - reserve_s(25.0)


def test_a_program_that_was_not_asked_to_save_leaves_at_the_next_look() -> None:
    period = GracePeriod()
    period.asked_whether_to_save()
    assert not period.over(0.0, 120.0)
    assert period.over(1.0, 119.0)


@pytest.mark.parametrize(
    ("notice_s", "save_s", "expected"), [(120.0, 10.0, 75.0), (59.0, 1.0, 0.0), (120.0, 60.0, 0.0)]
)
def test_the_twin_reckons_with_the_same_rule(notice_s: float, save_s: float, expected: float) -> None:
    assert trained_s(notice_s, save_s) == expected


def test_the_twin_agrees_with_the_program() -> None:
    # The program's save takes a step longer, and it ends a step earlier.
    assert left_at(120.0, save_s=10.0, step_s=0.01) == pytest.approx(10.0 + trained_s(120.0, 10.0), abs=0.1)
