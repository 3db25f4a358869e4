"""The fair-share scheduler.

1. Slots go to the group with the smallest charge (see `shares`): among jobs, or, where shares are hierarchical, to a
   workspace, then to one of its users, then to one of the user's jobs. Between equal charges goes who has waited longest. What
   is done for each in turn is told in `placing`. So free slots never lie idle while something fits on them, except those that
   are kept for somebody by name.
2. A waiting allocation makes others leave when they are richer even afterwards: of the two groups in which the jobs differ
   first, the victim's charge without what leaves is greater than what the other will then hold over its weight. So the slots
   settle where weighted max-min fairness puts them, within the size of a gang, and nobody who had to leave can take back what
   he left.
3. The first for which nothing can be done gets a reservation that binds everybody who comes later: a gang that is larger than
   its fair share starts when enough has ended, however many small ones keep coming.
4. With `usage_half_life`, workspaces and users are charged what they have used lately beside what they hold. Charges for the
   past stay as they are from one measurement to the next, so what is said above holds in between.
5. Work without slots is not divided: the earliest first, whatever fits.

Within a line of jobs that differ in nothing but what they hold, what cannot be done for the poorest cannot be done for the
others: a pass reads what it can place or keep, and one allocation of each line that it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace, merge
from itertools import groupby, takewhile
from math import inf
from operator import itemgetter
from typing import NamedTuple

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import JobId
from resolute_master.scheduler.eviction import Claim, Level
from resolute_master.scheduler.order import QueueKey
from resolute_master.scheduler.outcome import Outcome, Verdict
from resolute_master.scheduler.placing import Line, Placing
from resolute_master.scheduler.priority import in_queue_order
from resolute_master.scheduler.shares import LineKey, Member, Path, Rank, Shares, Turn
from resolute_master.scheduler.snapshot import PoolSnapshot


def run(snapshot: PoolSnapshot, *, starts: int | None = None) -> Outcome:
    """One pass over the pool, with the reasons that `explain` needs."""
    balance = Balance(snapshot)
    placing = Placing(snapshot, balance, preemption=True, soft_reservations=False, starts=starts)
    _poorest_first(snapshot, balance, placing)
    in_queue_order(placing, snapshot.queue.items_from((True,)), lambda _shape, _key: placing.no_place)
    return placing.outcome()


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
        self._given: dict[Path, int] = {}
        self._taken: dict[Path, int] = {}
        self._named: dict[Path, list[str]] = {}
        self._greatest: dict[Path, float] = {}
        self._touched: dict[Path, set[Path]] = {}
        """Groups whose charge has changed in this pass, by the group that they are in."""
        self._burdens: dict[Path, float] = {}
        self._members: dict[JobId, Member] = {}
        self._importance: dict[JobId, tuple[float, ...]] = {}
        self._vain: dict[tuple[Path, object], float] = {}
        """By group and what is claimed: a member that would then be charged as much claims it in vain from the others."""

    def give(self, member: Member, slots: int) -> None:
        _add(self._given, member.path, slots)
        self._importance.clear()
        self._vain.clear()
        self._touch(member.parents)

    def _touch(self, parents: Path) -> None:
        """These groups do not hold any more what the snapshot says."""
        for depth in range(len(parents)):
            self._touched.setdefault(parents[:depth], set()).add(parents[: depth + 1])
            self._greatest.pop(parents[:depth], None)

    def _member(self, allocation: Allocation) -> Member:
        known = self._members.get(allocation.job_id)
        if known is None:
            known = self._members[allocation.job_id] = self._snapshot.member(allocation)
        return known

    def charge(self, group: Path, weight: float) -> float:
        """With what was given; what others must leave frees nothing before they have left."""
        return (self._slots(group) + 1) / weight

    def rank(self, parents: Path) -> tuple[tuple[float, str], ...]:
        return tuple((self.charge(parents[: n + 1], 1.0), parents[n]) for n in range(len(parents)))

    # -- who must leave for whom ---------------------------------------------------------------------------------

    def levels(self, claim: Claim) -> Iterator[Level]:
        for importance, members in groupby(self._lesser(claim, ()), key=self.importance):
            yield Level(importance, members, cheapest_first=False)

    def _lesser(self, claim: Claim, parents: Path) -> Iterator[Allocation]:
        """Of everybody within the group `parents`, the richest first; equally rich groups are taken together."""
        poor = self._member(claim.allocation)
        depth = len(parents)
        if depth == len(poor.parents):
            yield from self._lesser_jobs(claim, parents)
            return
        mine = poor.path[:depth] == parents
        bound = self._after(poor.path[: depth + 1], 1.0, claim.slots - 1) if mine else -inf
        smallest = self._shares.smallest
        inside = [(*parents, name) for name in self._children(parents)]
        ranked = sorted((-self._after(group, 1.0, 0), group) for group in inside)
        for _, equals in groupby(ranked, key=itemgetter(0)):
            groups = [
                group
                for _, group in equals
                if group == poor.path[: depth + 1] or self._after(group, 1.0, -smallest(group)) > bound
            ]
            found = [self._lesser(claim, group) for group in groups]
            yield from found[0] if len(found) == 1 else merge(*found, key=self.importance)

    def _lesser_jobs(self, claim: Claim, parents: Path) -> Iterator[Allocation]:
        poor = self._member(claim.allocation)
        bound = self._after(poor.path, poor.weight, claim.slots - 1)
        ranks = self._ranks(parents)
        while (rank := next(ranks, None)) is not None:
            if parents == poor.parents and -rank.negative_rest <= bound:
                return
            found = rank.job == poor.job
            for _, id_ in self._shares.evictable[rank.job]:
                allocation = self._snapshot.allocations[id_]
                if not self.yields(allocation, claim, {}):
                    break  # nor would a larger one of the same job
                found = True
                yield allocation
            if not found:  # nor would a larger one of a job that is as rich
                ranks = self._ranks(parents, rank.negative_rest, inf)

    def any_lesser(self, claim: Claim) -> bool:
        poor = self._member(claim.allocation)
        return self.may_claim(poor.parents, poor.weight, claim.slots, claim.where)

    def may_claim(self, parents: Path, weight: float, slots: int, where: object = None) -> bool:
        """Somebody may have to leave for a job in the group `parents`; if not, nobody has to, whatever the job holds."""
        first = next(self._ranks(parents), None)
        if first is not None and -first.negative_rest > slots / weight:
            return True
        for depth in reversed(range(len(parents))):
            mine = self._after(parents[: depth + 1], 1.0, slots - 1)
            if self._richest(parents[:depth]) > mine:
                # Who claimed it in vain from the same others, and from all that this one could claim it from deeper inside.
                return mine < self._vain.get((parents[:depth], (where, slots)), inf)
        return False

    def in_vain(self, claim: Claim) -> None:
        poor = self._member(claim.allocation)
        for depth in range(len(poor.parents)):
            key = (poor.parents[:depth], (claim.where, claim.slots))
            mine = self._after(poor.path[: depth + 1], 1.0, claim.slots - 1)
            self._vain[key] = min(mine, self._vain.get(key, inf))

    def _richest(self, parents: Path) -> float:
        """The greatest charge that one of the groups within would keep when it lost the least that it can."""
        known = self._greatest.get(parents)
        if known is None:
            touched = self._touched.get(parents, set())
            wealth = takewhile(lambda each: each[0].parents == parents, self._shares.wealth.items_from((parents,)))
            others = (-each.negative_rest for each, _ in wealth if (*parents, each.name) not in touched)
            least = ((group, self._shares.smallest(group)) for group in touched)
            charges = [self._after(group, 1.0, -slots) for group, slots in least if slots]
            known = self._greatest[parents] = max(next(others, -inf), *charges, -inf)
        return known

    def _children(self, parents: Path) -> list[str]:
        """Names of the groups within of which something may be preempted."""
        known = self._named.get(parents)
        if known is None:
            known = self._named[parents] = []
            depth, least = len(parents), parents
            while (found := self._shares.ranks.first_key_from((least,))) and found.parents[:depth] == parents:
                known.append(found.parents[depth])
                least = (*parents, found.parents[depth] + "\0")  # the smallest name after it
        return known

    def _ranks(self, parents: Path, *least: float) -> Iterator[Rank]:
        """Those of the jobs of one user, or of the pool; from `least` on."""
        ranks = (rank for rank, _ in self._shares.ranks.items_from((parents, *least)))
        return takewhile(lambda rank: rank.parents == parents, ranks)

    def groups(self, allocation: Allocation) -> Iterable[Path]:
        path = self._member(allocation).path
        return (path[:depth] for depth in range(1, len(path) + 1))

    def yields(self, allocation: Allocation, claim: Claim, lost: Mapping[Path, int]) -> bool:
        rich, poor = self._member(allocation), self._member(claim.allocation)
        if rich.job == poor.job:
            return False
        depth = next(n for n in range(len(rich.path)) if rich.path[n] != poor.path[n]) + 1
        last = depth == len(rich.path)
        loss = -allocation.slots_held - lost.get(rich.path[:depth], 0)
        gain = claim.slots - 1 - lost.get(poor.path[:depth], 0)
        left = self._after(rich.path[:depth], rich.weight if last else 1.0, loss)
        return left > self._after(poor.path[:depth], poor.weight if last else 1.0, gain)

    def _after(self, group: Path, weight: float, change: int) -> float:
        """The charge after a change, and after what must leave has left."""
        # One division: equal charges are equal numbers, whatever they are made of.
        return (self._slots(group) - self._taken.get(group, 0) + change + 1) / weight

    def _slots(self, group: Path) -> float:
        burden = self._burdens.get(group)
        if burden is None:
            burden = self._burdens[group] = self._shares.burden(group)
        return burden + self._given.get(group, 0)

    def importance(self, allocation: Allocation) -> tuple[float, ...]:
        known = self._importance.get(allocation.job_id)
        if known is None:
            member = self._member(allocation)
            mine = self._shares.evictable.get(member.job)
            smallest = None if mine is None else mine.first_key()
            charges = (-self._after(member.path[: n + 1], 1.0, 0) for n in range(len(member.parents)))
            known = (*charges, -self._after(member.path, member.weight, -smallest[0] if smallest else 0))
            self._importance[allocation.job_id] = known
        return known

    def last_resort(self, allocation: Allocation) -> float:
        return -allocation.requested_at.timestamp()

    def left(self, victims: Iterable[Allocation]) -> None:
        self._importance.clear()
        self._vain.clear()
        for victim in victims:
            self._touch(self._member(victim).parents)
            _add(self._taken, self._member(victim).path, victim.slots_held)

    def reason(self, claim: Claim, victim: Allocation) -> str:
        """By the groups in which the two differ first."""
        mine, lesser = self._member(claim.allocation), self._member(victim)
        depth = next(n for n in range(len(mine.path)) if mine.path[n] != lesser.path[n])
        level = ("workspace", "user", "job")[-len(mine.path) :][depth]
        by_weight = depth == len(mine.parents)
        first, second = (
            f"{self._shares.held.get(m.path[: depth + 1]) or 0}{unit}{self._past(m.path[: depth + 1])}"
            + (f" at weight {m.weight:g}" if by_weight else "")
            for m, unit in ((mine, " slot(s)"), (lesser, ""))
        )
        return f"whose {level} {mine.path[depth]} holds {first}, against {second}"

    def _past(self, group: Path) -> str:
        used = self._shares.used.get(group)
        return "" if used is None else f" and is charged {used:g} for the past"


def _add(sums: dict[Path, int], path: Path, slots: int) -> None:
    for depth in range(1, len(path) + 1):
        sums[path[:depth]] = sums.get(path[:depth], 0) + slots


class _Sharers:
    """One line during the pass: its jobs, the poorest first, each with what it waits with."""

    def __init__(self, snapshot: PoolSnapshot, balance: Balance, key: LineKey, line: Line) -> None:
        self.key = key
        self.line = line
        self._shares = shares_of(snapshot)
        self._balance = balance
        self._source = iter(self._shares.lines[key.parents][key])
        self._ahead = next(self._source, None)
        self._moved: list[Turn] = []
        self._rest: dict[JobId, Iterator[QueueKey]] = {}
        self._next: dict[JobId, QueueKey] = {}
        self.over = False
        """Nothing can be done for any of them."""

    def member(self, job: JobId) -> Member:
        return Member(job, self.key.parents, self.key.weight)

    def order(self) -> Turn | None:
        """None when nobody is left. Turns that have become outdated in this pass are put where they belong."""
        while not self.over and (turn := self._first()) is not None:
            charge = self._balance.charge(self.member(turn.job).path, self.key.weight)
            if charge == turn.charge:
                return turn
            self._drop()
            heappush(self._moved, turn._replace(charge=charge))
        return None

    def poorest(self) -> _Sharers | None:
        return self

    def _first(self) -> Turn | None:
        if self._ahead is not None and (not self._moved or self._ahead <= self._moved[0]):
            return self._ahead
        return self._moved[0] if self._moved else None

    def _drop(self) -> None:
        if self._ahead is not None and (not self._moved or self._ahead <= self._moved[0]):
            self._ahead = next(self._source, None)
        else:
            heappop(self._moved)

    def first(self, job: JobId) -> QueueKey:
        """What the job is to be offered for next."""
        if job not in self._next:
            self._rest[job] = iter(self._shares.waiting[job][self.key.shape])
            self._next[job] = next(self._rest[job])
        return self._next[job]

    def offered(self, turn: Turn) -> None:
        """The job's first has had its turn."""
        self._drop()
        following = next(self._rest[turn.job], None)
        if following is not None:
            self._next[turn.job] = following
            heappush(self._moved, turn._replace(since=following.requested_at))


