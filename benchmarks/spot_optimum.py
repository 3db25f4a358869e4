"""What somebody who knows the whole series would have done: the bounds of `benchmarks.spot`. Exact, by dynamic programming.

One machine at a time; each new one costs a tick in which nothing is trained (boot and restore, as in `spot_world`), and is there
while its zone has capacity. All quantities are in ticks of the region, many beginnings at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.spot_series import Region

Beginnings = NDArray[np.int64]

_NEVER = np.float32(1e9)
_NOTHING = np.int32(-(10**6))


def series_of(region: Region) -> NDArray[np.bool_]:
    """(zones, ticks)"""
    return np.array([zone.up for zone in region.zones], dtype=np.bool_)


def most_work(region: Region) -> int:
    """Ticks of training that can be had of the whole series."""
    up = series_of(region)
    on = np.full(len(up), _NOTHING, dtype=np.int32)
    best = 0
    for now in up.T:
        # Whoever stays trains; whoever comes from elsewhere, or from nowhere, starts its machine.
        on = np.where(now, np.maximum(on + 1, best), _NOTHING)
        best = max(best, int(on.max()))
    return best


def soonest_ends(region: Region, beginnings: Beginnings, length: int) -> NDArray[np.int64]:
    """For each beginning the fewest ticks in which `length` ticks of training are done; -1 where the series is too short."""
    up = series_of(region)
    zones, ticks = up.shape
    on = np.full((zones, len(beginnings)), _NOTHING, dtype=np.int32)
    best = np.zeros(len(beginnings), dtype=np.int32)
    ends = np.full(len(beginnings), -1, dtype=np.int64)
    for elapsed in range(ticks - int(beginnings.min())):
        at = beginnings + elapsed
        now = up[:, np.minimum(at, ticks - 1)] & (at < ticks)
        on = np.where(now, np.maximum(on + 1, best), _NOTHING)
        best = np.maximum(best, on.max(axis=0))
        ends[(ends < 0) & (best >= length)] = elapsed + 1
        if (ends >= 0).all():
            break
    return ends


def least_cost(
    region: Region, beginnings: Beginnings, length: int, deadline: int, *, spot: float, on_demand: float
) -> NDArray[np.float64]:
    """The least cost, at prices a tick, of `length` ticks of training within `deadline` ticks of each beginning."""
    up = series_of(region)
    shape = (len(beginnings), length + 1)
    # cost[s, w]: of the w ticks that remain at beginning s, from this tick on, when now on nothing, on demand, or in a zone.
    nothing = np.full(shape, _NEVER, dtype=np.float32)
    nothing[:, 0] = 0
    firm, zones = nothing.copy(), [nothing.copy() for _ in up]
    for elapsed in range(deadline - 1, -1, -1):
        now = up[:, beginnings + elapsed]
        fresh = np.minimum(nothing, firm + np.float32(on_demand))
        for zone, cost in enumerate(zones):
            fresh[now[zone]] = np.minimum(fresh[now[zone]], cost[now[zone]] + np.float32(spot))
        firm = np.minimum(fresh, _one_less(firm) + np.float32(on_demand))
        for zone, cost in enumerate(zones):
            trained = _one_less(cost) + np.float32(spot)
            trained[~now[zone]] = _NEVER
            zones[zone] = np.minimum(fresh, trained)
        nothing = fresh
        for cost in (nothing, firm, *zones):
            cost[:, 0] = 0
    return nothing[:, length].astype(np.float64)


def _one_less(cost: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cost of what remains after one tick of training."""
    shifted = np.empty_like(cost)
    shifted[:, 1:] = cost[:, :-1]
    shifted[:, 0] = cost[:, 0]
    return shifted
