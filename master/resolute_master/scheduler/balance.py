"""What each group of a fair-share pool holds during one pass, and which allocations yield to which.

The state is that of `shares`, plus the slots that the pass assigned, minus those of its victims: victims free no slots yet, but no
longer count for their groups, as in the next pass. The rules are those of `fair_share`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby, takewhile
from math import inf
from operator import itemgetter
from typing import NamedTuple

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.scheduler.eviction import Claim, Level
from resolute_master.scheduler.shares import USER_DEPTH, LineKey, Member, Path, Rank, Shares
from resolute_master.scheduler.snapshot import PoolSnapshot

Importance = tuple[float, ...]
"""The charges of the groups of a job, negative, from the outermost, then that of the job when it loses the least that it can."""


class _Sharer(NamedTuple):
    """A job, and the groups that it is in, from the outermost to the job itself."""

    member: Member
    groups: tuple[Path, ...]
    smallest: int
    """Slots of the job's smallest preemptible allocation; 0 if there is none."""


def shares_of(snapshot: PoolSnapshot) -> Shares:
    assert snapshot.shares is not None, "the pool is not divided by fair share"
    return snapshot.shares


class Balance:
    """What each group holds during the pass: including slots that were assigned or held for it, without its victims, and
    including the charge for its past usage."""

    independent = False

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._shares = shares_of(snapshot)
        self._depth = USER_DEPTH if snapshot.policy.hierarchical_shares else 0
        """Levels of groups above the jobs."""
        self._changes: dict[Path, int] = {}
        """Assigned slots minus those of victims."""
        self._burdens: dict[Path, float] = {}
        """Cached values of the snapshot, as are these:"""
        self._smallest: dict[Path, int] = {}
        self._first_ranks: dict[Path, Rank | None] = {}
        self._sharers: dict[JobId, _Sharer] = {}
        self._losers: dict[Path, dict[str, Member]] = {}
        """The groups or jobs inside each group with victims, each with the job that lost slots last."""
        self._have_lost: list[Member] = []
        self._richest = _Richest()
        self._ranked: dict[Path, list[tuple[float, Path]]] = {}
        """The groups inside a group with preemptible allocations, as (negative charge, group): the richest first."""
        self._listed: dict[Path, float] = {}
        """The negative charge of each of them there."""
        self._least: dict[Path, Importance] = {}
        """Cached results of `_least_inside`, for groups without changes since."""
        self._importance: dict[JobId, Importance] = {}
        """Cached until the next change, as these:"""
        self._outer_importance: dict[Path, Importance] = {}
        """By group of jobs, as `_outer`."""
        self._without_victims: dict[tuple[Path, object], float] = {}
        """By group and claim: the charge from which on a member finds no victims among the others."""

    # -- what a group holds --------------------------------------------------------------------------------------

    def charge(self, group: Path, weight: float) -> float:
        return self.after(group, weight, 0)

    def after(self, group: Path, weight: float, change: int) -> float:
        """The charge after a change."""
        burden = self._burdens.get(group)
        if burden is None:
            burden = self._burdens[group] = self._shares.burden(group)
        # One division: equal charges are equal numbers, whatever their parts.
        return (burden + self._changes.get(group, 0) + change + 1) / weight

    def smallest(self, group: Path) -> int:
        """Slots of the smallest preemptible allocation inside; 0 if there is none."""
        known = self._smallest.get(group)
        if known is None:
            known = self._smallest[group] = self._shares.orders.smallest(group)
        return known

    def give(self, member: Member, slots: int) -> None:
        self._change(member, slots)
        self._without_victims.clear()

    def left(self, victims: Iterable[Allocation]) -> None:
        for victim in victims:
            member = self._sharer(victim).member
            for depth, name in enumerate(member.path):
                self._losers.setdefault(member.path[:depth], {})[name] = member
            self._have_lost.append(member)
            self._change(member, -victim.slots_held)
        self._without_victims.clear()

    def losers(self, parents: Path) -> Mapping[str, Member]:
        """The groups or jobs inside the group with victims, by name, each with the job that lost slots last."""
        return self._losers.get(parents, {})

    def have_lost(self) -> list[Member]:
        """Jobs with victims since the last call; a job may occur more than once."""
        lost, self._have_lost = self._have_lost, []
        return lost

    def _change(self, member: Member, slots: int) -> None:
        path = member.path
        self._importance.clear()
        self._outer_importance.clear()
        for depth in range(1, len(path) + 1):
            group = path[:depth]
            self._changes[group] = self._changes.get(group, 0) + slots
            self._least.pop(group, None)
            if depth == len(path):
                continue
            self._richest.changed(group)
            listed = self._listed.get(group)
            if listed is not None:
                ranked = self._ranked[group[:-1]]
                del ranked[bisect_left(ranked, (listed, group))]
                self._listed[group] = -self.charge(group, 1.0)
                insort(ranked, (self._listed[group], group))

    def _sharer(self, allocation: Allocation) -> _Sharer:
        known = self._sharers.get(allocation.job_id)
        if known is None:
            member = self._snapshot.member(allocation)
            path = member.path
            groups = tuple(path[:depth] for depth in range(1, len(path) + 1))
            mine = self._shares.sharer(member)
            known = self._sharers[allocation.job_id] = _Sharer(member, groups, mine.smallest if mine else 0)
        return known

    # -- which allocations yield to which ------------------------------------------------------------------------

    def levels(self, claim: Claim) -> Iterator[Level]:
        for importance, members in groupby(self._lesser(claim, (), None), key=self.importance):
            yield Level(importance, members, cheapest_first=False)

    def _lesser(self, claim: Claim, parents: Path, branch: Path | None) -> Iterator[Allocation]:
        """Candidates inside the group `parents`, the richest first; equally rich groups are merged.
        `branch`: the outermost enclosing group that the claim's job is not in."""
        poor = self._sharer(claim.allocation)
        depth = len(parents)
        if depth == len(poor.member.parents):
            yield from self._lesser_jobs(claim, parents) if branch is None else self._in_branch(claim, parents, branch)
            return
        bound = self.after(poor.groups[depth], 1.0, claim.slots - 1) if branch is None else -inf
        for negative_charge, equals in groupby(self._children(parents)[:], key=itemgetter(0)):
            if -negative_charge <= bound:
                break  # the following groups would not keep more either
            yield from self._merged(claim, [group for _, group in equals], branch)
        if branch is None and poor.groups[depth] in self._listed:
            yield from self._lesser(claim, poor.groups[depth], None)

    def _merged(self, claim: Claim, groups: Sequence[Path], branch: Path | None) -> Iterator[Allocation]:
        """The candidates of several groups, the least important first; a tie goes to the first group. A group is read only when
        its turn may have come."""
        outer = self._outer(groups[0][:-1])
        heap: list[tuple[Importance, int, Allocation | None, Iterator[Allocation]]] = [
            ((*outer, *self._least_inside(group)), number, None, self._lesser(claim, group, branch or group))
            for number, group in enumerate(groups)
        ]
        heapify(heap)
        while heap:
            _, number, allocation, source = heap[0]
            if allocation is not None:
                yield allocation
            elif not self._gives_up(claim, branch or groups[number], self.smallest(groups[number])):
                heappop(heap)
                continue
            following = next(source, None)
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (self.importance(following), number, following, source))

    def _gives_up(self, claim: Claim, branch: Path, slots: int) -> bool:
        """Whether an allocation with `slots` slots in the branch yields to the claim, as by `yields`."""
        mine = self._sharer(claim.allocation).groups[len(branch) - 1]
        return self.after(branch, 1.0, -slots) > self.after(mine, 1.0, claim.slots - 1)

    def _in_branch(self, claim: Claim, parents: Path, branch: Path) -> Iterator[Allocation]:
        """Candidates among the jobs of one user, whose usage and slots count only in the branch."""
        ranks = self._ranks(parents)
        while (rank := next(ranks, None)) is not None:
            if not self._gives_up(claim, branch, rank.smallest):
                ranks = self._ranks(parents, rank.negative_rest, inf)  # equally rich jobs cannot lose less
                continue
            if rank.job not in self._importance and (*parents, rank.job) not in self._changes:
                self._importance[rank.job] = (*self._outer(parents), rank.negative_rest)
            for slots, _, id_ in self._shares.group(parents).jobs[rank.job].evictable:
                if slots > rank.smallest and not self._gives_up(claim, branch, slots):
                    break  # a larger one of the same job would not yield either
                yield self._snapshot.allocations[id_]

    def _least_inside(self, group: Path) -> Importance:
        """The suffix of an importance from the group's own charge on: a lower bound for everything inside."""
        known = self._least.get(group)
        if known is None:
            charge, inside = -self.charge(group, 1.0), self._children(group) if len(group) < self._depth else ()
            if inside:
                richest = takewhile(lambda each: each[0] == inside[0][0], inside)
                known = (charge, *min(self._least_inside(each) for _, each in richest))
            else:
                first = None if group in self._changes else self._first_rank(group)
                known = (charge, -inf if first is None else first.negative_rest)
            self._least[group] = known
        return known

    def _lesser_jobs(self, claim: Claim, parents: Path) -> Iterator[Allocation]:
        """Candidates among the other jobs in the claim's own group."""
        poor = self._sharer(claim.allocation).member
        bound = self.after(poor.path, poor.weight, claim.slots - 1)
        ranks = self._ranks(parents)
        while (rank := next(ranks, None)) is not None:
            if -rank.negative_rest <= bound:
                return
            found = rank.job == poor.job
            for *_, id_ in self._shares.group(parents).jobs[rank.job].evictable:
                allocation = self._snapshot.allocations[id_]
                if not self.yields(allocation, claim, {}):
                    break  # a larger one of the same job would not yield either
                found = True
                yield allocation
            if not found:  # a larger one of an equally rich job would not yield either
                ranks = self._ranks(parents, rank.negative_rest, inf)

    def any_lesser(self, claim: Claim) -> bool:
        poor = self._sharer(claim.allocation).member
        kept = self._kept_by_jobs(poor.parents, but=poor.job)
        if kept > self.after(poor.path, poor.weight, claim.slots - 1):
            return True
        return self._any_lesser_outside(poor.parents, claim.slots, claim.where)

    def may_claim(self, key: LineKey) -> bool:
        """Whether there may be victims for an allocation of the line; False is exact."""
        slots, kept = key.shape.slots, self._kept_by_jobs(key.parents)
        if kept > slots / key.weight and (
            key.parents in self._changes or kept > self._poorest_of(key) + (slots - 1) / key.weight
        ):
            return True
        return self._any_lesser_outside(key.parents, slots, key.shape.where)

    def may_claim_inside(self, group: Path, slots: int) -> bool:
        """Whether there may be victims for a job in the group that needs `slots` or more, whatever the job holds."""
        return group in self._shares.orders.uneven or (
            not group or group in self._changes or self.may_claim_outside(group, slots)
        )

    def may_claim_outside(self, group: Path, slots: int) -> bool:
        """Whether there may be victims outside for a member of the group that needs `slots` or more."""
        return self._any_lesser_outside(group, slots, None)

    def _any_lesser_outside(self, parents: Path, slots: int, where: object) -> bool:
        for depth in reversed(range(len(parents))):
            mine = self.after(parents[: depth + 1], 1.0, slots - 1)
            if self._richest.charge(self, parents[:depth]) > mine:
                # An earlier claim from the same groups, and from all groups deeper inside, found no victims.
                return mine < self._without_victims.get((parents[:depth], (where, slots)), inf)
        return False

    def _kept_by_jobs(self, parents: Path, *, but: JobId | None = None) -> float:
        """The greatest charge that a job of the group keeps after losing its smallest allocation, as in the snapshot."""
        first = self._first_rank(parents)
        if first is not None and first.job == but:
            first = next((rank for rank in self._ranks(parents) if rank.job != but), None)
        return -inf if first is None else -first.negative_rest

    def _poorest_of(self, key: LineKey) -> float:
        first = self._shares.group(key.parents).lines[key].first_key()
        return -inf if first is None else first.charge

    def found_no_victims(self, claim: Claim) -> None:
        poor = self._sharer(claim.allocation)
        for group in poor.groups[:-1]:
            key = (group[:-1], (claim.where, claim.slots))
            mine = self.after(group, 1.0, claim.slots - 1)
            self._without_victims[key] = min(mine, self._without_victims.get(key, inf))

    def _children(self, parents: Path) -> list[tuple[float, Path]]:
        """The groups inside with preemptible allocations, as (negative charge, group): the richest first."""
        known = self._ranked.get(parents)
        if known is None:
            known = []
            for _, group in self.group_ranks(parents):
                self._listed[group] = -self.charge(group, 1.0)
                known.append((self._listed[group], group))
            known.sort()
            self._ranked[parents] = known
        return known

    def group_ranks(self, parents: Path) -> Iterator[tuple[float, Path]]:
        """The groups inside with preemptible allocations in the snapshot, as (charge after losing the smallest one, group): the
        greatest first."""
        ranks = takewhile(
            lambda each: each[0].parents == parents, self._shares.orders.group_ranks.items_from((parents,))
        )
        return ((-each.negative_rest, (*parents, each.name)) for each, _ in ranks)

    def _first_rank(self, parents: Path) -> Rank | None:
        if parents not in self._first_ranks:
            first = self._shares.orders.ranks.first_key_from((parents,))
            self._first_ranks[parents] = first if first is not None and first.parents == parents else None
        return self._first_ranks[parents]

    def _ranks(self, parents: Path, *least: float) -> Iterator[Rank]:
        """The ranks of the jobs of one user, or of the pool; from `least` on."""
        ranks = (rank for rank, _ in self._shares.orders.ranks.items_from((parents, *least)))
        return takewhile(lambda rank: rank.parents == parents, ranks)

    def groups(self, allocation: Allocation) -> Iterable[Path]:
        return self._sharer(allocation).groups

    def yields(self, allocation: Allocation, claim: Claim, lost: Mapping[Path, int]) -> bool:
        rich, poor = self._sharer(allocation), self._sharer(claim.allocation)
        if rich.member.job == poor.member.job:
            return False
        depth = 0
        while poor.groups[depth] == rich.groups[depth]:
            depth += 1
        mine, theirs = poor.groups[depth], rich.groups[depth]
        last = depth == len(rich.groups) - 1
        loss = -allocation.slots_held - lost.get(theirs, 0)
        gain = claim.slots - 1 - lost.get(mine, 0)
        left = self.after(theirs, rich.member.weight if last else 1.0, loss)
        return left > self.after(mine, poor.member.weight if last else 1.0, gain)

    def importance(self, allocation: Allocation) -> Importance:
        known = self._importance.get(allocation.job_id)
        if known is None:
            member, groups, smallest = self._sharer(allocation)
            rest = -self.after(groups[-1], member.weight, -smallest)
            known = self._importance[allocation.job_id] = (*self._outer(member.parents), rest)
        return known

    def _outer(self, parents: Path) -> Importance:
        """The prefix of an importance: the charges of the groups that a job is in."""
        known = self._outer_importance.get(parents)
        if known is None:
            known = tuple(-self.charge(parents[:depth], 1.0) for depth in range(1, len(parents) + 1))
            self._outer_importance[parents] = known
        return known

    def last_resort(self, allocation: Allocation) -> float:
        return -allocation.requested_at.timestamp()

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """The reason in terms of the groups in which the two first differ."""
        mine, lesser = self._sharer(claim.allocation), self._sharer(victim)
        depth = next(n for n in range(len(mine.groups)) if mine.groups[n] != lesser.groups[n])
        level = ("workspace", "user", "job")[-len(mine.groups) :][depth]
        by_weight = depth == len(mine.member.parents)
        first, second = (
            f"{self._shares.held(each.groups[depth])}{unit}{self._past(each.groups[depth])}"
            + (f" at weight {each.member.weight:g}" if by_weight else "")
            for each, unit in ((mine, " slot(s)"), (lesser, ""))
        )
        return f"whose {level} {mine.groups[depth][-1]} holds {first}, against {second}"

    def _past(self, group: Path) -> str:
        used = self._shares.used.get(group)
        return "" if used is None else f" and is charged {used:g} for the past"


