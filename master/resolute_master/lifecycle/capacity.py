"""Whether a pool can ever hold what is asked of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from resolute_master.domain.agent import Agent
from resolute_master.domain.ids import AgentId
from resolute_master.domain.pool import PoolPolicy


def shortage(
    policy: PoolPolicy,
    agents: Iterable[Agent],
    *,
    slots: int,
    single_node: bool,
    blocked: Collection[AgentId] = (),
) -> str:
    """Why `slots` can never be had together in the pool, and what to do; empty when they can.

    An elastic pool is as large as it may grow, whatever is `blocked`: a machine that the work may not use is given back for
    another one. Another pool is as large as its agents; one that is away for a moment counts.
    """
    without = f" without {', '.join(sorted(blocked))}, which its log policies exclude," if blocked else ""
    if policy.scaling is not None:
        largest = max((offer.slots for offer in policy.scaling.offers), default=0)
        total = largest * policy.scaling.max_instances
        kind, without = f"its {policy.scaling.max_instances} machines at most have", ""
    else:
        total, largest, kind = 0, 0, "its agents have"
        usable = False
        for agent in agents:  # only as many as it takes: a pool may have thousands
            if agent.id in blocked:
                continue
            usable = True
            size = sum(slot.enabled for slot in agent.slots)
            total, largest = total + size, max(largest, size)
            if slots <= (largest if single_node else total):
                return ""
        if blocked and not usable:
            return f"pool '{policy.name}'{without} has no agent; add one, or correct the policies"
    if slots > total:
        return (
            f"resources.slots_per_trial: {slots} slots are more than pool '{policy.name}'{without} can ever have "
            f"({kind} {total}); ask for fewer slots, or choose a larger pool"
        )
    if single_node and slots > largest:
        return (
            f"resources.slots_per_trial: {slots} slots on one machine (is_single_node) are more than any machine of pool "
            f"'{policy.name}'{without} has ({largest}); ask for fewer slots, or allow several machines"
        )
    return ""
