"""Splits the cost of a simulation by purpose, from the lifetimes of its machines and the slots that jobs held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from resolute_master.forecast.work import Bill, Work

Held = tuple[float, float, int]
"""Start, end and slots of one job on one machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSplit:
    """In the currency of the prices. The sum is the whole cost. All seconds of a machine cost the same."""

    useful: float
    """Slots of jobs that made progress."""
    repeated: float
    """Slots of jobs that saved, restored or repeated lost work, and slots beyond the job's request."""
    boot: float
    """Machines from launch to join."""
    empty: float
    """Joined machines without work."""
    half_empty: float
    """Free slots of machines with work."""


def split_of(works: Sequence[Work], bills: Iterable[Bill]) -> CostSplit:
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for work in works:
        for (start_s, end_s), machines in zip(work.held, work.held_on, strict=True):
            for machine, slots in machines:
                held[machine].append((start_s, end_s, slots))
    boot = empty = half_empty = 0.0
    slot_second: dict[str, float] = {}
    for bill in bills:
        ended_s = bill.launched_s if bill.ended_s is None else bill.ended_s
        whole_s = ended_s - bill.launched_s
        if whole_s <= 0.0 or bill.slots <= 0:
            boot += bill.cost
            continue
        second = bill.cost / whole_s
        joined_s = ended_s if bill.joined_s is None else min(bill.joined_s, ended_s)
        slot_second[bill.instance] = second / bill.slots
        in_use_s, slots_s = _in_use(held[bill.instance])
        boot += second * (joined_s - bill.launched_s)
        empty += second * (ended_s - joined_s - in_use_s)
        half_empty += second * (in_use_s - slots_s / bill.slots)
    useful, in_all = _of_work(works, slot_second)
    return CostSplit(useful=useful, repeated=in_all - useful, boot=boot, empty=empty, half_empty=half_empty)


def _in_use(held: Sequence[Held]) -> tuple[float, float]:
    """Seconds with work on the machine, and the slot-seconds of that work."""
    in_use_s = slots_s = 0.0
    until_s = float("-inf")
    for start_s, end_s, slots in sorted(held):
        slots_s += (end_s - start_s) * slots
        in_use_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return in_use_s, slots_s


def _of_work(works: Sequence[Work], slot_second: dict[str, float]) -> tuple[float, float]:
    """Cost of the progress of all jobs, and cost of all slots that they held."""
    useful = in_all = 0.0
    for work in works:
        cost = held_s = 0.0
        for (start_s, end_s), machines in zip(work.held, work.held_on, strict=True):
            for machine, slots in machines:
                cost += (end_s - start_s) * slots * slot_second.get(machine, 0.0)
                held_s += (end_s - start_s) * slots
        in_all += cost
        useful += cost * min(1.0, work.done_s * work.slots / held_s) if held_s else 0.0
    return useful, in_all
