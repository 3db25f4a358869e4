"""What changes of an elastic pool's settings would save."""

from __future__ import annotations

from resolute.config.errors import suggestion
from resolute.errors import NotFound
from resolute.wire.rest.advice import GetPoolAdviceResponse
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy


async def _pool(call: Call) -> PoolPolicy:
    name = PoolName(call.text("poolName"))
    policy = call.api.engine.pools.get(name)
    if policy is None:
        raise NotFound("resource pool", name, suggestion(name, call.api.engine.pools))
    return policy


async def pool_advice(call: Call, pool: PoolPolicy) -> GetPoolAdviceResponse:
    """Advice for a pool. If it is being computed, the call waits for a limited time; the answer tells when that did not suffice."""
    api = call.api
    return await api.advices.of_pool(api.engine, api.store, pool, api.clock)


ROUTES = (Route("GET", "/api/v1/resource-pools/{poolName}/advice", Action.VIEW, _pool, pool_advice),)
"""The answer is the same for every caller, because it contains no job of any user."""
