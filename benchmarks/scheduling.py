"""Processor time of decisions of both schedulers and its growth, compared with a heap sort of the same queue in the same process.

A pool has ten queued allocations per agent of 8 slots. A *full pass* fills the empty pool. Then single events are measured as in
the engine: the snapshot is updated with the event, the scheduler decides, the snapshot is updated with the decision. The figure
includes garbage collection as in the master. The curves are drawn to `PLOT`.
"""

from __future__ import annotations

import gc
import heapq
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

from benchmarks import scheduling_plot, scheduling_pools
from benchmarks.report import Row, Spread, Target, percentile
from benchmarks.scheduling_pools import (
    NOW,
    PRIORITIES,
    USERS,
    WORKSPACES,
    Arrival,
    applied,
    arrival,
    ended,
    with_arrival,
)
from benchmarks.timing import interleaved
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import JobId
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.garbage import survivors_frozen
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot

AGENTS = (125, 500, 1_000, 5_000)
QUEUED_PER_AGENT = 10
JUDGED = 1_000
"""Number of agents to which the targets apply."""
ROUNDS = 7
EVENTS = 300
"""Events of each kind; the 99th percentile is the third largest."""
SEED = 4
PLOT = Path(__file__).resolve().parents[1] / "docs" / "scheduling.svg"

FULL_PASS, SORT = "full pass", "heap sort of the same queue"
IDLE_ARRIVAL, ARRIVAL, EXIT = "arrival that gets nothing", "arrival that is served", "exit"
FULL_PASS_MS, EVENT_MS = 100.0, 5.0
EVENT_GROWTH, FULL_PASS_GROWTH = 0.3, 1.1

