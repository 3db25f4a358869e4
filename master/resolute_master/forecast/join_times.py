"""The distribution of times to join, from machines of the pool that have joined, by offer. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from resolute_master.forecast.pool import VirtualPool
from resolute_provisioner.ranking import DEFAULT_JOIN_TIME_S

LEAST = 10
"""Least number of machines of an offer that show its variation."""
SPREAD = 0.15
"""Deviation of the logarithm of the time to join, while too few are known: the usual deviation among machines of one kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTimes:
    """`seen` are the times of the machines that have joined, by offer, sorted; `usual_s` is the learnt time of each offer."""

    seen: Mapping[str, tuple[float, ...]]
    usual_s: Mapping[str, float]

    @staticmethod
    def of(pool: VirtualPool) -> JoinTimes:
        seen: dict[str, list[float]] = {}
        for view in pool.machines.values():
            if view.joined_at is not None:
                seen.setdefault(view.offer_id, []).append((view.joined_at - view.requested_at).total_seconds())
        beliefs = pool.beliefs.items()
        return JoinTimes(
            seen={id_: tuple(sorted(times)) for id_, times in seen.items() if len(times) >= LEAST},
            usual_s={id_: belief.join_time_s for id_, belief in beliefs if belief.join_time_s is not None},
        )

    def draw_s(self, offer_id: str, random: Random, elapsed_s: float = 0.0) -> float:
        """From the request to the join of one machine, of which `elapsed_s` have passed: one of those seen that took longer,
        else what is usual with `SPREAD`. Between the observed times it is drawn evenly, so that a few observations do not
        determine all draws."""
        seen = self.seen.get(offer_id, ())
        first, last = bisect_right(seen, elapsed_s), len(seen) - 1
        if len(seen) - first >= LEAST // 2:
            place = first + random.random() * (last - first)
            below = int(place)
            return seen[below] + (place - below) * (seen[min(below + 1, last)] - seen[below])
        return self.usual_s.get(offer_id, DEFAULT_JOIN_TIME_S) * random.lognormvariate(0.0, SPREAD)
