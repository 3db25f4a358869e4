"""Coverage of estimated start ranges: the twin on the job trace, with estimates at arrivals after day 10.

The trace is simulated without a shortage, where jobs wait for boots, and with maximum numbers of machines that bind for half of the
time and nearly always, where jobs wait for others to end. For each pending job, with a probability of `SHARE` (drawn from the seed
and the job's id alone), the benchmark computes the estimate of `det job explain` right after the decision that left the job
pending. Then the simulation continues, and the benchmark compares the true start.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from random import Random

from benchmarks.report import Row, Spread, Target
from benchmarks.traces import jobs_between, trace_name, trace_pool
from resolute_master.domain.ids import AllocationId
from resolute_master.forecast.decide import Production
from resolute_master.forecast.estimate import Estimate, estimates
from resolute_master.forecast.market import Given, Refused
from resolute_master.forecast.pool import Decision, VirtualPool
from resolute_master.forecast.pool_simulation import EPOCH, PoolSimulation
from resolute_master.forecast.run_times import RunTimes
from resolute_master.forecast.work import Overheads, Work
from resolute_provisioner.model import Offer
from resolute_sim.twin.capacity import TracedMarket
from resolute_sim.twin.twin import as_work

FIRST_DAY, LAST_DAY = 10, 20
SEED = 0
SHARE = 1.0 / 6.0
MACHINES = (4_000, 100, 80)
"""Maximum numbers of machines: without a shortage, with one for half of the time, and with one nearly always."""
LEAST_BOOT_S, MEAN_BOOT_S = 140.0, 180.0
"""Minimum of a boot; the remainder is exponentially distributed. With equal boots, a job that waits for a boot alone would nearly
always start inside its range, whatever the range."""
LEAST_WIDTH_S = 60.0


class _Boots(TracedMarket):
    """Grants every request; each machine has a random boot time."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        super().__init__(offers, (), boot_s=MEAN_BOOT_S, seed=SEED)
        self._beyond = Random(SEED)

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        answer = super().ask(offer_id, now_s)
        if isinstance(answer, Refused):
            return answer
        return replace(answer, boot_s=LEAST_BOOT_S + self._beyond.expovariate(1.0 / (MEAN_BOOT_S - LEAST_BOOT_S)))


@dataclass(slots=True)
class Oracle:
    """Makes the decisions of production, and estimates the starts of some pending jobs."""

    first_s: float
    run_times: RunTimes = field(default_factory=RunTimes)
    told: dict[str, tuple[float, Estimate]] = field(default_factory=dict)
    """By job: the time of the estimate, and the estimate."""
    costs_s: list[float] = field(default_factory=list)
    """Processor time of each estimate."""
    _seen: set[AllocationId] = field(default_factory=set)
    _production: Production = field(default_factory=Production)

    def decide(self, pool: VirtualPool) -> Decision:
        decision = self._production.decide(pool)
        now_s = (pool.now - EPOCH).total_seconds()
        if now_s >= self.first_s:
            new = [each for each in pool.snapshot.pending() if each.run_id == 1 and each.id not in self._seen]
            self._seen.update(each.id for each in new)
            chosen = [each for each in new if Random(f"{SEED}/{each.job_id}").random() < SHARE]
            if chosen:
                # The launches of this decision are requested already.
                later = pool_after(pool, decision)
                for each in chosen:
                    self.told[each.job_id] = (now_s, self._tell(later, each.id))
        return decision

    def _tell(self, pool: VirtualPool, id_: AllocationId) -> Estimate:
        begun = time.process_time()
        found = estimates(pool, self.run_times, seed=len(self.told), of=(id_,))
        self.costs_s.append(time.process_time() - begun)
        return found[id_]

    def ended(self, work: Work) -> None:
        self.run_times.add(int(work.job.owner), work.slots, work.length_s)


def pool_after(pool: VirtualPool, decision: Decision) -> VirtualPool:
    """A copy of the pool in which the decided launches are requested."""
    copy = pool.copy()
    for id_ in copy.apply_launches(decision.launches):
        copy.launched(id_)
    return copy


def main() -> list[Row]:
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as processes:
        return [row for rows in processes.map(_rows, MACHINES) for row in rows]


def _rows(machines: int) -> list[Row]:
    oracle, works = _played(machines)
    waited, widths, inside, unknown = [], [], 0, 0
    for work in works:
        told = oracle.told.get(work.job.id)
        if told is None or work.first_start_s is None:
            continue
        told_s, estimate = told
        waited.append(work.first_start_s - told_s)
        if estimate.earliest is None or estimate.latest is None:
            unknown += 1
            continue
        low_s, high_s = ((at - EPOCH).total_seconds() for at in (estimate.earliest, estimate.latest))
        widths.append(high_s - low_s)
        inside += low_s <= work.first_start_s <= high_s
    if not widths:
        raise RuntimeError(
            f"with at most {machines} machines no job got an estimate of its start, of {len(waited)} requests"
        )
    name = f"{trace_name()}, at most {machines} machines, {len(waited)} jobs asked"
    inside_percent = 100.0 * inside / len(widths)
    wait_s, width_s = statistics.median(waited), statistics.median(widths)
    unknown_percent = 100.0 * unknown / len(waited)
    cost_ms = [1000.0 * each for each in oracle.costs_s]
    return [
        Row(
            name=f"{name}: start inside the range",
            subject=Spread.one(inside_percent, "%"),
            result=inside_percent,
            unit="%",
            target=Target(at_least=80.0),
        ),
        Row(
            name=f"{name}: the same, at most",
            subject=Spread.one(inside_percent, "%"),
            result=inside_percent,
            unit="%",
            target=Target(at_most=97.0),
            notes="a range that always holds is of no use",
        ),
        Row(
            name=f"{name}: median width of the range",
            subject=Spread.one(width_s, "s"),
            bound_name="median wait from then on",
            bound=Spread.one(wait_s, "s"),
            result=width_s,
            unit="s",
            target=Target(at_most=max(LEAST_WIDTH_S, 2.0 * wait_s)),
        ),
        Row(
            name=f"{name}: no estimate",
            subject=Spread.one(unknown_percent, "%"),
            result=unknown_percent,
            unit="%",
            target=Target(at_most=10.0),
        ),
        Row(name=f"{name}: processor time of one estimate", subject=Spread.of(cost_ms, "ms")),
    ]


def _played(machines: int) -> tuple[Oracle, list[Work]]:
    pool = trace_pool(max_instances=machines)
    oracle = Oracle(first_s=FIRST_DAY * 86_400.0)
    scaling = pool.scaling
    assert scaling is not None
    simulation = PoolSimulation(
        pool=VirtualPool.empty(pool, EPOCH),
        decider=oracle,
        market=_Boots(scaling.offers),
        epoch=EPOCH,
        overheads=Overheads(),
        ended=oracle.ended,
    )
    works = [as_work(pool, number, job) for number, job in enumerate(jobs_between(0, LAST_DAY))]
    simulation.submit(works)
    simulation.run()
    return oracle, works
