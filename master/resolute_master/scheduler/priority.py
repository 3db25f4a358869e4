"""The priority scheduler.

1. Order: priority (1 first), then the job's queue position, its submission, the request, the id. Allocations with and without
   slots are two queues that do not wait for each other. `placing` describes the steps for each allocation.
2. The first infeasible allocation of each priority gets a reservation. With preemption, preemptible work may run on reserved
   slots, until only work under the protection of `min_runtime` blocks the reservation: then nothing else may start there.
   Non-preemptible work preempts nothing while an earlier allocation has only a reservation: the reservation would move to the
   freed slots and cause another preemption, for ever.
3. So less important work overtakes more important work only if that cannot start anyway and is not delayed (backfill).
4. A pending allocation preempts preemptible ones of lesser priority, never those of its own job. Of its own priority, it preempts
   only allocations whose job is later in the queue: its guests, which started on agents reserved for it while it waited, and jobs
   that were moved behind its own by hand. If every place in the queue counted, a victim would queue again and preempt the next
   allocation, and so on to the end of the queue.

The pass reads the allocations that it can place or hold something for, and one allocation of each other shape: capacity only
shrinks during a pass, so a shape that has failed once has failed for the rest of its priority, and only the first need that fails
is tried on the agents at lesser priorities too. It ends at the first infeasible allocation when nothing is left for any other: no
slot is or will be free, no machine is available, and no running allocation is less important.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heapreplace, merge
from itertools import groupby, takewhile
from math import inf, nextafter

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId
from resolute_master.scheduler.eviction import Claim, Group, Level
from resolute_master.scheduler.order import Loss, QueueKey, Shape, Standing
from resolute_master.scheduler.outcome import Outcome, PlacementResult
from resolute_master.scheduler.placing import Line, Placing
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.sorted_map import SortedMap

NEEDLESS = 1.0
"""`Standing.needless` of an allocation that its search would stop anyway, by the results so far."""

Lines = Iterable[tuple[Shape, SortedMap[QueueKey, AllocationId]]]


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    preemption = snapshot.policy.preemption
    precedence = ByPriority(snapshot)
    placing = Placing(snapshot, precedence, preemption=preemption, soft_reservations=preemption, starts=starts)

    def no_room(shape: Shape, key: QueueKey) -> bool:
        return placing.no_room and not (preemption and precedence.any_after(shape.priority, key.position))

    def no_place(_shape: Shape, _key: QueueKey) -> bool:
        return placing.no_place

    for auxiliary, ended in ((False, no_room), (True, no_place)):
        for (kind, priority), lines in groupby(snapshot.queue.items_from((auxiliary,)), key=lambda item: item[0][:2]):
            placing.another_reservation()
            victims = preemption and precedence.any_after(priority)
            feasible = (line for line in lines if victims or not placing.infeasible(line[0]))
            if kind != auxiliary or not in_queue_order(placing, feasible, ended):
                break
    return placing.outcome()


def in_queue_order(placing: Placing, lines: Lines, ended: Callable[[Shape, QueueKey], bool]) -> bool:
    """Offer all allocations, the earliest first, until no feasible shape is left.

    False when the pass has `ended`: the allocation at that point is infeasible, and so are all later ones.
    """
    heap: list[tuple[QueueKey, Shape, Line, Iterator[QueueKey]]] = []
    for shape, waiting in lines:
        keys = iter(waiting)
        heap.append((next(keys), shape, placing.line(shape), keys))
    heapify(heap)
    while heap and not placing.full:
        key, shape, line, keys = heap[0]
        result = placing.offer(line, key)
        if result >= PlacementResult.RESERVED and ended(shape, key):
            return False
        following = None if result >= PlacementResult.RESERVED else next(keys, None)
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following, shape, line, keys))
    return not placing.full


class ByPriority:
    """The allocations that another may preempt: those of lesser priority, its guests, those it was moved ahead of by hand, and
    those of its own job that their search would stop anyway."""

    independent = True

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._without_victims: dict[object, int] = {}
        """The fewest slots for which there are no victims, by `where`: later allocations have fewer candidates."""

    def any_after(self, priority: int, position: float = -inf) -> bool:
        """Whether a preemptible allocation is less important."""
        last = self._snapshot.evictable.last_key()
        return last is not None and last[:3] >= (priority, position, NEEDLESS)

    def levels(self, claim: Claim) -> Iterator[Level]:
        """Candidates of lesser priorities, the least waste first; then those of its own priority, in any order."""
        snapshot, mine = self._snapshot, self._snapshot.standing(claim.allocation)
        first = snapshot.losses.first_key()
        while first is not None and -first.negative_priority > mine.priority:
            priority = -first.negative_priority
            yield Level((-priority,), self._cheapest_first(priority), cheapest_first=True)
            first = snapshot.losses.first_key_from((1 - priority,))
        yield Level((-mine.priority,), self._equals(claim.allocation, mine), cheapest_first=False)

    def _equals(self, claimant: Allocation, mine: Standing) -> Iterator[Allocation]:
        """Candidates of its own priority: all that must yield, and some others."""
        snapshot = self._snapshot
        yield from self._needless(claimant, mine)
        if self._was_moved(claimant):
            later = takewhile(lambda each: each[:2] > mine[:2], snapshot.evictable.keys_before((mine.priority, inf)))
            yield from (snapshot.allocations[standing.allocation] for standing in later)
        else:
            there = {id_ for agent in claimant.reserved_agents for id_, _ in snapshot.occupancy.get(agent) or ()}
            yield from (each for id_ in sorted(there) if _is_guest(each := snapshot.allocations[id_], claimant))

    def _needless(self, claimant: Allocation, mine: Standing) -> Iterator[Allocation]:
        """Allocations of the claimant's own job that their search would stop anyway, if the search may continue the claimant."""
        if claimant.worth.likelihood > 0.0:
            end = (mine.priority, mine.position, inf)
            last = takewhile(lambda each: each[:3] == (*mine[:2], NEEDLESS), self._snapshot.evictable.keys_before(end))
            found = (self._snapshot.allocations[standing.allocation] for standing in last)
            yield from (each for each in found if each.job_id == claimant.job_id)

    def _was_moved(self, claimant: Allocation) -> bool:
        job = self._snapshot.jobs.get(claimant.job_id)
        return job is not None and job.queue_position != job.submitted_at.timestamp()

    def _was_put_behind(self, allocation: Allocation, claimant: Allocation) -> bool:
        """Whether the claimant's job was submitted later, and is ahead of the other in the queue."""
        job, competitor = (self._snapshot.jobs.get(each.job_id) for each in (claimant, allocation))
        if job is None or competitor is None or not self._was_moved(claimant):
            return False
        return (competitor.submitted_at, competitor.id) < (job.submitted_at, job.id)

    def _cheapest_first(self, priority: int) -> Iterator[Allocation]:
        """Candidates of a priority, the least waste first. Allocations of one size and likelihood keep their order as time
        passes."""
        losses, now = self._snapshot.losses, self._snapshot.now.timestamp()
        lines: list[Iterator[Loss]] = []
        first = losses.first_key_from((-priority,))
        while first is not None and first.negative_priority == -priority:
            lines.append(self._of_kind(first))
            first = losses.first_key_from((-priority, first.slots, nextafter(first.likelihood, inf)))
        in_order = merge(*lines, key=lambda each: each.slots * each.likelihood * max(now + each.negative_since, 0.0))
        return (self._snapshot.allocations[loss.allocation] for loss in in_order)

    def _of_kind(self, first: Loss) -> Iterator[Loss]:
        following = (loss for loss, _ in self._snapshot.losses.items_from(first))
        return takewhile(lambda each: each[:3] == first[:3], following)

    def any_lesser(self, claim: Claim) -> bool:
        mine = self._snapshot.standing(claim.allocation)
        if next(self._needless(claim.allocation, mine), None) is not None:
            return True
        if self._finds_no_victims(claim):
            return False
        equals = claim.allocation.reserved_agents or self._was_moved(claim.allocation)
        return self.any_after(mine.priority, mine.position if equals else inf)

    def found_no_victims(self, claim: Claim) -> None:
        self._without_victims[claim.where] = min(claim.slots, self._without_victims.get(claim.where, claim.slots))

    def _finds_no_victims(self, claim: Claim) -> bool:
        """Whether a smaller claim found no victims: an agent that could be emptied for this one would have held that, unless the
        agent is smaller."""
        fewest = self._without_victims.get(claim.where)
        if fewest is None or claim.slots < fewest:
            return False
        return claim.single_node or fewest == claim.slots or fewest <= (self._snapshot.sizes.first_key() or 0)

    def groups(self, allocation: Allocation) -> Iterable[Group]:
        return ()

    def yields(self, allocation: Allocation, claim: Claim, lost: Mapping[Group, int]) -> bool:
        claimant = claim.allocation
        mine, theirs = (self._snapshot.standing(each) for each in (claimant, allocation))
        if allocation.job_id == claimant.job_id:
            return theirs.needless == NEEDLESS > mine.needless
        if theirs[:2] <= mine[:2]:
            return False
        return (
            theirs.priority > mine.priority
            or _is_guest(allocation, claimant)
            or self._was_put_behind(allocation, claimant)
        )

    def importance(self, allocation: Allocation) -> tuple[float, ...]:
        return (-self._snapshot.priority_of(allocation.job_id),)

    def last_resort(self, allocation: Allocation) -> float:
        return -self._snapshot.standing(allocation).position

    def left(self, victims: Iterable[Allocation]) -> None:
        """Clears the cache: victims change no priority, and may free slots for several allocations."""
        self._without_victims.clear()

    def reason(self, claim: Claim, victim: Allocation) -> str:
        if victim.job_id == claim.allocation.job_id:
            return "which the search may continue, while it would stop this one by its results so far"
        mine, lesser = (self._snapshot.priority_of(a.job_id) for a in (claim.allocation, victim))
        return "which is earlier in the queue" if lesser == mine else f"which has priority {mine} before {lesser}"


def _is_guest(allocation: Allocation, holder: Allocation) -> bool:
    """Whether it started while the holder waited, on an agent that is reserved for the holder."""
    began = allocation.assigned_at
    overtook = began is not None and began >= holder.requested_at
    return overtook and any(container.agent in holder.reserved_agents for container in allocation.containers)
