"""One policy on one trace, from the first submission to the end of the last machine."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from resolute.errors import InvalidInput
from resolute.wire.states import TaskType
from resolute_master.domain.account import NO_LIMITS
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId, JobId, TaskId, UserId, allocation_id
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.decide import Decider, Production
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.pool_simulation import EPOCH, NoProgress, PoolSimulation
from resolute_master.forecast.trace_job import TraceJob
from resolute_master.forecast.work import Overheads, Work
from resolute_provisioner.model import Gang, Offer
from resolute_provisioner.offers import price_order
from resolute_provisioner.planning.gangs import fits_one_machine, needs_whole_machines
from resolute_sim.twin.baselines import Determined, FirstFit, Static, peak_machines
from resolute_sim.twin.capacity import CapacityTrace, TracedMarket
from resolute_sim.twin.figures import Report, figures_of, spans_of, steps

POLICIES = ("resolute", "determined", "static", "cheapest", "packing")
"""The names of the policies; the first is ours."""

OURS = ("resolute", "cheapest")
"""The policies that obey the pool's budget and the cost limits of jobs."""

DEFAULT_BOOT_S = 180.0

LONGEST_PERIOD_S = 2.0 * 31 * 86_400.0
"""A job that a budget does not pay for within two months never starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The whole input of a simulation: equal settings give equal reports, except `decision_cpu_s`."""

    pool: PoolPolicy
    jobs: tuple[TraceJob, ...]
    capacity: tuple[CapacityTrace, ...] = ()
    boot_s: float = DEFAULT_BOOT_S
    overheads: Overheads = field(default_factory=Overheads)
    seed: int = 0
    """Seed of the choice of machines to interrupt when the capacity falls below the number of machines."""
    lasts_s: float = 0.0
    """Length of the trace: machines that no policy ends are paid for at least this time."""


def simulate(setting: Setting, policy: str, *, tell: Callable[[float], None] = lambda part: None) -> Report:
    """Calls `tell` with the share of the jobs that have ended, from 0 to 1, each time a job ends.

    Raises `InvalidInput` for an unknown policy, for a job that the pool can never hold, and if the series of `capacity` never let a
    job progress.
    """
    pool, limited = _pool_of(setting, policy), policy in OURS
    check_jobs(pool, setting.jobs)
    # All offers, whichever the policy buys: the lower bound of the cost is the same for all policies.
    market = TracedMarket(_offers(setting.pool), setting.capacity, boot_s=setting.boot_s, seed=setting.seed)
    journal, decider = _Digest(), _decider(policy, pool, setting.jobs)
    simulation = PoolSimulation(
        pool=VirtualPool.empty(pool, EPOCH),
        decider=decider,
        market=market,
        epoch=EPOCH,
        overheads=setting.overheads,
        stopwatch=time.process_time,
        log=journal.note,
        standing=_standing(decider, pool),
        lasts_s=setting.lasts_s,
        progress_timeout_s=max(market.progress_timeout_s, LONGEST_PERIOD_S)
        if pool.budget
        else market.progress_timeout_s,
    )
    works = [as_work(pool, number, job, limited=limited) for number, job in enumerate(setting.jobs)]
    simulation.submit(works)
    ended = 0

    def one_ended(work: Work) -> None:
        nonlocal ended
        ended += 1
        tell(ended / len(works))

    simulation.ended = one_ended
    try:
        simulation.run()
    except NoProgress as error:
        if pool.budget:
            raise InvalidInput(
                f"--pool: {error}; raise the budget of pool '{pool.name}', which does not pay for them in any day or month"
            ) from None
        if not any(trace.kind == "availability" for trace in setting.capacity):
            raise  # every request is granted: the error is in the simulator, not in the input
        raise InvalidInput(
            f"--policy {policy}: {error}; give the pool offers without a series, or series with more capacity, or remove these jobs"
        ) from None
    return _report(policy, simulation, works, market, journal)


def check_jobs(pool: PoolPolicy, jobs: Sequence[TraceJob]) -> None:
    """Raises `InvalidInput` with the first job that the pool can never hold, or that its own `max_slots` excludes."""
    for job in jobs:
        check_job(pool, job)


def check_job(pool: PoolPolicy, job: TraceJob) -> None:
    """`check_jobs` for one job."""
    offers, most = _offers(pool), pool.scaling.max_instances if pool.scaling is not None else 0
    held = slots_held(pool, job.slots)
    if job.max_slots is not None and job.max_slots < held:
        raise InvalidInput(
            f"--jobs: job {job.job_id!r}, column max_slots: must be at least the {held} slots that the job holds on machines "
            f"of pool '{pool.name}', and is {job.max_slots}; raise it, or leave it empty"
        )
    gang = Gang(
        token=job.job_id,
        slots=held,
        submitted_at=EPOCH,
        single_machine=bool(job.single_node),
    )
    ways = [1 if fits_one_machine(gang, offer.slots) else needs_whole_machines(gang, offer.slots) for offer in offers]
    if not any(count is not None and count <= most for count in ways):
        sizes = ", ".join(str(size) for size in sorted({offer.slots for offer in offers}))
        raise InvalidInput(
            f"--jobs: job {job.job_id!r} asks for {job.slots} slots, and pool '{pool.name}' can never give them: its machines "
            f"have {sizes} slots and there are at most {most}; remove the job, or change the pool's offers or max_instances"
        )


def check_prices(pool: PoolPolicy, capacity: Sequence[CapacityTrace]) -> None:
    """Raises `InvalidInput` with the offers without a price: a cost without them would be too low."""
    told = [trace for trace in capacity if trace.kind == "price"]
    unknown = [
        offer.offer_id
        for offer in _offers(pool)
        if offer.price_per_hour is None and not any(trace.concerns(offer) for trace in told)
    ]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise InvalidInput(
            f"--pool: there is no price of {', '.join(unknown[:3])}{more}, and a cost without it would be too low; "
            "give it in the pool's provider (prices, or price and spot_price of offers), or a series of prices with --spot"
        )


