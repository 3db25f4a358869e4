"""The use of the time between the notice of a machine's end and that end.

A task saves as soon as it has the notice, so that little can be lost. The replacement needs minutes to boot, so the task
continues. It ends while the time suffices for a second save, for which twice the duration of the first is reserved.
"""

from __future__ import annotations

SHORTEST_S = 60.0
"""If the time between notice and end is shorter than this, a task saves once and ends."""
LONGEST_S = 120.0
"""Longest time that a task continues after a notice: by then its replacement has usually joined, and is paid for."""
MARGIN_S = 15.0
"""Time for the last report and the exit."""
SAVES = 2.0
"""Multiple of the first save's duration that is reserved for the second one: when a machine goes away, its neighbours save as
well."""


def reserve_s(save_s: float) -> float:
    """Time before the end at which a task ends, from the duration of a save."""
    return SAVES * save_s + MARGIN_S


def trained_s(notice_s: float, save_s: float) -> float:
    """Time that a task continues after the save with which it answers a notice of `notice_s`; 0 if it ends at once."""
    if notice_s < SHORTEST_S:
        return 0.0
    return max(0.0, min(notice_s - reserve_s(save_s), LONGEST_S) - save_s)


class GracePeriod:
    """Decides when a process ends on a machine whose end was announced. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._saves_on_request = False
        self._began: float | None = None
        self._looked = 0.0
        self._step_s = 0.0
        self._save_began: float | None = None
        self._save_s: float | None = None

    def asked_whether_to_save(self) -> None:
        """Records that the program saves on request. A program that does not ends at once, because its further steps would not be
        saved."""
        self._saves_on_request = True

    def save_requested(self, now: float) -> None:
        """Records that the program begins to save; its next check ends the save."""
        self._save_began = now

    def over(self, now: float, left_s: float) -> bool:
        """Whether to end now, at a check after a step, with `left_s` until the announced end."""
        if not self._saves_on_request:
            return True
        if self._save_began is not None and self._save_s is None:
            self._save_s = now - self._save_began  # a step is in it
        elif self._began is not None:
            self._step_s = max(self._step_s, now - self._looked)
        self._looked = now
        if self._began is None:
            self._began = now
            if self._save_s is None:
                return left_s < SHORTEST_S
        if self._save_s is None or now - self._began >= LONGEST_S:
            return True
        # The next look comes after another step.
        return left_s - self._step_s <= reserve_s(self._save_s)
