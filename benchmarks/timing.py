"""Interleaved measurement: the subjects run in turn, so that a drift of the machine's speed affects them equally."""

from __future__ import annotations

import time
from collections.abc import Callable


def interleaved(
    subjects: dict[str, Callable[[], object]],
    *,
    rounds: int = 7,
    timer: Callable[[], float] = time.process_time,
) -> dict[str, tuple[float, ...]]:
    """Seconds of each subject in every round, after one warm-up round; by default the processor time of this process."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds + 1):
        for name, run in subjects.items():
            start = timer()
            run()
            if number:
                taken[name].append(timer() - start)
    return {name: tuple(seconds) for name, seconds in taken.items()}
