"""One elastic pool with two offers of one slot, and one experiment with a given number of slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_sim.workload import METRIC, Submission, Workload

POOL = PoolName("default")


def offer(name: str, price: float) -> Offer:
    return Offer(offer_id=name, instance_type=name, zone="zone", market=Market.ON_DEMAND, slots=1, price_per_hour=price)


SCALING = PoolScaling(
    pool=POOL, offers=(offer("cheap", 1.0), offer("dear", 2.0)), max_instances=9, idle_timeout_s=600.0
)


def gang(slots: int, steps: int = 3) -> Submission:
    config: Mapping[str, Any] = {
        "name": "gang",
        "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {"name": "single", "metric": METRIC, "smaller_is_better": True},
        "resources": {"slots_per_trial": slots},
        "max_restarts": 0,
        "preemption_timeout": 60,
        "environment": {"environment_variables": ["RESOLUTE_SCRIPT=pull 1s"]},
        "data": {
            "steps": steps,
            "step_s": 5.0,
            "save_every": 1,
            "save_s": 0.5,
            "failures": [],
            "worker_fails_after_s": 0.0,
            "invalid_below": 0.0,
            "leaves_when_invalid": False,
            "deaf": False,
            "stuck_s": 0.0,
        },
    }
    return Submission(at_s=0.0, config=config, pool=POOL, priority=42, max_slots=None, seed=1, activate=True)


def workload(slots: int, *, steps: int = 3) -> Workload:
    return Workload(pools={POOL: PoolPolicy(name=POOL, scaling=SCALING)}, submissions=(gang(slots, steps),))