class _Richest:
    """By group, the greatest charge that one of the groups inside keeps after losing its smallest allocation.

    Unchanged groups are read in the order of the snapshot, one ahead; changed ones are computed again on request. The caller
    passes the balance with each call: a reference to it would form a cycle, which only garbage collection frees, together
    with all objects of the pass.
    """

    def __init__(self) -> None:
        self._changed: dict[Path, float | None] = {}
        """Changed groups; None where the charge is not computed."""
        self._open: dict[Path, list[Path]] = {}
        """Those of them whose charge is not computed, by parent group."""
        self._heaps: dict[Path, list[tuple[float, Path]]] = {}
        """The others, with earlier negative charges."""
        self._sources: dict[Path, Iterator[tuple[float, Path]]] = {}
        self._ahead: dict[Path, tuple[float, Path] | None] = {}

    def changed(self, group: Path) -> None:
        if self._changed.get(group, 0.0) is not None:
            self._changed[group] = None
            self._open.setdefault(group[:-1], []).append(group)

    def charge(self, balance: Balance, parents: Path) -> float:
        heap = self._heaps.setdefault(parents, [])
        for group in self._open.pop(parents, ()):
            smallest = balance.smallest(group)
            charge = balance.after(group, 1.0, -smallest) if smallest else -inf
            self._changed[group] = charge
            heappush(heap, (-charge, group))
        while heap and -heap[0][0] != self._changed[heap[0][1]]:
            heappop(heap)
        return max(-heap[0][0] if heap else -inf, self._unchanged(balance, parents))

    def _unchanged(self, balance: Balance, parents: Path) -> float:
        source = self._sources.get(parents)
        if source is None:
            source = self._sources[parents] = balance.group_ranks(parents)
            self._ahead[parents] = next(source, None)
        while (ahead := self._ahead[parents]) is not None and ahead[1] in self._changed:
            self._ahead[parents] = next(source, None)
        return -inf if ahead is None else ahead[0]
