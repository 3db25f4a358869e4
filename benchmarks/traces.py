"""The job trace of the benchmarks, and its pool: `RESOLUTE_TRACES` is the directory of recorded traces.

Without it the benchmarks use a synthetic trace of similar size, and the rows name it so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_sim.twin.jobs import between, read_jobs
from resolute_sim.twin.synthetic import synthetic_jobs

VARIABLE = "RESOLUTE_TRACES"
SLOT_HOUR = 3.06
SIZES = (1, 4, 8)
SLOTS_CAP = 4_000


def jobs_between(first_day: float, last_day: float) -> tuple[TraceJob, ...]:
    """The jobs of the trace `philly_dev`, or of the synthetic one."""
    directory = os.environ.get(VARIABLE)
    found = read_jobs(Path(directory) / "jobs" / "philly_dev.csv") if directory else synthetic_jobs(0)
    return between(found, first_day, last_day)


def trace_name() -> str:
    return "philly_dev" if os.environ.get(VARIABLE) else f"synthetic, because {VARIABLE} is not set"


def trace_pool(
    *, prices: dict[int, float] | None = None, max_instances: int = SLOTS_CAP, **scaling: object
) -> PoolPolicy:
    """A pool with machines of each size at `SLOT_HOUR` per slot, or at `prices` by size."""
    offers = tuple(
        Offer(
            offer_id=f"size-{size}",
            instance_type=f"size-{size}",
            zone="zone",
            market=Market.ON_DEMAND,
            slots=size,
            price_per_hour=(prices or {}).get(size, SLOT_HOUR * size),
        )
        for size in SIZES
    )
    pool = PoolScaling(pool="trace", offers=offers, max_instances=max_instances, idle_timeout_s=300.0)
    return PoolPolicy(name=PoolName("trace"), scaling=replace(pool, **scaling))  # type: ignore[arg-type]