class _Charge(NamedTuple):
    """Where a group stands among its like."""

    charge: float
    name: str


class _Groups:
    """What is inside a group during the pass, the poorest first: its groups, or the lines of its jobs."""

    def __init__(
        self, snapshot: PoolSnapshot, balance: Balance, placing: Placing, path: Path, sharers: list[Path]
    ) -> None:
        """`sharers`: the groups of jobs inside in which somebody waits, in order."""
        self.path = path
        self._snapshot = snapshot
        self._balance = balance
        self._placing = placing
        self._sharers = sharers
        self._heap: list[tuple[_Charge | Turn, int, _Groups | _Sharers]] | None = None

    def order(self) -> _Charge | None:
        """None when nobody inside is left."""
        if self._heap is not None and self.poorest() is None:
            return None
        return _Charge(self._balance.charge(self.path, 1.0), self.path[-1])

    def poorest(self) -> _Sharers | None:
        """The line that is next."""
        if self._heap is None:
            self._heap = self._inside() if self._worthwhile() else []
        while self._heap:
            known, number, member = self._heap[0]
            order = member.order()
            if order is None:
                heappop(self._heap)
            elif order != known:
                heapreplace(self._heap, (order, number, member))
            elif (line := member.poorest()) is not None:
                return line
        return None

    def _line(self, key: LineKey) -> _Sharers:
        return _Sharers(self._snapshot, self._balance, key, self._placing.line(key.shape))

    def _hopeful(self, key: LineKey) -> bool:
        """There may be something to be done for one of the line."""
        return not self._placing.hopeless(key.shape) or self._balance.may_claim(
            key.parents, key.weight, key.shape.slots, key.shape.where
        )

    def _worthwhile(self) -> bool:
        """There may be something to be done for one inside."""
        if not self._placing.all_hopeless:
            return True
        least, may_claim = self._placing.least_slots, self._balance.may_claim
        return any(may_claim(sharers, self._greatest_weight(sharers), least) for sharers in self._sharers)

    def _greatest_weight(self, sharers: Path) -> float:
        return max(key.weight for key in shares_of(self._snapshot).lines[sharers])

    def _inside(self) -> list[tuple[_Charge | Turn, int, _Groups | _Sharers]]:
        depth, members = len(self.path), list[_Groups | _Sharers]()
        for name, sharers in groupby(self._sharers, key=lambda parents: parents[depth : depth + 1]):
            if name:
                path = (*self.path, *name)
                members.append(_Groups(self._snapshot, self._balance, self._placing, path, list(sharers)))
            else:
                keys = shares_of(self._snapshot).lines[self.path]
                members.extend(self._line(key) for key in keys if self._hopeful(key))
        heap = [
            (order, number, member) for number, member in enumerate(members) if (order := member.order()) is not None
        ]
        heapify(heap)
        return heap


def _poorest_first(snapshot: PoolSnapshot, balance: Balance, placing: Placing) -> None:
    """Offer to the smallest charge until no line is left for which something can be done."""
    whole = _Groups(snapshot, balance, placing, (), shares_of(snapshot).lines.key_list())
    while not placing.full and (sharers := whole.poorest()) is not None:
        turn = sharers.order()
        assert turn is not None, "a line that is next has somebody in it"
        if placing.offer(sharers.line, sharers.first(turn.job)) >= Verdict.RESERVED:
            sharers.over = True
        else:
            balance.give(sharers.member(turn.job), sharers.key.shape.slots)
            sharers.offered(turn)
