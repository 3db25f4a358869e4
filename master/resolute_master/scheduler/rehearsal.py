"""Decisions on changed snapshots, a bounded number of them: would the allocation start?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.scheduler.carried_out import carried_out, without_vacated
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.plan import Hold
from resolute_master.scheduler.schedule import run
from resolute_master.scheduler.snapshot import PoolSnapshot

PASSES = 60
"""Passes that one explanation may take. A pass over a full pool of 1,000 agents takes some milliseconds, one that
fills an empty pool some ten times that, and a user waits for the answer."""


Decides = Callable[[PoolSnapshot], Outcome]
"""The decision of a pool on a snapshot: `schedule.run`, or with the rules of a whole pool `decision.rehearsing`."""


class PassesSpent(Exception):
    """Raised when the passes are used up before the question is decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The allocation would be placed on `agents`: at once, or when the allocations in `after` have saved and ended."""

    agents: tuple[AgentId, ...]
    after: tuple[AllocationId, ...] = ()


class Rehearsal:
    """Passes on behalf of one question."""

    def __init__(self, passes: int = PASSES, decides: Decides = run) -> None:
        self.limit = passes
        self.made = 0
        self._decides = decides

    @property
    def left(self) -> int:
        return self.limit - self.made

    def run(self, snapshot: PoolSnapshot) -> Outcome:
        """Runs a pass. Raises `PassesSpent`."""
        if self.left <= 0:
            raise PassesSpent
        self.made += 1
        return self._decides(snapshot)

    def start(self, snapshot: PoolSnapshot, allocation: AllocationId) -> Start | None:
        """How the allocation would start; None when it would keep waiting. Raises `PassesSpent`."""
        return start_in(snapshot, self.run(snapshot), allocation)

    def lasting_start(self, snapshot: PoolSnapshot, allocation: AllocationId) -> Start | None:
        """As `start`, but None if another allocation would take the slots of its victims. Raises `PassesSpent`."""
        outcome = self.run(snapshot)
        found = start_in(snapshot, outcome, allocation)
        if found is None or not found.after:
            return found
        later = without_vacated(carried_out(snapshot, outcome.plan), found.after)
        return found if self.starts(later, allocation) else None

    def starts(self, snapshot: PoolSnapshot, allocation: AllocationId) -> bool:
        """Whether it would start at once. Raises `PassesSpent`."""
        found = self.start(snapshot, allocation)
        return found is not None and not found.after


def start_in(snapshot: PoolSnapshot, outcome: Outcome, allocation: AllocationId) -> Start | None:
    """How a pending allocation starts by the outcome of a pass."""
    for placement in outcome.plan.place:
        if placement.allocation == allocation:
            return Start(agents=placement.agents)
    if outcome.results.get(allocation) in (PlacementResult.VACATING, PlacementResult.PREEMPTING):
        hold = hold_of(outcome, allocation)
        if hold is not None:
            return Start(
                agents=tuple(agent for agent, _ in hold.agents), after=tuple(vacating_for(snapshot, outcome, hold))
            )
    return None


def hold_of(outcome: Outcome, allocation: AllocationId) -> Hold | None:
    return next((hold for hold in outcome.plan.holds if hold.allocation == allocation), None)


def vacating_for(snapshot: PoolSnapshot, outcome: Outcome, hold: Hold) -> list[AllocationId]:
    """Allocations that are vacating or preempted on usable slots of the agents of a hold."""
    victims = {preemption.allocation for preemption in outcome.plan.preempt}
    return sorted(
        {
            id_
            for agent, _ in hold.agents
            for id_, occupant in snapshot.occupancy.get(agent) or ()
            if not snapshot.agents[agent].usable_slots.isdisjoint(occupant.slots)
            if occupant.leaving or id_ in victims
        }
    )


def result_in(snapshot: PoolSnapshot, outcome: Outcome, allocation: Allocation) -> PlacementResult:
    """The result of a pending allocation. One that the pass did not read has the result of the first of its shape that got
    nothing, except that a cap applies to its own job only."""
    return outcome.result(snapshot, allocation)
