"""Dollars and hours until a search finds its best trial, on an elastic spot pool of the twin that is smaller than the search.

A successive halving of 64 trials, 16 at a time, runs on spot machines with interruptions and refusals: with the search's estimate
of the worth of its trials, and without it (`Worth`). Both runs use the same seeded series of capacity and the same learning curves;
a curve decays to the trial's floor, plus noise.

*The same result*: the goal is the worse of the two bests of a pair; the benchmark compares cost and time until each run reaches it.
All times are virtual.

If trials wait for promotion, few of them train that the search would stop anyway, so that the gain is small: there is no target.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.report import Row, Spread, Target
from resolute.wire.states import TaskType
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.decide import Production
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.pool_simulation import EPOCH
from resolute_master.forecast.search_simulation import SearchSimulation, SimulatedResult
from resolute_master.forecast.work import Overheads
from resolute_master.searcher.methods import make
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_sim.twin.capacity import CapacityTrace, TracedMarket

TRIALS, AT_ONCE, TOP, DIVISOR, RUNGS = 64, 16, 64, 4, 4
UNIT_S = 120.0
"""Seconds of an epoch: the longest trials train for two hours."""
MACHINES = 8
PRICE = 1.0
SEEDS = 30
TARGETS = {"stopping": 0.9, "promoting": None}
"""Fraction of the dollars without `Worth`."""
POOL = PoolName("spot")
BOOT_S = 180.0
MEAN_STEP_S, LONGEST_STEP_S = 2_400.0, 14_400.0
SPACE = {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "promoting": {"max_length": {"epochs": TOP}},
    "stopping": {"max_length": {"epochs": TOP}, "stop_once": True},
}


@dataclass(frozen=True)
class Found:
    """One search on one series."""

    results: tuple[SimulatedResult, ...]
    dollars: float
    hours: float

    @property
    def best(self) -> float:
        return min(told.metric for told in self.results)

    def reached(self, metric: float) -> SimulatedResult:
        return next(told for told in self.results if told.metric <= metric)


def main() -> list[Row]:
    with ProcessPoolExecutor() as processes:
        tasks = [(form, seed, ranked) for form in FORMS for seed in range(SEEDS) for ranked in (True, False)]
        found = dict(zip(tasks, processes.map(_search, tasks), strict=True))
    rows: list[Row] = []
    for form in FORMS:
        pairs = [(found[form, seed, True], found[form, seed, False]) for seed in range(SEEDS)]
        rows += _rows(form, pairs)
    return rows


def _rows(form: str, pairs: list[tuple[Found, Found]]) -> list[Row]:
    goals = [max(ours.best, plain.best) for ours, plain in pairs]
    ours = [each.reached(goal) for (each, _), goal in zip(pairs, goals, strict=True)]
    plain = [each.reached(goal) for (_, each), goal in zip(pairs, goals, strict=True)]
    return [
        _row(f"dollars to the best, {form}", [t.cost for t in ours], [t.cost for t in plain], "$", TARGETS[form]),
        _row(f"hours to the best, {form}", [t.at_s / 3600 for t in ours], [t.at_s / 3600 for t in plain], "h", None),
        _row(
            f"dollars of the whole search, {form}",
            [a.dollars for a, _ in pairs],
            [b.dollars for _, b in pairs],
            "$",
            None,
        ),
        _row(f"the best metric, {form}", [a.best for a, _ in pairs], [b.best for _, b in pairs], "", None),
    ]


def _row(name: str, ours: list[float], plain: list[float], unit: str, target: float | None) -> Row:
    return Row(
        name=name,
        subject=Spread.of(ours, unit),
        bound_name="without what trials are worth",
        bound=Spread.of(plain, unit),
        result=fmean(ours) / fmean(plain),
        unit="of it",
        target=None if target is None else Target(at_most=target),
        notes=f"{len(ours)} seeds; means are compared",
    )


def _search(task: tuple[str, int, bool]) -> Found:
    form, seed, ranked = task
    return search(form, seed, ranked=ranked)


def search(form: str, seed: int, *, ranked: bool) -> Found:
    random = Random(seed)
    offers = tuple(
        Offer(
            offer_id=zone,
            instance_type="g",
            zone=zone,
            market=Market.SPOT,
            slots=1,
            price_per_hour=PRICE,
            accelerator="g",
        )
        for zone in ("a", "b")
    )
    traces = [_capacity(offer.offer_id, random) for offer in offers]
    scaling = PoolScaling(pool=POOL, offers=offers, max_instances=MACHINES, idle_timeout_s=300.0)
    policy = PoolPolicy(name=POOL, scaling=scaling, preemption=True)
    searcher = {
        "name": "async_halving",
        "metric": "loss",
        "num_rungs": RUNGS,
        "divisor": DIVISOR,
        "max_trials": TRIALS,
        "max_concurrent_trials": AT_ONCE,
        **FORMS[form],
    }
    simulation = SearchSimulation(
        pool=VirtualPool.empty(policy, EPOCH),
        decider=Production(),
        market=TracedMarket(offers, traces, boot_s=BOOT_S, seed=seed),
        epoch=EPOCH,
        overheads=Overheads(),
        method=make(searcher, SPACE),
        job=_job(),
        template=_template(),
        unit_s=UNIT_S,
        metric=_curves(seed),
        ranked=ranked,
    )
    simulation.begin(seed)
    simulation.run(lambda: simulation.over)
    return Found(results=tuple(simulation.results), dollars=simulation.cost(), hours=simulation.now_s / 3600)


def _capacity(zone: str, random: Random) -> CapacityTrace:
    """Capacity of half of the pool on average, in steps of about forty minutes."""
    values = [float(random.choice((0, 2, 3, 4, 5, 6))) for _ in range(400)]
    steps = [min(random.expovariate(1 / MEAN_STEP_S), LONGEST_STEP_S) for _ in values]
    return CapacityTrace(
        name=zone, kind="availability", values=tuple(values), ends=tuple(accumulate(steps)), offer_id=zone
    )


def _curves(seed: int) -> Any:
    def metric(hparams: Mapping[str, Any], number: int, units: int) -> float:
        own = Random(f"{seed}/{hparams['x']}")
        height, pace = own.uniform(0.5, 1.5), own.uniform(0.5, 0.9)
        noise: float = Random(f"{seed}/{hparams['x']}/{units}").gauss(0.0, 0.01)
        return float(hparams["x"] + height * units**-pace + noise)

    return metric


def _job() -> Job:
    return Job(
        id=JobId("search"),
        kind="EXPERIMENT",
        name="search",
        owner=UserId(1),
        workspace_id=1,
        project_id=1,
        pool=POOL,
        priority=42,
        weight=1.0,
        max_slots=None,
        submitted_at=EPOCH,
        queue_position=EPOCH.timestamp(),
    )


def _template() -> Allocation:
    return Allocation(
        id=AllocationId(""),
        task_id=TaskId(""),
        task_type=TaskType.TRIAL,
        job_id=JobId("search"),
        pool=POOL,
        slots_needed=1,
        requested_at=EPOCH,
    )
