"""What each group of a fair-share pool holds during one pass, and who must leave for whom.

As `shares` says of the snapshot, with what the pass gave, and without what it takes: who was asked to leave frees nothing yet,
but counts for nobody any more, as in the next pass. The rules are those of `fair_share`.
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
    """Slots of the smallest of the job's that may be preempted; 0 when nothing may."""


def shares_of(snapshot: PoolSnapshot) -> Shares:
    assert snapshot.shares is not None, "the pool is not divided by fair share"
    return snapshot.shares


class Balance:
    """What each group holds during the pass: with what it was given and promised, without what it has to give back, and with
    what it is charged for its past."""

    independent = False

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._shares = shares_of(snapshot)
        self._depth = USER_DEPTH if snapshot.policy.hierarchical_shares else 0
        """Of the groups of jobs."""
        self._changes: dict[Path, int] = {}
        """Slots that were given, less those that were taken."""
        self._burdens: dict[Path, float] = {}
        """Of the snapshot, as far as it was looked at; so are these:"""
        self._smallest: dict[Path, int] = {}
        self._first_ranks: dict[Path, Rank | None] = {}
        self._sharers: dict[JobId, _Sharer] = {}
        self._losers: dict[Path, dict[str, Member]] = {}
        """By group, the groups or jobs within of which something must leave, each with the job that lost it last."""
        self._have_lost: list[Member] = []
        self._richest = _Richest()
        self._ranked: dict[Path, list[tuple[float, Path]]] = {}
        """The groups within a group of which something may be preempted, each after its negative charge: the richest first."""
        self._listed: dict[Path, float] = {}
        """Where each of them stands there."""
        self._least: dict[Path, Importance] = {}
        """As `_least_inside`, of groups in which nothing has changed since."""
        self._importance: dict[JobId, Importance] = {}
        """Until something changes, as these:"""
        self._outer_importance: dict[Path, Importance] = {}
        """By group of jobs, as `_outer`."""
        self._vain: dict[tuple[Path, object], float] = {}
        """By group and what is claimed: a member that would then be charged as much claims it in vain from the others."""

    # -- what a group holds --------------------------------------------------------------------------------------

    def charge(self, group: Path, weight: float) -> float:
        return self.after(group, weight, 0)

    def after(self, group: Path, weight: float, change: int) -> float:
        """The charge after a change."""
        burden = self._burdens.get(group)
        if burden is None:
            burden = self._burdens[group] = self._shares.burden(group)
        # One division: equal charges are equal numbers, whatever they are made of.
        return (burden + self._changes.get(group, 0) + change + 1) / weight

    def smallest(self, group: Path) -> int:
        """Slots of the smallest that may be preempted within; 0 when nothing may."""
        known = self._smallest.get(group)
        if known is None:
            known = self._smallest[group] = self._shares.orders.smallest(group)
        return known

    def give(self, member: Member, slots: int) -> None:
        self._change(member, slots)
        self._vain.clear()

    def left(self, victims: Iterable[Allocation]) -> None:
        for victim in victims:
            member = self._sharer(victim).member
            for depth, name in enumerate(member.path):
                self._losers.setdefault(member.path[:depth], {})[name] = member
            self._have_lost.append(member)
            self._change(member, -victim.slots_held)
        self._vain.clear()

    def losers(self, parents: Path) -> Mapping[str, Member]:
        """By name, the groups or jobs within the group of which something must leave, each with the job that lost it last."""
        return self._losers.get(parents, {})

    def have_lost(self) -> list[Member]:
        """Jobs of which something must leave, as decided since this was asked last; a job may be there more than once."""
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

    # -- who must leave for whom ---------------------------------------------------------------------------------

    def levels(self, claim: Claim) -> Iterator[Level]:
        for importance, members in groupby(self._lesser(claim, (), None), key=self.importance):
            yield Level(importance, members, cheapest_first=False)

    def _lesser(self, claim: Claim, parents: Path, branch: Path | None) -> Iterator[Allocation]:
        """Of everybody within the group `parents`, the richest first; equally rich groups are taken together.
        `branch`: the outermost of the groups around them that the claim's job is not in."""
        poor = self._sharer(claim.allocation)
        depth = len(parents)
        if depth == len(poor.member.parents):
            yield from self._lesser_jobs(claim, parents) if branch is None else self._in_branch(claim, parents, branch)
            return
        bound = self.after(poor.groups[depth], 1.0, claim.slots - 1) if branch is None else -inf
        for negative_charge, equals in groupby(self._children(parents)[:], key=itemgetter(0)):
            if -negative_charge <= bound:
                break  # nor would those that follow keep more
            yield from self._merged(claim, [group for _, group in equals], branch)
        if branch is None and poor.groups[depth] in self._listed:
            yield from self._lesser(claim, poor.groups[depth], None)

    def _merged(self, claim: Claim, groups: Sequence[Path], branch: Path | None) -> Iterator[Allocation]:
        """The least important first, of equals those of the first group. A group is looked into when its turn may have come."""
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
        """What has so many slots in the branch has to leave for the claim, as `yields` says of each that has."""
        mine = self._sharer(claim.allocation).groups[len(branch) - 1]
        return self.after(branch, 1.0, -slots) > self.after(mine, 1.0, claim.slots - 1)

    def _in_branch(self, claim: Claim, parents: Path, branch: Path) -> Iterator[Allocation]:
        """Of the jobs of one user, whose past and present count in the branch alone."""
        ranks = self._ranks(parents)
        while (rank := next(ranks, None)) is not None:
            if not self._gives_up(claim, branch, rank.smallest):
                ranks = self._ranks(parents, rank.negative_rest, inf)  # those that are as rich can lose no less
                continue
            if rank.job not in self._importance and (*parents, rank.job) not in self._changes:
                self._importance[rank.job] = (*self._outer(parents), rank.negative_rest)
            for slots, _, id_ in self._shares.group(parents).jobs[rank.job].evictable:
                if slots > rank.smallest and not self._gives_up(claim, branch, slots):
                    break  # nor would a larger one of the same job
                yield self._snapshot.allocations[id_]

    def _least_inside(self, group: Path) -> Importance:
        """The end of an importance, from the group's own charge on: nothing within has less."""
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
        """Of the other jobs in the claim's own group of jobs."""
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
                    break  # nor would a larger one of the same job
                found = True
                yield allocation
            if not found:  # nor would a larger one of a job that is as rich
                ranks = self._ranks(parents, rank.negative_rest, inf)

    def any_lesser(self, claim: Claim) -> bool:
        poor = self._sharer(claim.allocation).member
        kept = self._kept_by_jobs(poor.parents, but=poor.job)
        if kept > self.after(poor.path, poor.weight, claim.slots - 1):
            return True
        return self._any_lesser_outside(poor.parents, claim.slots, claim.where)

    def may_claim(self, key: LineKey) -> bool:
        """Somebody may have to leave for one of the line; if not, nobody has to."""
        slots, kept = key.shape.slots, self._kept_by_jobs(key.parents)
        if kept > slots / key.weight and (
            key.parents in self._changes or kept > self._poorest_of(key) + (slots - 1) / key.weight
        ):
            return True
        return self._any_lesser_outside(key.parents, slots, key.shape.where)

    def may_claim_inside(self, group: Path, slots: int) -> bool:
        """Somebody may have to leave for a job in the group of jobs that needs so many slots or more, whatever the job holds."""
        return group in self._shares.orders.uneven or (
            not group or group in self._changes or self.may_claim_outside(group, slots)
        )

    def may_claim_outside(self, group: Path, slots: int) -> bool:
        """Somebody outside may have to leave for one in the group that needs so many slots or more."""
        return self._any_lesser_outside(group, slots, None)

    def _any_lesser_outside(self, parents: Path, slots: int, where: object) -> bool:
        for depth in reversed(range(len(parents))):
            mine = self.after(parents[: depth + 1], 1.0, slots - 1)
            if self._richest.charge(self, parents[:depth]) > mine:
                # Who claimed it in vain from the same others, and from all that this one could claim it from deeper inside.
                return mine < self._vain.get((parents[:depth], (where, slots)), inf)
        return False

    def _kept_by_jobs(self, parents: Path, *, but: JobId | None = None) -> float:
        """The greatest charge that a job of the group would keep when it lost the least that it can, as in the snapshot."""
        first = self._first_rank(parents)
        if first is not None and first.job == but:
            first = next((rank for rank in self._ranks(parents) if rank.job != but), None)
        return -inf if first is None else -first.negative_rest

    def _poorest_of(self, key: LineKey) -> float:
        first = self._shares.group(key.parents).lines[key].first_key()
        return -inf if first is None else first.charge

    def in_vain(self, claim: Claim) -> None:
        poor = self._sharer(claim.allocation)
        for group in poor.groups[:-1]:
            key = (group[:-1], (claim.where, claim.slots))
            mine = self.after(group, 1.0, claim.slots - 1)
            self._vain[key] = min(mine, self._vain.get(key, inf))

    def _children(self, parents: Path) -> list[tuple[float, Path]]:
        """The groups within of which something may be preempted, the richest first, each after its negative charge."""
        known = self._ranked.get(parents)
        if known is None:
            known = []
            for _, group in self.wealth(parents):
                self._listed[group] = -self.charge(group, 1.0)
                known.append((self._listed[group], group))
            known.sort()
            self._ranked[parents] = known
        return known

    def wealth(self, parents: Path) -> Iterator[tuple[float, Path]]:
        """The groups within that hold in the snapshot what may be preempted, after the charge that they would keep when they lost
        the least that they can: the greatest first."""
        wealth = takewhile(lambda each: each[0].parents == parents, self._shares.orders.wealth.items_from((parents,)))
        return ((-each.negative_rest, (*parents, each.name)) for each, _ in wealth)

    def _first_rank(self, parents: Path) -> Rank | None:
        if parents not in self._first_ranks:
            first = self._shares.orders.ranks.first_key_from((parents,))
            self._first_ranks[parents] = first if first is not None and first.parents == parents else None
        return self._first_ranks[parents]

    def _ranks(self, parents: Path, *least: float) -> Iterator[Rank]:
        """Those of the jobs of one user, or of the pool; from `least` on."""
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
        """The beginning of an importance: the charges of the groups that a job is in."""
        known = self._outer_importance.get(parents)
        if known is None:
            known = tuple(-self.charge(parents[:depth], 1.0) for depth in range(1, len(parents) + 1))
            self._outer_importance[parents] = known
        return known

    def last_resort(self, allocation: Allocation) -> float:
        return -allocation.requested_at.timestamp()

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """By the groups in which the two differ first."""
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
    """By group, the greatest charge that one of the groups within would keep when it lost the least that it can.

    Those that have not changed in this pass are read in the order of the snapshot, one ahead; the others are looked at again
    when somebody asks. The balance is given by whoever asks, not kept: two that hold each other are freed by a collection of
    garbage only, and all that a pass has made with them.
    """

    def __init__(self) -> None:
        self._changed: dict[Path, float | None] = {}
        """Groups that have changed; None where the charge is not known."""
        self._open: dict[Path, list[Path]] = {}
        """Those of them whose charge is not known, by the group that they are in."""
        self._heaps: dict[Path, list[tuple[float, Path]]] = {}
        """The others, with charges that they had once, negative."""
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
            source = self._sources[parents] = balance.wealth(parents)
            self._ahead[parents] = next(source, None)
        while (ahead := self._ahead[parents]) is not None and ahead[1] in self._changed:
            self._ahead[parents] = next(source, None)
        return -inf if ahead is None else ahead[0]
