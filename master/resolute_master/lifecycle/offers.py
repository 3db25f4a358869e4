"""Changes of offers: their present prices, and machines whose offer the configuration no longer has."""

from __future__ import annotations

from resolute_master.domain.change import PoolBelief
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordPrices
from resolute_master.lifecycle import instances, prices
from resolute_master.lifecycle.step import Step
from resolute_provisioner import risk
from resolute_provisioner.model import Offer, OfferBelief


def record_prices(step: Step, command: RecordPrices) -> None:
    """Records new prices, which running machines with market prices get."""
    offers = {offer.offer_id: offer for offer in _offers(step, command.pool)}
    for word in command.prices:
        if word.offer_id not in offers:
            continue
        key = prices.belief_key(command.pool, word.offer_id)
        known = step.get(PoolBelief, key)
        belief = known.belief if known is not None else OfferBelief(offer_id=word.offer_id)
        told = risk.repriced(belief, word.per_hour, source=command.source, as_of=word.as_of)
        if told != belief:
            step.put(PoolBelief(id=key, pool=command.pool, belief=told))
    priced = {word.offer_id for word in command.prices}
    prices.follow_the_market(step, command.pool, [offer for id_, offer in offers.items() if id_ in priced])


def catch_up(step: Step) -> None:
    """At a start of the master: updates the prices of running machines, which may be older than the last reported or configured
    ones."""
    for name in sorted(step.pools):
        prices.follow_the_market(step, name, _offers(step, name))


def retire(step: Step) -> None:
    """At a start of the master, whose configuration may have changed: a machine whose offer was removed continues until it is
    idle. One that the cloud has not confirmed is released before it starts."""
    for instance in step.all(Instance):
        retired = all(offer.offer_id != instance.offer_id for offer in _offers(step, instance.pool))
        if retired and not instance.over and instance.launched_at is None:
            instances.stop(step, instance, f"its offer {instance.offer_id} has left the configuration of the pool")


def _offers(step: Step, pool: PoolName) -> tuple[Offer, ...]:
    policy = step.pools.get(pool)
    return policy.scaling.offers if policy is not None and policy.scaling is not None else ()
