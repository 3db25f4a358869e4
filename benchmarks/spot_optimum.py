"""The optimum of a policy that knows the whole series: the bounds of `benchmarks.spot`, by exact dynamic programming.

The policy uses one machine at a time. Each new one costs a tick without training (boot and restore, as in `spot_world`), and lasts
while its zone has capacity. All quantities are in ticks of the region, for many beginnings at once.
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
    """Maximum number of ticks of training in the whole series."""
    up = series_of(region)
    on = np.full(len(up), _NOTHING, dtype=np.int32)
    best = 0
    for now in up.T:
        # A machine in the same zone trains; a change of zone, or a first machine, costs a start.
        on = np.where(now, np.maximum(on + 1, best), _NOTHING)
        best = max(best, int(on.max()))
    return best


def soonest_ends(region: Region, beginnings: Beginnings, length: int) -> NDArray[np.int64]:
    """For each beginning the minimum number of ticks for `length` ticks of training; -1 if the series is too short."""
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
    """The lowest cost, at prices per tick, of `length` ticks of training within `deadline` ticks of each beginning."""
    up = series_of(region)
    shape = (len(beginnings), length + 1)
    # cost[s, w]: cost of the w remaining ticks at beginning s, from this tick on, by the present machine: none, on demand, or a
    # zone.
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
    """The remaining cost after one tick of training."""
    shifted = np.empty_like(cost)
    shifted[:, 1:] = cost[:, :-1]
    shifted[:, 0] = cost[:, 0]
    return shifted
