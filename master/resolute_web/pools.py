"""Summaries of pools, for the home page and the page of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from resolute.wire.rest.pools import ResourcePool
from resolute_master.api.context import ApiContext
from resolute_master.api.resources.pools import show_pool
from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Intent

DRAWN = 64
"""Maximum number of slots that are drawn one by one; more are shown as numbers only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSummary:
    """`pool` as the API shows it; `coming` are slots of machines on their way."""

    pool: ResourcePool
    coming: int
    machines: int
    per_hour: float
    elastic: bool
    wind_down_reason: str
    """The reason for which a budget prevents starts in this pool; empty if none does."""

    @property
    def free(self) -> int:
        return max(0, self.pool.slots_available - self.pool.slots_used)

    @property
    def drawn(self) -> bool:
        return self.pool.slots_available + self.coming <= DRAWN


async def summaries(api: ApiContext) -> Sequence[PoolSummary]:
    """Summaries of all pools, by name."""
    names = sorted(api.engine.pools)
    snapshots = [api.engine.snapshot(name) for name in names]
    shown = await asyncio.to_thread(lambda: [show_pool(snapshot, api.config) for snapshot in snapshots])
    return [_summary(api, name, pool) for name, pool in zip(names, shown, strict=True)]


def _summary(api: ApiContext, name: PoolName, pool: ResourcePool) -> PoolSummary:
    state, now = api.engine.state, api.clock.now()
    machines = [each for each in state.all(Instance) if each.pool == name and not each.over and not each.refused]
    account = state.get(Account, account_id(Owner.POOL, name))
    current = None if account is None else account.until(now)
    return PoolSummary(
        pool=pool,
        coming=sum(each.slots for each in machines if each.joined_at is None and each.intent is Intent.RUN),
        machines=len(machines),
        per_hour=0.0 if current is None else current.rate_per_hour,
        elastic=api.engine.pools[name].scaling is not None,
        wind_down_reason=current.wind_down_reason if current is not None else "",
    )
