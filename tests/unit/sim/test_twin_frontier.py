"""Other settings of a pool: what the frontier compares."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.capacity import read_capacity
from resolute_sim.twin.frontier import frontier_of, other_settings
from resolute_sim.twin.twin import Setting, simulate

DEMAND = Offer(
    offer_id="demand",
    instance_type="p3.2xlarge",
    zone="us-east-1a",
    market=Market.ON_DEMAND,
    slots=1,
    price_per_hour=3.0,
    accelerator="V100",
)
SPOT = replace(DEMAND, offer_id="spot", market=Market.SPOT, price_per_hour=1.0)
SCALING = PoolScaling(pool="p", offers=(SPOT, DEMAND), max_instances=4, consolidation=Consolidation())


def names(scaling: PoolScaling) -> list[str]:
    found = other_settings(PoolPolicy(name=PoolName("p"), scaling=scaling))
    return [name for name in found if name.startswith("spot_fallback")]


@pytest.mark.parametrize(
    ("present", "others"),
    [
        (SpotFallback(), ["after: 30m", "after: 120m", "return_after: 10m"]),
        (SpotFallback(after_s=1800.0, return_after_s=600.0), ["after: 0m", "after: 120m", "return_after: null"]),
        (SpotFallback(after_s=60.0), ["after: 0m", "after: 30m", "after: 120m", "return_after: 10m"]),
    ],
)
def test_a_pool_of_both_markets_is_tried_with_other_fallbacks(present: SpotFallback, others: list[str]) -> None:
    assert names(replace(SCALING, spot_fallback=present)) == [f"spot_fallback.{each}" for each in others]


@pytest.mark.parametrize("offer", [SPOT, DEMAND])
def test_a_pool_of_one_market_has_no_fallback_to_try(offer: Offer) -> None:
    assert names(replace(SCALING, offers=(offer,))) == []


def test_a_long_wait_for_spot_costs_less_and_lets_jobs_wait_more(tmp_path: Path) -> None:
    """Nothing is given on spot for the first 50 minutes."""
    trace = tmp_path / "us-east-1a_v100_1.json"
    trace.write_text(json.dumps({"kind": "availability", "gap_seconds": 600, "rle": [[0, 5], [9, 1000]]}))
    capacity = tuple(read_capacity([trace], [SPOT, DEMAND]))
    jobs = (TraceJob(job_id="a", submit_s=0.0, duration_s=7200.0, slots=1, group="g"),)
    reports = {
        name: simulate(Setting(pool=pool, jobs=jobs, capacity=capacity), "resolute")
        for name, pool in other_settings(PoolPolicy(name=PoolName("p"), scaling=SCALING)).items()
    }
    now, short, long = (reports[name].figures for name in ("as it is", *names(SCALING)[:2]))
    assert now.cost > 5.9 and short.cost > 5.9 and 1.9 < long.cost < 3.0
    assert now.wait_mean_s < 600.0 < 1800.0 <= short.wait_mean_s < 2700.0 <= long.wait_mean_s < 7200.0
    best = {each.figures for each in frontier_of(list(reports.values()))}
    assert long in best and short not in best
