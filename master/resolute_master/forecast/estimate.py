"""Start estimates: many simulations of the present pool, with run times sampled from the past. Pure.

Each simulation draws the (remaining) run time of all running and pending work and the times to join of machines; the production
scheduler and planner decide. The starts of one simulation are one sample; the middle 90 % of all samples are the range. Future
submissions are not part of it: more important work that arrives later delays a start beyond the estimate.

A simulation runs up to a bound of decisions. The start of work that is still pending then is computed from the backlog before
it, as of a fluid: the slot-seconds of all work before it by the drawn run times, over the slots in use (the virtual waiting
time of queueing theory: work in front over the rate of service)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from random import Random

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, InstanceId
from resolute_master.forecast.decide import LazyProduction
from resolute_master.forecast.join_times import JoinTimes
from resolute_master.forecast.market import Given, MarketMove, Refused
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.pool_simulation import PoolSimulation, SimulationStuck
from resolute_master.forecast.run_times import LEAST, Basis, RunTimes
from resolute_master.forecast.work import Overheads, Work
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_provisioner import risk
from resolute_provisioner.model import OfferBelief
from resolute_provisioner.planning.notes import why_blocked

SIMULATIONS = 19
"""Between the k-th of n samples from below and the k-th from above another one lies with a probability of (n + 1 - 2k)/(n + 1)
(order statistics of equally distributed values): 90 % between the extremes of 19."""
DECISIONS = 6_000
"""Decisions that all simulations of one estimate of starts may take together, in equal parts: each takes about a millisecond of
processor time. What is left then is calculated by the work that waits before it."""
HEAD = 1_000
"""Allocations of a queue that are simulated for an estimate of starts, but under fair share; the rest is calculated by the work
that waits before it."""
HORIZON_S = 14 * 86_400.0
"""Time beyond which nothing is estimated."""
MOST_STUCK = 0.5
"""Number of simulations that may not end. The extremes of the ten of 19 that are left then hold a start with 82 %."""
OUTSIDE = 0.1
"""Fraction of jobs that start outside of their range."""
ALIKE = 0.8
"""Share of a user's jobs whose run times are drawn with the same rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When one allocation will start. `expected_at` is the median, `earliest` to `latest` the range that holds it with 90 %, or
    82 % where only ten simulations came to an end; `latest` None: more than one simulation in twenty did not see it start. Without
    `expected_at` there is no estimate, and `basis` is the reason."""

    expected_at: datetime | None = None
    earliest: datetime | None = None
    latest: datetime | None = None
    basis: str


def estimates(
    pool: VirtualPool,
    run_times: RunTimes,
    *,
    seed: int,
    of: Collection[AllocationId] | None = None,
    simulations: int = SIMULATIONS,
    decisions: int = DECISIONS,
    decider: LazyProduction | None = None,
    yield_control: Callable[[], None] = lambda: None,
) -> dict[AllocationId, Estimate]:
    """Estimates for all pending work of `pool`, or for that of it in `of`; `pool` is not changed. A simulation ends as soon as all
    of this work has started. The same arguments give the same estimates. `yield_control` is called between decisions, and for each
    drawn or computed value: in long queues these take longer than the decisions. A simulation whose decisions do not settle is left
    out, and `basis` gives the number of the others; raises `SimulationStuck` if they are too few."""
    jobs = pool.snapshot.jobs
    waiting = [each.id for each in pool.snapshot.pending() if each.job_id in jobs]
    targets = waiting if of is None else [id_ for id_ in waiting if id_ in of]
    if not targets:
        return {}
    stopped, play = stoppage(_head(pool, waiting))
    opened = play.copy()
    opening = (decider or LazyProduction()).opened(opened)
    fails = {each.allocation: each.reason for each in opening.give_ups}
    joins = JoinTimes.of(pool)
    samples: list[list[float]] = []
    stuck: list[SimulationStuck] = []
    for number in range(simulations):
        likeness = _Likeness(Random(f"{seed}/{number}"))
        simulation = PoolSimulation(
            pool=opened.copy(),
            decider=opening.copy(),
            market=_Likely(joins, likeness.random),
            epoch=pool.now,
            overheads=Overheads(),
        )
        _adopt(simulation, play, run_times, joins, likeness, yield_control)
        # While the pool requests no machines, work may be too large for the present ones: the backlog is no estimate then.
        line = _Line(pool, run_times, likeness, () if stopped else waiting)
        try:
            samples.append(_play(simulation, line, targets, max(1, decisions // simulations), yield_control))
        except SimulationStuck as error:
            stuck.append(error)
    if len(stuck) > MOST_STUCK * simulations:
        raise SimulationStuck(f"{len(stuck)} of {simulations} simulations: {stuck[0]}")
    played = (
        f"{len(samples)} of {simulations} simulations (the others did not settle)"
        if stuck
        else f"{simulations} simulations"
    )
    found = {}
    for id_, starts in zip(targets, zip(*samples, strict=True), strict=True):
        yield_control()
        if id_ in fails:
            found[id_] = Estimate(basis=f"it is about to fail: {fails[id_]}")
        else:
            found[id_] = _estimate(pool, run_times, id_, sorted(starts), played, stopped)
    return found


def _head(pool: VirtualPool, waiting: Sequence[AllocationId]) -> VirtualPool:
    """The pool with the head of its queue alone: as many as a simulation starts at most, and some that may pass others. Not
    under fair share, where the queue has no order of its own."""
    if len(waiting) <= HEAD or pool.snapshot.shares is not None:
        return pool
    snapshot, tail = pool.snapshot, set(waiting[HEAD:])
    kept = [each for each in snapshot.allocations.values() if each.id not in tail]
    of_kept = {each.job_id for each in kept}
    jobs = [job for job in snapshot.jobs.values() if job.id in of_kept]
    return replace(
        pool.copy(),
        snapshot=PoolSnapshot.build(
            snapshot.policy, snapshot.agents.values(), jobs, kept, snapshot.supply, now=snapshot.now
        ),
    )


def _play(
    simulation: PoolSimulation,
    line: _Line,
    targets: Sequence[AllocationId],
    decisions: int,
    yield_control: Callable[[], None],
) -> list[float]:
    """Runs the simulation; returns the starts of `targets`, in seconds from now. Those beyond the horizon, and those that never
    start, are infinite."""
    works = dict(simulation.works)
    all_played = all(id_ in works for id_ in targets)
    awaited = targets if all_played else [id_ for id_, work in works.items() if work.started_s is None]
    unstarted = [works[id_] for id_ in reversed(awaited)]

    def over() -> bool:
        yield_control()
        # What is the most important starts first at most times, so that this seldom looks at more than one.
        while unstarted and (unstarted[-1].first_start_s is not None or unstarted[-1].fate is not None):
            unstarted.pop()
        return not unstarted or simulation.now_s > HORIZON_S or simulation.decisions >= decisions

    simulation.run(over, strict=False)
    cut_off = not all_played or simulation.decisions >= decisions
    backlog_s = line.backlogs_s(works, simulation, yield_control) if cut_off else {}
    starts = []
    for id_ in targets:
        at_s = works[id_].first_start_s if id_ in works else None
        at_s = backlog_s.get(id_, inf) if at_s is None else at_s
        starts.append(inf if at_s > HORIZON_S else at_s)
    return starts


class _Line:
    """All pending allocations of one simulation, in the order of the queue."""

    def __init__(
        self, pool: VirtualPool, run_times: RunTimes, likeness: _Likeness, waiting: Sequence[AllocationId]
    ) -> None:
        self._pool, self._run_times, self._likeness, self._waiting = pool, run_times, likeness, waiting

    def backlogs_s(
        self, works: Mapping[AllocationId, Work], simulation: PoolSimulation, yield_control: Callable[[], None]
    ) -> dict[AllocationId, float]:
        """When each allocation that has not started in the simulation will have no work before it in the queue, in seconds."""
        in_use = sum(work.slots for work in simulation.works.values() if work.started_s is not None)
        if not in_use:
            return {}
        found: dict[AllocationId, float] = {}
        at_s = simulation.now_s
        for id_ in self._waiting:
            yield_control()
            work = works.get(id_)
            if work is not None and work.first_start_s is not None:
                continue
            found[id_] = at_s
            if work is None:
                work = _work(self._pool, self._run_times, self._pool.snapshot.allocations[id_], self._likeness)
            at_s += work.slots * (work.length_s - work.done_s) / in_use
        return found


def _adopt(
    simulation: PoolSimulation,
    pool: VirtualPool,
    run_times: RunTimes,
    joins: JoinTimes,
    likeness: _Likeness,
    yield_control: Callable[[], None],
) -> None:
    """Adds the pending, running and starting parts of `pool` to the simulation, with the values that it draws for them."""
    for allocation in pool.snapshot.allocations.values():
        yield_control()
        # What a job that has moved to another pool still holds here is taken to stay.
        if allocation.job_id in pool.snapshot.jobs:
            simulation.adopt(_work(pool, run_times, allocation, likeness))
    for id_, view in pool.machines.items():
        if view.joined_at is None:
            elapsed_s = (pool.now - view.requested_at).total_seconds()
            took_s = joins.draw_s(view.offer_id, likeness.random, elapsed_s)
            simulation.expect(InstanceId(id_), max(1.0, took_s - elapsed_s))


def _work(pool: VirtualPool, run_times: RunTimes, allocation: Allocation, likeness: _Likeness) -> Work:
    job = pool.snapshot.jobs[allocation.job_id]
    since = allocation.assigned_at
    elapsed_s = 0.0 if since is None else max(0.0, (pool.now - since).total_seconds())
    left_s = run_times.remaining_s(likeness.part(int(job.owner)), int(job.owner), allocation.slots_needed, elapsed_s)
    runs = not waits(allocation)
    progress = pool.progress_of(allocation.id)
    return Work(
        job=job,
        first=allocation,
        submit_s=0.0,
        length_s=(elapsed_s if runs else 0.0) + (2.0 * HORIZON_S if left_s is None else left_s),
        slots=allocation.slots_needed,
        runs=allocation.run_id if runs else allocation.run_id - 1,
        started_s=-elapsed_s if runs else None,
        known_s=None if progress is None else progress.total_s,
        begun=0.0 if progress is None else progress.begun(runs=runs, elapsed_s=elapsed_s),
    )


def _estimate(
    pool: VirtualPool, run_times: RunTimes, id_: AllocationId, ordered: Sequence[float], played: str, stopped: str
) -> Estimate:
    """The estimate for one allocation. `ordered`: its start in each simulation, the earliest first; `played`: the simulations,
    for display; `stopped`: why the pool requests no machines, or ""."""
    allocation = pool.snapshot.allocations[id_]
    job = pool.snapshot.jobs[allocation.job_id]
    known = run_times.basis(int(job.owner), allocation.slots_needed)
    middle_s = ordered[len(ordered) // 2]
    if middle_s == inf:
        return Estimate(basis=_why_unknown(run_times, known, played, stopped))
    past = (
        "machines that are there or coming"
        if known is None
        else f"run times of {known.runs} ended run(s) of {known.of}"
    )
    left_out = max(1, int((len(ordered) + 1) * OUTSIDE / 2.0))
    low_s, high_s = ordered[left_out - 1], ordered[-left_out]
    return Estimate(
        expected_at=pool.now + timedelta(seconds=middle_s),
        earliest=pool.now + timedelta(seconds=low_s),
        latest=None if high_s == inf else pool.now + timedelta(seconds=high_s),
        basis=f"{played} of the present queue, with {past}",
    )


def _why_unknown(run_times: RunTimes, known: Basis | None, played: str, stopped: str) -> str:
    if stopped:
        return f"the present machines do not suffice, and the pool requests no others: {stopped}"
    if known is None:
        return f"an estimate needs {LEAST} runs of the pool that have ended, and there are {len(run_times)}"
    return f"it did not start within {HORIZON_S / 86_400:.0f} days in most of {played}"


def stoppage(pool: VirtualPool) -> tuple[str, VirtualPool]:
    """Why the pool requests no machines until an operator acts, empty if some offer is available; and the pool without the offers
    that wait for an operator (or for a quota). What passes by itself is none, and is waited for in the play: lack of capacity,
    machines that did not join, a pool that gave up for a while."""
    scaling = pool.policy.scaling
    if scaling is None:
        return "", pool
    patient = {id_: replace(each, backoff_until=None, boot_backoff_until=None) for id_, each in pool.beliefs.items()}
    blocks = risk.blocks(scaling.offers, patient, pool.now)
    if not blocks:
        return "", pool
    found = pool.copy()
    for id_, block in blocks.items():
        belief = found.beliefs.get(id_) or OfferBelief(offer_id=id_)
        # Without a back-off of its own, after which a pool that counts failed launches would try.
        found.beliefs[id_] = replace(belief, misconfigured=belief.misconfigured or block.reason, backoff_until=None)
    return why_blocked(blocks) if len(blocks) == len(scaling.offers) else "", found


class _Likeness:
    """Work that one user submits together is alike: a sweep fails as a whole or runs for days as a whole. In each simulation most
    of a user's work has a run time of the same rank, so that when the first will end is no surer than the past has it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._common: dict[int, float] = {}

    def part(self, user: int) -> float:
        if user not in self._common:
            self._common[user] = self.random.random()
        return self._common[user] if self.random.random() < ALIKE else self.random.random()


class _Likely:
    """A market that grants every offer, and whose machines join after about their usual time."""

    def __init__(self, joins: JoinTimes, random: Random) -> None:
        self._joins, self._random = joins, random

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        return Given(boot_s=self._joins.draw_s(offer_id, self._random))

    def ended(self, offer_id: str) -> None:
        """Nothing changes: there are always more."""

    def next_move(self, after_s: float) -> float | None:
        return None

    def move(self, now_s: float, alive: Mapping[str, list[InstanceId]]) -> MarketMove:
        return MarketMove(at_s=now_s)

    def price(self, offer_id: str, now_s: float) -> float | None:
        return None
