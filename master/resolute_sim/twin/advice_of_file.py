"""Advice for `det pool validate` on a pool of a configuration file, from past jobs or from a sample."""

from __future__ import annotations

from pathlib import Path

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.advice import Advice
from resolute_master.pools.pool_file import read_pools
from resolute_provisioner.catalogue.shipped import shipped
from resolute_sim.twin.advice import advise, suited
from resolute_sim.twin.jobs import read_jobs
from resolute_sim.twin.synthetic import synthetic_jobs

SAMPLE_JOBS, SAMPLE_DAYS = 150, 3.0


def advice_of_file(path: Path, name: str, jobs: Path | None) -> Advice | None:
    """None if no advice is possible: for a pool without an elastic provider, and, without `jobs`, for one with several machine
    types or without prices. Raises `InvalidInput` for a wrong file of jobs."""
    found = next(each for each in read_pools(path) if each.pool.pool_name == name)
    scaling, provider = found.scaling, found.pool.provider
    if scaling is None or provider is None or not any(offer.slots for offer in scaling.offers):
        return None
    types = {offer.instance_type for offer in scaling.offers}
    priced = any(offer.price_per_hour for offer in scaling.offers)
    if jobs is None and (len(types) > 1 or not priced):
        return None
    pool = PoolPolicy(name=PoolName(name), scaling=scaling)
    work = read_jobs(jobs) if jobs is not None else suited(pool, synthetic_jobs(0, jobs=SAMPLE_JOBS, days=SAMPLE_DAYS))
    return advise(pool, work, shipped(provider.name))