POLICIES = {
    "priority": PoolPolicy(name=scheduling_pools.POOL),
    "priority with preemption": PoolPolicy(name=scheduling_pools.POOL, preemption=True),
    "fair share": PoolPolicy(name=scheduling_pools.POOL, scheduler=SchedulerKind.FAIR_SHARE),
    "hierarchical shares": PoolPolicy(
        name=scheduling_pools.POOL, scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Processor milliseconds of one subject under one scheduler, by the number of agents."""

    scheduler: str
    subject: str
    ms: dict[int, tuple[float, ...]]

    @property
    def growth(self) -> float:
        """The exponent of the power law in the queue's length that fits the medians."""
        return exponent(
            [agents * QUEUED_PER_AGENT for agents in self.ms], [percentile(each, 50) for each in self.ms.values()]
        )


def main() -> list[Row]:
    with survivors_frozen():
        curves = [curve for name, policy in POLICIES.items() for curve in _curves(name, policy)]
    scheduling_plot.draw(
        {
            (c.scheduler, c.subject): {n * QUEUED_PER_AGENT: percentile(ms, 50) for n, ms in c.ms.items()}
            for c in curves
        },
        PLOT,
    )
    sorts = {c.scheduler: c for c in curves if c.subject == SORT}
    return [row for c in curves if c.subject != SORT for row in _rows(c, sorts[c.scheduler])]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least squares on the logarithms."""
    xs, ys = [math.log(size) for size in sizes], [math.log(value) for value in values]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


# -- rows ----------------------------------------------------------------------------------------------------------


def _rows(curve: Curve, sort: Curve) -> list[Row]:
    rows = [_row(curve, sort, agents) for agents in curve.ms]
    limit = {FULL_PASS: FULL_PASS_GROWTH, IDLE_ARRIVAL: EVENT_GROWTH}.get(curve.subject)
    rows.append(
        Row(
            name=f"{curve.scheduler}: {curve.subject}, growth",
            subject=Spread.one(curve.growth, "power of the queue's length"),
            result=curve.growth,
            target=None if limit is None else Target(at_most=limit),
        )
    )
    return rows


def _row(curve: Curve, sort: Curve, agents: int) -> Row:
    ms = curve.ms[agents]
    full = curve.subject == FULL_PASS
    worst = percentile(ms, 50 if full else 99)
    return Row(
        name=f"{curve.scheduler}: {curve.subject}, {agents} agents, {agents * QUEUED_PER_AGENT} queued",
        subject=Spread.of(ms, "ms"),
        bound_name=SORT,
        bound=Spread.of(sort.ms[agents], "ms"),
        result=worst,
        unit="ms" if full else "ms p99",
        target=Target(at_most=FULL_PASS_MS if full else EVENT_MS) if agents == JUDGED else None,
    )


# -- measuring -----------------------------------------------------------------------------------------------------


def _curves(name: str, policy: PoolPolicy) -> list[Curve]:
    taken: dict[str, dict[int, tuple[float, ...]]] = {}
    for agents in AGENTS:
        for subject, seconds in _measured(policy, agents).items():
            taken.setdefault(subject, {})[agents] = tuple(1000 * each for each in seconds)
    return [Curve(scheduler=name, subject=subject, ms=ms) for subject, ms in taken.items()]


def _measured(policy: PoolPolicy, agents: int) -> dict[str, Sequence[float]]:
    queued, source = agents * QUEUED_PER_AGENT, scheduling_pools.arrivals(Random(SEED))
    work = list(islice(source, queued))
    snapshot = scheduling_pools.pool(policy, scheduling_pools.agents(agents), work)
    keys = [(job.priority, job.queue_position, job.id) for job, _ in work]
    gc.collect()
    found: dict[str, Sequence[float]] = dict(
        interleaved({FULL_PASS: lambda: schedule(snapshot), SORT: lambda: _heap_sort(keys)}, rounds=ROUNDS)
    )
    full = Events(_settled(snapshot))
    while full.queued < queued:
        full.quietly(next(source))
    for each in (full.idle_arrival, full.served_arrival, full.exit):
        gc.collect()
        for _ in range(EVENTS):
            each(next(source))
    return found | full.seconds


def _heap_sort(keys: list[tuple[int, float, JobId]]) -> list[tuple[int, float, JobId]]:
    heap = list(keys)
    heapq.heapify(heap)
    return [heapq.heappop(heap) for _ in range(len(heap))]


def _settled(snapshot: PoolSnapshot) -> PoolSnapshot:
    """The pool after its first decisions, and after the victims have ended."""
    while (plan := schedule(snapshot)).place or plan.preempt:
        snapshot = applied(snapshot, plan)
        for allocation in list(snapshot.leaving()):
            snapshot = snapshot.without_allocation(allocation.id)
    return snapshot


class Events:
    """Applies a sequence of events to a full pool, and records the processor seconds of each by its kind."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._random = Random(SEED)
        self._running = [a.id for a in snapshot.running()]
        self.queued = sum(len(line) for line in snapshot.queue.values())
        self.seconds: dict[str, list[float]] = {IDLE_ARRIVAL: [], ARRIVAL: [], EXIT: []}

    def quietly(self, come: Arrival) -> None:
        """Adds one pending job without a measurement."""
        self._snapshot = with_arrival(self._snapshot, _least(come))
        self.queued += 1

    def idle_arrival(self, come: Arrival) -> None:
        """A job behind all running ones, so that it preempts none."""
        self._timed(IDLE_ARRIVAL, lambda: with_arrival(self._snapshot, _least(come)))

    def served_arrival(self, come: Arrival) -> None:
        """A job ahead of all others. If the scheduler cannot preempt for it, another job has just ended."""
        if not self._snapshot.policy.preemption and self._snapshot.shares is None:
            self._snapshot = self._snapshot.with_allocation(ended(self._one_that_runs()))
        number = int(come[1].task_id.rpartition("-")[2])
        job, allocation = arrival(number, priority=1, slots=1, user=USERS + number, workspace=WORKSPACES + number)
        first = replace(job, queue_position=-float(number), weight=1000.0), allocation
        self._timed(ARRIVAL, lambda: with_arrival(self._snapshot, first))

    def exit(self, come: Arrival) -> None:
        """One job ends, and a pending one takes its slots; another one is submitted, so that the length of the queue is
        constant."""
        gone = ended(self._one_that_runs())
        self._timed(EXIT, lambda: self._snapshot.with_allocation(gone))
        self.quietly(come)

    def _timed(self, kind: str, take_up: Callable[[], PoolSnapshot]) -> None:
        begun = time.process_time()
        snapshot = take_up().at(NOW)
        plan = schedule(snapshot)
        snapshot = applied(snapshot, plan)
        self.seconds[kind].append(time.process_time() - begun)
        self._snapshot = snapshot
        self._running.extend(placement.allocation for placement in plan.place)
        if plan.preempt:
            self._settle()

    def _settle(self) -> None:
        """Victims end, and pending jobs take the free slots, without a measurement."""
        for allocation in list(self._snapshot.leaving()):
            self._snapshot = self._snapshot.without_allocation(allocation.id)
        self._snapshot = _settled(self._snapshot)
        self._running = [a.id for a in self._snapshot.running()]

    def _one_that_runs(self) -> Allocation:
        at = self._random.randrange(len(self._running))
        self._running[at], self._running[-1] = self._running[-1], self._running[at]
        return self._snapshot.allocations[self._running.pop()]


def _least(come: Arrival) -> Arrival:
    job, allocation = come
    return replace(job, priority=PRIORITIES), allocation
