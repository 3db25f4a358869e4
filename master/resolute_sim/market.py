"""The moves of a world's spot prices while faults happen, and the interval at which its master reads them."""

from __future__ import annotations

import asyncio
import random

from resolute_master.domain.copies import replace
from resolute_provisioner.model import Offer
from resolute_sim.fault_plan import FaultPlan, PriceMoves
from resolute_sim.world import World

LEAST, MOST = 0.7, 1.35
"""Range of a price as multiples of the offer's first price. Limits are guaranteed for prices up to `account.RISE` times the first
one."""


def with_moving_prices(rng: random.Random, fault_plan: FaultPlan) -> FaultPlan:
    """The same fault_plan; in some worlds the market moves. Drawn after everything else, so that the others stay as they are."""
    if rng.random() < 0.4:
        return fault_plan
    moves = PriceMoves(mean_gap_s=rng.choice((60.0, 300.0, 900.0)), asked_every_s=rng.choice((20.0, 60.0, 300.0)))
    return replace(fault_plan, prices=moves)


async def move_prices(world: World) -> None:
    """Continues until it is cancelled; at once over where nothing can move."""
    moves = world.fault_plan.prices
    policies = (policy for _, policy in sorted(world.pools.items()))
    offers = [o for p in policies if p.scaling is not None for o in p.scaling.offers if o.price_moves]
    while moves is not None and offers:
        await asyncio.sleep(world.rng.expovariate(1.0 / moves.mean_gap_s))
        offer = world.rng.choice(offers)
        price = round(_first_price(offer) * world.rng.uniform(LEAST, MOST), 4)
        world.cloud.move_price(offer.offer_id, price)
        world.tally["market: a price moves"] += 1
        world.tell(f"cloud  {offer.offer_id} costs {price} an hour now")


def _first_price(offer: Offer) -> float:
    return float(offer.slots) if offer.price_per_hour is None else offer.price_per_hour
