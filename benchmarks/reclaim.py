"""Preemption for one large job in a pool that is full of small ones: the victims, and the time of the decision.

1,000 agents of 8 slots run 8,000 low-priority jobs of one slot each. A gang of half the cluster, on 500 whole agents, arrives. The
processor time includes the update of the snapshot with the job, the decision, and the update with the 4,000 victims.
"""

from __future__ import annotations

import gc
import time

from benchmarks import scheduling_pools
from benchmarks.report import Row, Spread, Target
from benchmarks.scheduling_pools import NOW, SLOTS, applied, arrival, with_arrival
from resolute_master.domain.copies import replace
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.scheduler.plan import Plan
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot

AGENTS = 1_000
GANG = AGENTS * SLOTS // 2
ROUNDS = 5
LIMIT_S = 2.0

POLICIES = {
    "priority with preemption": PoolPolicy(name=scheduling_pools.POOL, preemption=True),
    "fair share": PoolPolicy(name=scheduling_pools.POOL, scheduler=SchedulerKind.FAIR_SHARE),
    "hierarchical shares": PoolPolicy(
        name=scheduling_pools.POOL, scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True
    ),
}


def main() -> list[Row]:
    return [row for name, policy in POLICIES.items() for row in _rows(name, policy)]


def _rows(name: str, policy: PoolPolicy) -> list[Row]:
    snapshot = crowded(policy, AGENTS)
    seconds: list[float] = []
    plan = Plan()
    for _ in range(ROUNDS):
        gc.collect()
        begun = time.process_time()
        come = with_gang(snapshot, GANG)
        plan = schedule(come)
        applied(come, plan)
        seconds.append(time.process_time() - begun)
    return [
        Row(
            name=f"{name}: {GANG:,} of {AGENTS * SLOTS:,} slots in use are requested",
            subject=Spread.of(seconds, "s"),
            result=max(seconds),
            unit="s",
            target=Target(at_most=LIMIT_S),
            notes=f"{len(plan.preempt):,} of {AGENTS * SLOTS:,} are preempted",
        )
    ]


def crowded(policy: PoolPolicy, agents: int) -> PoolSnapshot:
    """Every slot runs a separate job of one user."""
    work = [arrival(number, priority=90, slots=1) for number in range(agents * SLOTS)]
    snapshot = scheduling_pools.pool(policy, scheduling_pools.agents(agents), work)
    return applied(snapshot, schedule(snapshot)).at(NOW)


def with_gang(snapshot: PoolSnapshot, slots: int) -> PoolSnapshot:
    """One more job, of another workspace. With fair share its weight makes the gang smaller than its share."""
    job, gang = arrival(len(snapshot.agents) * SLOTS, priority=10, slots=slots, user=2, workspace=2)
    return with_arrival(snapshot, (replace(job, weight=2.0 * slots), gang))
