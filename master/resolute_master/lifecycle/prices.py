"""Present prices of offers and slots, and the effect of a price change on running machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from resolute_master.domain.agent import Agent, SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, PoolName
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


class Price(NamedTuple):
    per_hour: float | None
    """None if unknown."""
    moves: bool
    """Whether it may change while they are held."""


def price_of(step: Step, slots: Sequence[SlotRef]) -> Price:
    """The total of these slots; unknown if that of one is unknown. Machines that were not launched by a pool cost nothing."""
    total, known, moves = 0.0, True, False
    for agent_id, count in sorted(Counter([slot.agent for slot in slots]).items()):
        instance = _instance_of(step, agent_id)
        if instance is None:
            continue
        moves = moves or instance.price_moves
        if instance.price_per_hour is None:
            known = False
        else:
            total += instance.price_per_hour / max(1, instance.slots) * count
    return Price(total if known else None, moves)


def price_of_slot(state: State, agent_id: AgentId) -> Price | None:
    """The price of one slot of an agent; None if nothing is paid for it."""
    instance = _instance_of(state, agent_id)
    if instance is None:
        return None
    known = instance.price_per_hour
    return Price(None if known is None else known / max(1, instance.slots), instance.price_moves)


def slots_of(allocation: Allocation) -> tuple[SlotRef, ...]:
    """All assigned slots. The allocation pays for them until its end, even if some of its containers end earlier."""
    return tuple(SlotRef(agent=each.agent, index=index) for each in allocation.containers for index in each.slots)


def _instance_of(state: State, agent_id: AgentId) -> Instance | None:
    agent = state.get(Agent, agent_id)
    return state.get(Instance, agent.instance_id) if agent is not None and agent.instance_id else None


def follow_the_market(step: Step, pool: PoolName, offers: Iterable[Offer]) -> None:
    """Applies the present prices of these offers to the pool's machines and to the allocations on their slots. A machine with a
    price of its own keeps it. If no price is known, the last one stays in force."""
    new = {offer.offer_id: offer_price(step, pool, offer) for offer in offers if offer.price_moves}
    for instance in step.find(Instance, "instances_of_pool", pool) if new else ():
        price = new.get(instance.offer_id)
        paid_no_more = instance.over or instance.paid_until is not None
        if price is None or paid_no_more or not instance.price_moves:
            continue
        moved = instance.at_price(price, step.now)
        if moved == instance:
            continue
        step.put(moved)
        for allocation in step.find(Allocation, "allocations_on_agent", instance.agent_id) if instance.agent_id else ():
            if not allocation.ended:
                step.put(_following(step, allocation, instance, moved))


def _following(step: Step, allocation: Allocation, before: Instance, after: Instance) -> Allocation:
    """The allocation after a machine under it has changed its price. The difference is added to its price: a new sum would omit
    machines that ended, for which it pays until its end."""
    slots = slots_of(allocation)
    if allocation.price_per_hour is None or before.price_per_hour is None or after.price_per_hour is None:
        return replace(allocation, price_per_hour=price_of(step, slots).per_hour, price_moves=True)
    count = sum(slot.agent == after.agent_id for slot in slots)
    more = (after.price_per_hour - before.price_per_hour) / max(1, after.slots) * count
    return replace(allocation, price_per_hour=allocation.price_per_hour + more, price_moves=True)
