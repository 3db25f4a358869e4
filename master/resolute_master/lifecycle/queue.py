"""The queue of one priority in one pool, and places in it that are set by hand.

Positions are seconds since 1970, so that a new job, whose position is its submission time, is behind all others. A job
that is moved gets the mean of its new neighbours' positions. After some twenty halvings of a second no number is left; then the
same change renumbers the jobs around the gap over the nearest range that is wide enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from resolute_master.domain.copies import replace
from resolute_master.domain.job import Job

STEP_S = 1.0
"""Distance of a job that is moved to the front from the previous first one."""

ROOM = 256
"""Minimum count of numbers between two renumbered jobs: enough for the next eight moves into one gap."""


def inserted(line: Sequence[Job], job: Job, index: int, *, now: datetime) -> tuple[Job, ...]:
    """Inserts `job` before the `index`-th of `line`, which is sorted and does not contain it. Returns the jobs with a new
    position, `job` among them.

    The order is then strict around the job, and that of all others is as it was.
    """
    width = 0
    while True:
        first, last = max(0, index - width), min(len(line), index + width)
        low = line[first - 1].queue_position if first else -math.inf
        # Behind the last, and before all later submissions.
        high = line[last].queue_position if last < len(line) else now.timestamp()
        members = (*line[first:index], job, *line[index:last])
        places = _spread(low, high, len(members), room=ROOM if width else 1)
        if places is not None:
            found = zip(members, places, strict=True)
            return tuple(replace(m, queue_position=p) for m, p in found if m is job or m.queue_position != p)
        width = 2 * width + 1


def _spread(low: float, high: float, count: int, *, room: int) -> tuple[float, ...] | None:
    """Evenly spaced numbers between the two; None when there are not `room` numbers from each to the next."""
    if low == -math.inf:
        return tuple(high - STEP_S * (count - n) for n in range(count))
    gap = (high - low) / (count + 1)
    places = tuple(low + gap * (n + 1) for n in range(count))
    steps = zip((low, *places), (*places, high), strict=True)
    return places if all(before + room * math.ulp(high) <= after for before, after in steps) else None
