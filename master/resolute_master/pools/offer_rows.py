"""The offers of a pool for display: the same for a running master and for a configuration file. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime

from resolute.wire.rest.offers import GetPoolOffersResponse, PoolOffer, PriceWatchStatus
from resolute_master.domain.instance import Instance
from resolute_provisioner import launch_errors, ranking, risk
from resolute_provisioner.model import OfferBelief, PoolScaling
from resolute_provisioner.offers import priced


def shown_offers(
    scaling: PoolScaling,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
    *,
    machines: Iterable[Instance] = (),
    prices: PriceWatchStatus | None = None,
) -> GetPoolOffersResponse:
    """All offers in the order in which they would be tried. `machines` are those of the pool that are not over."""
    blocks = launch_errors.blocks(scaling, beliefs, now)
    counts: Counter[str] = Counter()
    retired: list[str] = []
    known = {offer.offer_id for offer in scaling.offers}
    for machine in machines:
        counts[machine.offer_id] += 1
        if machine.offer_id not in known:
            retired.append(machine.id)
    return GetPoolOffersResponse(
        pool=scaling.pool,
        now=now,
        offers=tuple(
            _row(each, beliefs.get(each.offer.offer_id), blocks.get(each.offer.offer_id), counts[each.offer.offer_id])
            for each in ranking.in_order(scaling, beliefs, blocks, now)
        ),
        min_instances=scaling.min_instances,
        max_instances=scaling.max_instances,
        prices=prices,
        retired=tuple(sorted(retired)),
    )


def _row(forecast: ranking.Forecast, known: OfferBelief | None, block: risk.Block | None, machines: int) -> PoolOffer:
    offer = forecast.offer
    price = priced(offer, known)
    belief = known or OfferBelief(offer_id=offer.offer_id)
    return PoolOffer(
        id=offer.offer_id,
        instance_type=offer.instance_type,
        zone=offer.zone,
        region=offer.region,
        market=offer.market.value,
        slots=offer.slots,
        slot_type=offer.slot_type,
        accelerator=offer.accelerator,
        accelerators=offer.accelerators,
        vcpus=offer.vcpus,
        memory_gib=offer.memory_gib,
        reservation=offer.reservation,
        quota=offer.family,
        price=price.per_hour,
        price_source=price.source,
        price_as_of=price.as_of,
        max_price=offer.max_price_per_hour,
        expected_price=forecast.expected_price,
        blocked="" if block is None else block.reason,
        blocked_until=None if block is None else block.until,
        machines=machines,
        launches=belief.launches,
        consecutive_refusals=belief.consecutive_refusals,
        last_refusal=belief.last_refusal.value if belief.last_refusal else "",
        last_refusal_at=belief.last_refusal_at,
        last_message=belief.last_message,
        join_time_s=belief.join_time_s,
        boot_failures=belief.consecutive_boot_failures,
        interruptions=belief.interruptions,
        interruptions_per_hour=forecast.interruptions_per_hour,
    )