def slots_held(pool: PoolPolicy, slots: int) -> int:
    """The slots that a job holds: more than `slots` only if it takes whole machines whose sizes do not add up to `slots`."""
    sizes = [offer.slots for offer in _offers(pool) if offer.slots > 0]
    if not sizes or slots <= max(sizes) or any(slots % size == 0 for size in sizes):
        return slots
    return -(-slots // max(sizes)) * max(sizes)


def largest_size(pool: PoolPolicy) -> int:
    return max((offer.slots for offer in _offers(pool)), default=0)


def _offers(pool: PoolPolicy) -> tuple[Offer, ...]:
    return pool.scaling.offers if pool.scaling is not None else ()


def _pool_of(setting: Setting, policy: str) -> PoolPolicy:
    """The pool as a policy uses it. Only our own policies have a budget. `determined` and `static` buy machines of one size only,
    the largest, on which most jobs fit."""
    pool = setting.pool if policy in OURS else replace(setting.pool, budget=NO_LIMITS)
    if pool.scaling is None or policy not in ("determined", "static"):
        return pool
    size = largest_size(pool)
    one = min(
        (offer for offer in pool.scaling.offers if offer.slots == size),
        key=lambda offer: (price_order(offer.price_per_hour), offer.offer_id),
    )
    return replace(pool, scaling=replace(pool.scaling, offers=(one,)))


def _decider(policy: str, pool: PoolPolicy, jobs: Sequence[TraceJob]) -> Decider:
    match policy:
        case "resolute":
            return Production()
        case "cheapest":
            return Production(learns=False)
        case "determined":
            return Determined()
        case "packing":
            return FirstFit()
        case "static":
            demand = [(job.submit_s, job.duration_s, job.slots) for job in jobs]
            most = pool.scaling.max_instances if pool.scaling is not None else 0
            return Static(machines=min(most, peak_machines(demand, largest_size(pool))))
        case _:
            raise InvalidInput(f"--policy: {policy!r} is not known; use one of: {', '.join(POLICIES)}")


def _standing(decider: Decider, pool: PoolPolicy) -> int:
    """Number of machines that the policy never ends."""
    match decider:
        case Static():
            return decider.machines
        case FirstFit():
            return 0
        case _:
            return pool.scaling.min_instances if pool.scaling is not None else 0


def as_work(pool: PoolPolicy, number: int, trace: TraceJob, *, limited: bool = True) -> Work:
    """Without `limited`, the job has no cost limit. Decisions about its deadline use its true run time, as if its owner had set
    `estimated_duration`."""
    submitted_at = EPOCH + timedelta(seconds=trace.submit_s)
    owner = UserId(_number_of(trace.group))
    deadline_s = trace.deadline_s
    max_cost = trace.max_cost if limited else None
    job = Job(
        id=JobId(f"{number:07d}"),
        kind="EXPERIMENT",
        name=trace.job_id,
        owner=owner,
        workspace_id=_number_of(f"workspace {trace.workspace}") if trace.workspace else int(owner),
        project_id=1,
        pool=pool.name,
        priority=pool.default_priority if trace.priority is None else trace.priority,
        weight=trace.weight,
        max_slots=trace.max_slots,
        submitted_at=submitted_at,
        queue_position=submitted_at.timestamp(),
        experiment_id=None if max_cost is None else ExperimentId(number + 1),
    )
    single = trace.single_node if trace.single_node is not None else trace.slots <= largest_size(pool)
    first = Allocation(
        id=allocation_id(TaskId(job.id), 1),
        task_id=TaskId(job.id),
        task_type=TaskType.TRIAL,
        job_id=job.id,
        pool=pool.name,
        slots_needed=slots_held(pool, trace.slots),
        requested_at=submitted_at,
        single_node=single,
        preemptible=trace.preemptible,
        deadline=None if deadline_s is None else EPOCH + timedelta(seconds=deadline_s),
    )
    return Work(
        job=job,
        first=first,
        submit_s=trace.submit_s,
        length_s=trace.duration_s,
        slots=trace.slots,
        known_s=trace.duration_s,
        deadline_s=deadline_s,
        max_cost=max_cost,
    )


def _number_of(name: str) -> int:
    return 1 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:3])


def _report(
    policy: str, simulation: PoolSimulation, works: Sequence[Work], market: TracedMarket, journal: _Digest
) -> Report:
    bills = simulation.bills
    figures = figures_of(
        works,
        list(bills.values()),
        cheapest_slot_hour=market.cheapest_slot_hour,
        launches=simulation.launches,
        decision_cpu_s=simulation.decision_s,
        digest=journal.hexdigest(),
    )
    paid = [(at_s, n) for b in bills.values() for at_s, n in ((b.launched_s, b.slots), (b.ended_s or 0.0, -b.slots))]
    return Report(
        policy=policy,
        figures=figures,
        spans=spans_of({str(id_): bill for id_, bill in bills.items()}),
        paid_slots=steps(paid),
        busy_slots=steps(_busy(works)),
        waits_s=tuple(sorted(work.waited_s for work in works)),
    )


def _busy(works: Sequence[Work]) -> list[tuple[float, int]]:
    held = ((span, work.slots) for work in works for span in work.held)
    return [change for (start_s, end_s), slots in held for change in ((start_s, slots), (end_s, -slots))]


class _Digest:
    """Digest of the log of decisions and events."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def note(self, at_s: float, word: str, subject: str) -> None:
        self._hash.update(f"{at_s!r} {word} {subject}\n".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
