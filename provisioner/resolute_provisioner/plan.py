"""Which machines to add or remove. Pure: everything it may look at is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from resolute_provisioner.model import Demand, InstanceView, OfferBelief, PoolScaling, ScalePlan


def plan_scale(
    pool: PoolScaling,
    instances: Sequence[InstanceView],
    demand: Demand,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> ScalePlan:
    """The changes that bring the pool's machines in line with its waiting work.

    Deterministic, and independent of the order of `instances` and of `demand.gangs`. `beliefs` is keyed by offer id; an
    offer without one is taken as untried.
    """
    raise NotImplementedError
