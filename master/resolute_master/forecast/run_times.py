"""The distribution of run times, from work that has ended: conditional on the time that work has run already. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Hashable
from dataclasses import dataclass, field

LEAST = 20
"""Fewer run times than this are no sample."""
MOST = 2_000
"""Number of run times kept per kind, the newest: present work resembles recent work."""


@dataclass(slots=True)
class _Sample:
    """Run times in the order in which they ended, and sorted."""

    newest: list[float] = field(default_factory=list)
    ordered: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        self.newest.append(seconds)
        insort(self.ordered, seconds)
        if len(self.newest) > MOST:
            oldest = self.newest.pop(0)
            del self.ordered[bisect_right(self.ordered, oldest) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The basis of an estimate."""

    runs: int
    of: str
    """The owner of the runs, for display."""


class RunTimes:
    """Run times by user and slots, by user, and of the whole pool. The narrowest sample with `LEAST` run times is used."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Sample] = {}

    def __len__(self) -> int:
        pool = self._kinds.get(())
        return 0 if pool is None else len(pool.newest)

    def add(self, user: int, slots: int, seconds: float) -> None:
        for kind in ((user, slots), (user,), ()):
            self._kinds.setdefault(kind, _Sample()).add(max(0.0, seconds))

    def basis(self, user: int, slots: int) -> Basis | None:
        """The basis of estimates for this user and size; None while too little is known."""
        found = self._found(user, slots)
        return None if found is None else Basis(runs=len(found[1].newest), of=found[0])

    def remaining_s(self, part: float, user: int, slots: int, elapsed_s: float = 0.0) -> float | None:
        """Estimated remaining run time after `elapsed_s`: the quantile `part` (0 to below 1) of the run times above `elapsed_s`,
        less `elapsed_s`. For a run that is longer than nearly all known ones, a heavy tail is assumed: with `part` 0.5, the
        remaining time equals `elapsed_s`. None while too little is known."""
        found = self._found(user, slots)
        if found is None:
            return None
        ordered = found[1].ordered
        longer = bisect_right(ordered, elapsed_s)
        if len(ordered) - longer < LEAST // 4 and elapsed_s > 0.0:
            return elapsed_s * (1.0 / (1.0 - part) - 1.0)
        first = min(longer, len(ordered) - 1)
        return ordered[first + int(part * (len(ordered) - first))] - elapsed_s

    def _found(self, user: int, slots: int) -> tuple[str, _Sample] | None:
        for kind, words in (((user, slots), "this user with as many slots"), ((user,), "this user"), ((), "the pool")):
            sample = self._kinds.get(kind)
            if sample is not None and len(sample.newest) >= LEAST:
                return words, sample
        return None
