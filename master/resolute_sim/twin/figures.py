"""The figures of one policy on one trace. docs/simulation.md defines each figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resolute_master.forecast.work import Bill, Fate, Work
from resolute_sim.twin.cost_split import split_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds, slot-seconds and the currency of the prices. Also the keys of the JSON report."""

    cost: float
    cost_lower_bound: float
    excess: float
    cost_useful: float
    cost_repeated: float
    cost_boot: float
    cost_empty: float
    cost_half_empty: float
    wait_mean_s: float
    wait_median_s: float
    wait_p90_s: float
    wait_p95_s: float
    wait_max_s: float
    jct_ratio: float
    utilisation: float
    goodput: float
    interruptions: int
    lost_slot_s: float
    launches: int
    jobs_completed: int
    jobs_failed: int
    jobs_stopped: int
    deadlines_missed: int
    decision_cpu_s: float
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One machine on the timeline; seconds of the trace."""

    instance: str
    offer: str
    slots: int
    launched_s: float
    joined_s: float | None
    ended_s: float
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`paid_slots` and `busy_slots` are step functions (second, slots from then on) for the plots. `waits_s` has one value per job,
    sorted."""

    policy: str
    figures: Figures
    spans: tuple[Span, ...]
    paid_slots: tuple[tuple[float, int], ...]
    busy_slots: tuple[tuple[float, int], ...]
    waits_s: tuple[float, ...]


def figures_of(
    works: Sequence[Work],
    bills: Sequence[Bill],
    *,
    cheapest_slot_hour: float,
    launches: int,
    decision_cpu_s: float,
    digest: str,
) -> Figures:
    """The figures of a finished simulation."""
    useful_slot_s = sum(work.done_s * work.slots for work in works)
    held_slot_s = sum(work.held_s * work.slots for work in works)
    paid_slot_s = sum(((bill.ended_s or 0.0) - bill.launched_s) * bill.slots for bill in bills)
    cost, bound = sum(bill.cost for bill in bills), useful_slot_s / 3600.0 * cheapest_slot_hour
    waits = sorted(work.waited_s for work in works)
    split = split_of(works, bills)
    completed = [work for work in works if work.fate is Fate.COMPLETED]
    run_s = sum(work.length_s for work in completed)
    in_all_s = sum((work.ended_s or 0.0) - work.submit_s for work in completed)
    return Figures(
        cost=cost,
        cost_lower_bound=bound,
        excess=(cost - bound) / bound if bound else 0.0,
        cost_useful=split.useful,
        cost_repeated=split.repeated,
        cost_boot=split.boot,
        cost_empty=split.empty,
        cost_half_empty=split.half_empty,
        wait_mean_s=sum(waits) / len(waits),
        wait_median_s=_nearest_rank(waits, 50),
        wait_p90_s=_nearest_rank(waits, 90),
        wait_p95_s=_nearest_rank(waits, 95),
        wait_max_s=waits[-1],
        jct_ratio=in_all_s / run_s if run_s else 0.0,
        utilisation=held_slot_s / paid_slot_s if paid_slot_s else 0.0,
        goodput=useful_slot_s / held_slot_s if held_slot_s else 1.0,
        interruptions=sum(work.interruptions for work in works),
        lost_slot_s=max(0.0, held_slot_s - useful_slot_s),
        launches=launches,
        jobs_completed=sum(work.fate is Fate.COMPLETED for work in works),
        jobs_failed=sum(work.fate is Fate.FAILED for work in works),
        jobs_stopped=sum(work.fate is Fate.STOPPED for work in works),
        deadlines_missed=sum(work.late for work in works),
        decision_cpu_s=decision_cpu_s,
        digest=digest,
    )


def _nearest_rank(ordered: Sequence[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def spans_of(bills: Mapping[str, Bill]) -> tuple[Span, ...]:
    return tuple(
        Span(
            instance=id_,
            offer=bill.offer_id,
            slots=bill.slots,
            launched_s=bill.launched_s,
            joined_s=bill.joined_s,
            ended_s=bill.ended_s or bill.launched_s,
            cause=bill.cause,
        )
        for id_, bill in sorted(bills.items())
    )


def steps(changes: Sequence[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """The running sum of (second, change), one entry a second in which it changes."""
    found: list[tuple[float, int]] = []
    total = 0
    for at_s, change in sorted(changes):
        total += change
        if found and found[-1][0] == at_s:
            found[-1] = (at_s, total)
        else:
            found.append((at_s, total))
    return tuple(found)
