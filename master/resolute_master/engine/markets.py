"""What a pool's work means for the choice between spot and on demand: the state in the provisioner's words.

Trials of experiments with a deadline bring what is known of their length; what runs is looked at because it may have to
move. Pools with one market only, and those without machines of their own, cost nothing here.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.engine.memory import Memory
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import (
    Demand,
    Gang,
    InstanceView,
    Market,
    OfferBelief,
    PoolScaling,
    ScalePlan,
)
from resolute_provisioner.planning import rebalance
from resolute_provisioner.planning.deadline import Course, Work
from resolute_provisioner.planning.disruption import leave
from resolute_provisioner.planning.markets import (
    MarketPlan,
    Running,
    ToBeHad,
    Waiting,
    choices,
    course_of_running,
    course_of_start,
    held_back,
    plan_markets,
    there,
    where_there_is_room,
)

DEFAULT_JOIN_TIME_S = 120.0
"""Assumed of an offer of which no machine has joined yet."""

START_S = 60.0
"""From a machine that has joined to the first new step: the task's start and the restore of its checkpoint."""

SENTENCES = 8
"""Allocations of one job that are explained."""

Reading = ClusterState | Step


def plan_pool(
    reading: Reading,
    pool: PoolScaling,
    machines: Sequence[InstanceView],
    demand: Demand,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> MarketPlan:
    """`demand` and `machines` with their markets, the moves that begin, and what to drain now: for a move, or because what is at
    risk has got its replacement."""
    at_risk = rebalance.drains(machines)
    if not _has_choice(pool):
        return MarketPlan(demand=demand, instances=tuple(machines), drains=at_risk)
    waiting: dict[str, Waiting] = {}
    for gang in demand.gangs:
        allocation = reading.get(Allocation, gang.token)
        if allocation is not None:
            waiting[gang.token] = _waiting(reading, pool, allocation, beliefs)
    running = tuple(_running(reading, pool, machines, beliefs, now))
    found = plan_markets(pool, machines, demand, waiting, running, beliefs, now)
    named = {each.instance_id for each in at_risk}
    return replace(found, drains=(*at_risk, *(each for each in found.drains if each.instance_id not in named)))


def with_drains(plan: ScalePlan, markets: MarketPlan) -> ScalePlan:
    """`plan` with what the choice of markets drains; a machine that goes anyway needs no further reason."""
    named = {each.instance_id for each in plan.terminations}
    drains = tuple(each for each in markets.drains if each.instance_id not in named)
    if not drains:
        return plan
    return replace(plan, terminations=tuple(sorted((*plan.terminations, *drains), key=lambda each: each.instance_id)))


def sentences(memory: Memory, job: Job, now: datetime) -> tuple[str, ...]:
    """Why the job's work waits for spot, runs on demand, or is about to move: one for each of its first allocations; none
    where there is no choice between markets."""
    scaling = memory.pools[job.pool].scaling
    if scaling is None or not _has_choice(scaling):
        return ()
    beliefs = {each.belief.offer_id: each.belief for each in memory.state.find(PoolBelief, "beliefs_of_pool", job.pool)}
    ids = sorted(memory.state.keys("instances_of_pool", job.pool), key=str)
    machines = [view for id_ in ids if (view := memory.machines.get(InstanceId(str(id_)))) is not None]
    found = []
    for allocation in memory.state.find(Allocation, "allocations_of_job", job.id)[:SENTENCES]:
        course = course_of(memory.state, scaling, machines, allocation, beliefs, now)
        if course is not None:
            markets = " or ".join(sorted(market.value.replace("_", " ") for market in course.markets))
            found.append(f"{allocation.id} is for {markets}: {course.reason}.")
    return tuple(found)


def course_of(
    reading: Reading,
    pool: PoolScaling,
    machines: Sequence[InstanceView],
    allocation: Allocation,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> Course | None:
    """Why an allocation is given the markets that it is given; None where there is no choice."""
    if not _has_choice(pool) or allocation.ended or allocation.slots_needed == 0:
        return None
    gang = _gang_of(allocation)
    among = choices(pool, beliefs).holding(gang)
    if allocation.assigned_at is None:
        waiting, to_be_had = _waiting(reading, pool, allocation, beliefs), ToBeHad(pool, machines, beliefs, now)
        course = course_of_start(pool, among, gang, waiting, to_be_had, now)
        return where_there_is_room(course, among, gang, there(pool, machines))
    found = (each for each in _running(reading, pool, machines, beliefs, now) if each.gang.token == allocation.id)
    running = next(found, None)
    if running is None:
        return None
    return held_back(course_of_running(pool, among, running, now), running, leave(pool.disruption, beliefs, now))


def _has_choice(pool: PoolScaling) -> bool:
    return len({offer.market for offer in pool.offers}) > 1


def _waiting(
    reading: Reading, pool: PoolScaling, allocation: Allocation, beliefs: Mapping[str, OfferBelief]
) -> Waiting:
    return Waiting(
        token=allocation.id,
        since=allocation.requested_at,
        work=waiting_work(reading, pool, allocation, beliefs),
    )


def _running(
    reading: Reading,
    pool: PoolScaling,
    machines: Sequence[InstanceView],
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> Iterator[Running]:
    """Gangs that have machines of this pool for themselves. Who shares one stays: others would have to move along."""
    market_of = {offer.offer_id: offer.market for offer in pool.offers}
    concerned = _concerned(reading, pool, machines)
    of_gang: dict[str, list[InstanceView]] = {}
    shared: set[str] = set()
    for machine in machines:
        for token in machine.occupants:
            if token in concerned:
                of_gang.setdefault(token, []).append(machine)
                if len(machine.occupants) > 1:
                    shared.add(token)
    for token, own in sorted(of_gang.items()):
        allocation = reading.get(Allocation, token)
        # Of an offer that has left the configuration the market is not known, and neither is what a move would gain.
        if token in shared or allocation is None or any(each.offer_id not in market_of for each in own):
            continue
        if allocation.slots_needed == 0 or allocation.assigned_at is None or not allocation.preemptible:
            continue
        on_spot = any(market_of[each.offer_id] is Market.SPOT for each in own)
        yield Running(
            gang=_gang_of(allocation),
            machines=tuple(sorted(each.instance_id for each in own)),
            market=Market.SPOT if on_spot else Market.ON_DEMAND,
            since=allocation.assigned_at,
            leaving=allocation.leaving,
            work=running_work(reading, pool, allocation, beliefs, now),
        )


def _gang_of(allocation: Allocation) -> Gang:
    return Gang(
        token=allocation.id,
        slots=allocation.slots_needed,
        submitted_at=allocation.requested_at,
        single_machine=allocation.single_node or allocation.slots_needed <= 1,
    )


def _concerned(reading: Reading, pool: PoolScaling, machines: Sequence[InstanceView]) -> Container[str]:
    """The running work whose market may change: with a deadline, or about to lose its machine; all of it where the pool
    returns to spot by itself."""
    if pool.spot_fallback.return_after_s is not None:
        return {token for machine in machines for token in machine.occupants}
    leaving = (machine.occupants for machine in machines if machine.notice is not None)
    return {str(key) for key in reading.keys("deadlines_of_pool", pool.pool)}.union(*leaving)


def waiting_work(
    reading: Reading, pool: PoolScaling, allocation: Allocation, beliefs: Mapping[str, OfferBelief]
) -> Work | None:
    """What is left for an allocation that has not started: all that was not saved. None without a deadline."""
    return _work(reading, pool, allocation, beliefs, now=None)


def running_work(
    reading: Reading,
    pool: PoolScaling,
    allocation: Allocation,
    beliefs: Mapping[str, OfferBelief],
    now: datetime,
) -> Work | None:
    """What is left for an allocation that runs: all that was not done. None without a deadline."""
    return _work(reading, pool, allocation, beliefs, now=now)


def _work(
    reading: Reading,
    pool: PoolScaling,
    allocation: Allocation,
    beliefs: Mapping[str, OfferBelief],
    *,
    now: datetime | None,
) -> Work | None:
    if allocation.deadline is None or allocation.trial_id is None:
        return None
    trial = reading.get(Trial, allocation.trial_id)
    experiment = reading.get(Experiment, trial.experiment_id) if trial is not None else None
    if trial is None or experiment is None:
        return None
    total = _total_steps(experiment, trial)
    done, saved = _done(trial, now), float(trial.latest_checkpoint.steps_completed if trial.latest_checkpoint else 0)
    step_s = trial.pace.step_s if trial.pace is not None else None
    # Before there is a pace, the owner's estimate.
    total_s = experiment.estimated_duration_s if step_s is None or total is None else total * step_s
    share = _share(done if now is not None else saved, total)
    return Work(
        submitted_at=experiment.started_at,
        deadline=allocation.deadline,
        remaining_s=None if total_s is None else total_s * (1 - share),
        total_s=total_s,
        restart_s=_join_time_s(pool, beliefs) + START_S,
        unsaved_s=0.0 if now is None or step_s is None else max(0.0, done - saved) * step_s,
    )


def _total_steps(experiment: Experiment, trial: Trial) -> float | None:
    """The whole length: what the search asks for, else what the trial's own progress makes it."""
    if (batches := experiment.max_batches) is not None:
        return float(batches)
    return trial.steps_completed / trial.progress if trial.progress > 0 and trial.steps_completed else None


def _share(steps: float, total: float | None) -> float:
    """The part of the whole that so many steps are; 0 where the length is not known in steps."""
    if total is None:
        return 0.0
    return min(1.0, steps / total) if total else 1.0


def _done(trial: Trial, now: datetime | None) -> float:
    """Steps by now: those that were told, and those that its pace makes likely since, up to its usual next report."""
    pace = trial.pace
    if trial.reported_run != trial.run_id and trial.latest_checkpoint is not None:
        return float(trial.latest_checkpoint.steps_completed)  # what older runs did past that is not there any more
    if now is None or pace is None or not pace.step_s or pace.run_id != trial.run_id:
        return float(trial.steps_completed)
    silent_s = max(0.0, (now - pace.at).total_seconds())
    return trial.steps_completed + min(silent_s, pace.interval_s) / pace.step_s


def _join_time_s(pool: PoolScaling, beliefs: Mapping[str, OfferBelief]) -> float:
    """Until a machine on demand is there: the slowest that is known of those offers, to be safe."""
    known = [
        belief.join_time_s
        for offer in pool.offers
        if offer.market is Market.ON_DEMAND
        and (belief := beliefs.get(offer.offer_id)) is not None
        and belief.join_time_s is not None
    ]
    return max(known, default=DEFAULT_JOIN_TIME_S)
