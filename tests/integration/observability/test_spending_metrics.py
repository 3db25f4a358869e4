"""What Prometheus reads of accounts and budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.administration import SetBudget
from resolute_master.domain.commands import Reconsider
from resolute_master.domain.instance import Instance
from support.api import a_config, settled
from support.cluster import T0
from support.engines import launched
from support.observed import an_observed_api, samples
from support.paid_cluster import a_paid_pool

CONFIG = {"resource_pools": [{"pool_name": "default"}], "launch_error": False}


async def test_a_pool_that_spends_and_reaches_its_budget(tmp_path: Path) -> None:
    clock = FixedClock(T0)
    async with an_observed_api(tmp_path, clock=clock, pools=a_paid_pool(), config=CONFIG) as (world, _):
        await world.engine.submit(SetBudget(owner="pool", name="default", per_day=1.0, per_month=None))
        await world.create(a_config())
        await settled(world)
        (machine,) = world.engine.state.all(Instance)
        await launched(world.engine, machine, clock.now())
        clock.advance(100)
        found = await samples(world)
        mine = {"owner": "pool", "id": "default"}
        assert found("resolute_spent_total", **mine) == pytest.approx(0.1)
        assert found("resolute_spending_per_hour", **mine) == 3.6
        assert found("resolute_spent_in_period", **mine, period="day") == pytest.approx(0.1)
        assert found("resolute_budget", **mine, period="day") == 1.0
        assert found("resolute_budget_used_up", **mine) == 0
        clock.advance(850)
        await world.engine.submit(Reconsider())
        assert (await samples(world))("resolute_budget_used_up", **mine) == 1
