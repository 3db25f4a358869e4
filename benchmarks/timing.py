"""Interleaved measurement: what is compared is run in turn, so that a machine whose speed drifts is fair to both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds of one subject over all rounds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def line(self, unit_s: float = 1e-3, unit: str = "ms") -> str:
        low, high = min(self.seconds) / unit_s, max(self.seconds) / unit_s
        return f"{self.name:<46} median {self.median / unit_s:9.2f} {unit}   range {low:.2f} to {high:.2f}"


def interleaved(subjects: dict[str, Callable[[], object]], *, rounds: int = 7) -> dict[str, Figures]:
    """Process time of each subject, after one warm-up round."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds + 1):
        for name, run in subjects.items():
            start = time.process_time()
            run()
            if number:
                taken[name].append(time.process_time() - start)
    return {name: Figures(name=name, seconds=tuple(seconds)) for name, seconds in taken.items()}
