"""The use of the time between the notice of a machine's end and that end.

Work saves as soon as it has the notice, so that little can be lost. Its replacement needs minutes to boot, so it trains on. It
leaves while the time suffices for a second save, whose duration the first one has shown.
"""

from __future__ import annotations

SHORTEST_S = 60.0
"""In less time than this between notice and end, work saves once and leaves."""
LONGEST_S = 120.0
"""Work trains on for at most this long: by then its replacement has usually joined, and is paid for."""
MARGIN_S = 15.0
"""Time for the last report and the exit."""
SAVES = 2.0
"""Work leaves while there is time for this multiple of the first save: when a machine goes away, its neighbours save as well."""


def reserve_s(save_s: float) -> float:
    """The time before the end at which work leaves, from the duration of a save."""
    return SAVES * save_s + MARGIN_S


def trained_s(notice_s: float, save_s: float) -> float:
    """The time that work trains on after the save with which it answers a notice of `notice_s`; 0 where it leaves at once."""
    if notice_s < SHORTEST_S:
        return 0.0
    return max(0.0, min(notice_s - reserve_s(save_s), LONGEST_S) - save_s)


class GracePeriod:
    """Decides for one process when it leaves a machine whose end was announced. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._saves_on_request = False
        self._began: float | None = None
        self._looked = 0.0
        self._step_s = 0.0
        self._save_began: float | None = None
        self._save_s: float | None = None

    def asked_whether_to_save(self) -> None:
        """The program saves on request. One that does not ask leaves at once: nothing else would save what it does meanwhile."""
        self._saves_on_request = True

    def save_requested(self, now: float) -> None:
        """The program begins to save; its next look at the notice ends the save."""
        self._save_began = now

    def over(self, now: float, left_s: float) -> bool:
        """Whether to leave now, at a look after a step, with `left_s` until the announced end."""
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
