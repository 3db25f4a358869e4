"""The offers of an elastic pool, and what the master has learnt about them."""

from __future__ import annotations

import asyncio

from resolute.errors import NotFound
from resolute.wire.rest.offers import GetPoolOffersResponse
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine import pool_view
from resolute_master.pools.offer_rows import shown_offers
from resolute_provisioner.model import PoolScaling


async def _elastic_pool(call: Call) -> PoolScaling | PoolName:
    name = PoolName(call.text("poolName"))
    policy = call.api.engine.pools.get(name)
    if policy is None:
        raise NotFound("resource pool", name)
    return policy.scaling if policy.scaling is not None else name


async def pool_offers(call: Call, pool: PoolScaling | PoolName) -> GetPoolOffersResponse:
    """The offers of a pool. A pool that is not elastic has none."""
    engine, now = call.api.engine, call.api.clock.now()
    if not isinstance(pool, PoolScaling):
        return GetPoolOffersResponse(pool=pool, now=now)
    state = engine.state
    beliefs = {b.belief.offer_id: b.belief for b in state.find(PoolBelief, "beliefs_of_pool", pool.pool)}
    machines = [i for i in state.find(Instance, "instances_of_pool", pool.pool) if not i.over]
    watch = next((watch.status for watch in call.api.price_watches if watch.pool == pool.pool), None)
    payable = pool_view.payable(state, pool, now)
    return await asyncio.to_thread(shown_offers, payable, beliefs, now, machines=machines, prices=watch)


ROUTES = (Route("GET", "/api/v1/resource-pools/{poolName}/offers", Action.VIEW, _elastic_pool, pool_offers),)
