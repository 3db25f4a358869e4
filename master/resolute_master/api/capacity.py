"""Whether a pool can ever hold what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable

from resolute_master.domain.agent import Agent
from resolute_master.domain.pool import PoolPolicy


def shortage(policy: PoolPolicy, agents: Iterable[Agent], *, slots: int, single_node: bool) -> str:
    """Why `slots` can never be had together in the pool, and what to do; empty when they can.

    An elastic pool is as large as it may grow, another one as its agents; one that is away for a moment counts.
    """
    if policy.scaling is not None:
        largest = max((offer.slots for offer in policy.scaling.offers), default=0)
        total = largest * policy.scaling.max_instances
        kind = f"its {policy.scaling.max_instances} machines at most have"
    else:
        total, largest, kind = 0, 0, "its agents have"
        for agent in agents:  # only as many as it takes: a pool may have thousands
            size = sum(slot.enabled for slot in agent.slots)
            total, largest = total + size, max(largest, size)
            if slots <= (largest if single_node else total):
                return ""
    if slots > total:
        return (
            f"resources.slots_per_trial: {slots} slots are more than pool '{policy.name}' can ever have ({kind} {total}); "
            "ask for fewer slots, or choose a larger pool"
        )
    if single_node and slots > largest:
        return (
            f"resources.slots_per_trial: {slots} slots on one machine (is_single_node) are more than any machine of pool "
            f"'{policy.name}' has ({largest}); ask for fewer slots, or allow several machines"
        )
    return ""
