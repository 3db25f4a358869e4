"""How long machines of an offer are idle before there is work for one again, and how long one is therefore kept. Pure.

A gap begins when a machine becomes idle and ends when it is used again. If the machine was released before, the gap ends with
the next launch of the offer, so a pool that releases machines too early learns it. Gaps are counted by length, and older gaps
count less: a gap that `1 / (1 - FADING)` gaps follow counts about a third.

A machine that may be idle for T seconds costs, on average over the gaps g that were seen,

    min(g, T) + (g > T) x (boot + wait)

in seconds of the machine: its idle time, and if that did not suffice, another boot and the wait of the work for it. The T with the
least cost is taken. (The threshold rule of the ski rental problem with a known distribution: Karlin, Manasse, McGeoch, Owicki,
"Competitive randomized algorithms for nonuniform problems", Algorithmica 11, 1994.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

LENGTHS_S: tuple[float, ...] = (
    15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 240.0, 360.0, 480.0, 720.0, 960.0, 1440.0, 1920.0, 2880.0, 3840.0,
    5760.0, 7200.0,
)  # fmt: skip
"""A gap is counted with the shortest of these that is not shorter than it; longer ones are counted together."""
FADING = 0.98
"""Factor of the counts of an offer at each new gap."""
PRIOR = 0.25
"""Number of assumed gaps of each length before any observation: without observations a machine is kept for about a minute."""
WAIT_WORTH = 0.25
"""Weight of a second in which work waits for a boot, in seconds of the machine."""
MOST_ENDED = 64
"""Maximum number of released machines of an offer with open gaps; of more the oldest count as never used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The observations of one offer."""

    counts: tuple[float, ...] = ()
    """Counts by length, as in `LENGTHS_S` and one more; empty without observations."""
    given_back: tuple[datetime, ...] = ()
    """For each released machine without a replacement yet, since when it had been idle, the oldest first."""


NONE_SEEN = Gaps()


def used_again(gaps: Gaps, idle_s: float, *, now: datetime) -> Gaps:
    """Records that a machine has work again. If it is used at the moment at which it became idle, there is no gap."""
    return _settled(_counted(gaps, idle_s) if idle_s > 0.0 else gaps, now)


def given_back(gaps: Gaps, idle_since: datetime, *, now: datetime) -> Gaps:
    """Records that a machine was released because it was idle."""
    return _settled(replace(gaps, given_back=tuple(sorted((*gaps.given_back, idle_since)))), now)


def launched(gaps: Gaps, *, now: datetime) -> Gaps:
    """Records that there is work for one more machine: the one that became idle last would have served."""
    gaps = _settled(gaps, now)
    if not gaps.given_back:
        return gaps
    *rest, newest = gaps.given_back
    return _counted(replace(gaps, given_back=tuple(rest)), (now - newest).total_seconds())


def _settled(gaps: Gaps, now: datetime) -> Gaps:
    """Closes gaps of machines that were released too long ago."""
    oldest = now - timedelta(seconds=LENGTHS_S[-1])
    open_ = [at for at in gaps.given_back if at >= oldest][-MOST_ENDED:]
    for _ in range(len(gaps.given_back) - len(open_)):
        gaps = _counted(gaps, 2 * LENGTHS_S[-1])
    return replace(gaps, given_back=tuple(open_))


def _counted(gaps: Gaps, length_s: float) -> Gaps:
    counts = [round(FADING * count, 4) for count in gaps.counts] or [0.0] * (len(LENGTHS_S) + 1)
    counts[bisect_left(LENGTHS_S, length_s)] += 1.0
    return replace(gaps, counts=tuple(counts))


def together(seen: Iterable[Gaps]) -> tuple[float, ...]:
    """The counts of several offers whose machines serve the same work."""
    columns = zip(*(gaps.counts for gaps in seen if gaps.counts), strict=True)
    return tuple(sum(column) for column in columns)


@lru_cache(maxsize=256)
def idle_period_s(counts: tuple[float, ...], boot_s: float) -> float:
    """Seconds for which a machine is worth keeping without work. `boot_s`: until another one would have joined."""
    seen = [PRIOR + count for count in counts or (0.0,) * (len(LENGTHS_S) + 1)]
    again_s = boot_s * (1.0 + WAIT_WORTH)
    left, idled_s, best = sum(seen), 0.0, (sum(seen) * again_s, 0.0)
    shorter_s = 0.0
    for length_s, count in zip(LENGTHS_S, seen, strict=False):
        left -= count
        idled_s += count * (shorter_s + length_s) / 2.0
        best = min(best, (idled_s + left * (length_s + again_s), length_s))
        shorter_s = length_s
    return best[1]
