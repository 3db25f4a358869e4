"""What an offer costs now, and what slots cost at the price that their machines had when they were launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from resolute_master.domain.agent import Agent, SlotRef
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Offer
from resolute_provisioner.offers import priced

State = Step | ClusterState
"""To be read."""


def belief_key(pool: PoolName, offer_id: str) -> str:
    return f"{pool}/{offer_id}"


def offer_price(state: State, pool: PoolName, offer: Offer) -> float | None:
    """The price in force of the whole machine, an hour; None when it is not known."""
    known = state.get(PoolBelief, belief_key(pool, offer.offer_id))
    return priced(offer, None if known is None else known.belief).per_hour


def price_per_hour(step: Step, slots: Sequence[SlotRef]) -> float | None:
    """Of these slots together; None when the price of one is not known. Machines that nobody launched cost nothing."""
    total = 0.0
    for agent_id, count in sorted(Counter(slot.agent for slot in slots).items()):
        agent = step.get(Agent, agent_id)
        instance = step.get(Instance, agent.instance_id) if agent is not None and agent.instance_id else None
        if instance is None:
            continue
        if instance.price_per_hour is None:
            return None
        total += instance.price_per_hour / max(1, instance.slots) * count
    return total
