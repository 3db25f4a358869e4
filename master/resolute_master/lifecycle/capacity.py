"""Whether a pool can ever hold a request."""

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

    A pool is as large as its agents; one that is away for a moment counts. An elastic one is as large as it may grow with those
    that were started by hand, whatever of its machines is `blocked`: what the work may not use is released for another one.
    """
    scaling, total, largest, usable = policy.scaling, 0, 0, False
    without = f" without {', '.join(sorted(blocked))}, which its log policies exclude," if blocked else ""
    if scaling is not None:
        largest = max((offer.slots for offer in scaling.offers), default=0)
        total, usable = largest * scaling.max_instances, True
    for agent in agents:
        if slots <= (largest if single_node else total):
            break  # only as many as it takes: a pool may have thousands
        if agent.id in blocked or (scaling is not None and agent.instance_id is not None):
            continue
        usable = True
        size = sum(slot.enabled for slot in agent.slots)
        total, largest = total + size, max(largest, size)
    if blocked and not usable:
        return f"pool '{policy.name}'{without} has no agent; add one, or correct the policies"
    kind = "its agents have"
    if scaling is not None:
        kind, without = f"its {scaling.max_instances} machines at most, and what was started by hand, have", ""
    if slots > total:
        return (
            f"resources.slots_per_trial: {slots} slots are more than pool '{policy.name}'{without} can have "
            f"({kind} {total}); request fewer slots, or choose a larger pool"
        )
    if single_node and slots > largest:
        return (
            f"resources.slots_per_trial: {slots} slots on one machine (is_single_node) are more than any machine of pool "
            f"'{policy.name}'{without} has ({largest}); request fewer slots, or allow several machines"
        )
    return ""
