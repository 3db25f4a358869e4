"""What is kept beside the shares of a pool equals what a look at all of it says, and so does who must leave for whom."""

from __future__ import annotations

from math import inf

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId
from resolute_master.domain.pool import SchedulerKind
from resolute_master.scheduler.balance import Balance, Importance, shares_of
from resolute_master.scheduler.eviction import Claim, Evictions
from resolute_master.scheduler.fitting import Rooms
from resolute_master.scheduler.shares import Path
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from support.effort import examples
from support.random_pools import World, crowded_worlds, worlds

SHARED = worlds().filter(lambda world: world.policy.scheduler is SchedulerKind.FAIR_SHARE) | crowded_worlds()
SETTINGS = settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Facts:
    """Facts about a pool, each computed from scratch."""

    def __init__(self, snapshot: PoolSnapshot) -> None:
        self._snapshot = snapshot
        self._shares = shares_of(snapshot)
        everything = list(snapshot.allocations.values())
        self.waiting = [a for a in everything if waits(a) and a.slots_needed]
        self.staying = [a for a in everything if a.held_slots and not a.leaving]
        self.evictable = [a for a in self.staying if a.preemptible]

    def path(self, allocation: Allocation) -> Path:
        return self._snapshot.member(allocation).path

    def inside(self, group: Path, some: list[Allocation]) -> list[Allocation]:
        return [each for each in some if self.path(each)[: len(group)] == group]

    def burden(self, group: Path) -> float:
        held = sum(each.slots_held for each in self.inside(group, self.staying))
        return held + (self._shares.used.get(group) or 0.0)

    def charge_when_least_is_lost(self, group: Path) -> float:
        smallest = min((each.slots_held for each in self.inside(group, self.evictable)), default=None)
        return -inf if smallest is None else self.burden(group) - smallest + 1

    def groups(self, some: list[Allocation], depth: int) -> set[Path]:
        return {self.path(each)[:depth] for each in some if depth < len(self.path(each))}

    def is_uneven(self, group: Path) -> bool:
        """Whether, in a group of groups, one keeps more than another with waiting work would be charged with one more slot."""
        depth = len(group) + 1
        needy = [self.burden(each) + 1 for each in self.groups(self.inside(group, self.waiting), depth)]
        rich = [self.charge_when_least_is_lost(each) for each in self.groups(self.inside(group, self.evictable), depth)]
        return bool(needy and rich) and max(rich) > min(needy)

    def jobs_are_uneven(self, group: Path) -> bool:
        def charge(allocation: Allocation, held: float) -> float:
            return held / self._snapshot.member(allocation).weight

        needy = [charge(each, self.burden(self.path(each)) + 1) for each in self.inside(group, self.waiting)]
        rich = [
            charge(each, self.charge_when_least_is_lost(self.path(each))) for each in self.inside(group, self.evictable)
        ]
        return bool(needy and rich) and max(rich) > min(needy)


@SETTINGS
@given(SHARED)
def test_the_orders_of_groups_are_those_of_a_look_at_everything(world: World) -> None:
    snapshot = world.snapshot()
    facts, shares = Facts(snapshot), shares_of(snapshot)
    needs = {(*path, need.name): need.burden for path, group in shares.groups() for need in group.needs}
    assert needs == {group: facts.burden(group) for depth in (1, 2) for group in facts.groups(facts.waiting, depth)}
    wealth = {(*rich.parents, rich.name): -rich.negative_rest for rich in shares.orders.group_ranks}
    assert wealth == {
        group: facts.charge_when_least_is_lost(group)
        for depth in (1, 2)
        for group in facts.groups(facts.evictable, depth)
    }
    everybody = facts.waiting + facts.evictable
    assert set(shares.orders.uneven) == {
        *filter(facts.is_uneven, facts.groups(everybody, 1)),
        *filter(facts.jobs_are_uneven, facts.groups(everybody, 2)),
    }


def a_claim(facts: Facts, choice: int) -> Claim:
    """A claim of a pending allocation, for one agent."""
    poor = facts.waiting[choice % len(facts.waiting)]
    return Claim(allocation=poor, slots=poor.slots_needed, single_node=True, where=None, refuses=lambda _agent: False)


@SETTINGS
@given(SHARED, st.integers(0, 1000))
def test_whoever_has_to_leave_is_named_the_richest_first(world: World, choice: int) -> None:
    snapshot = world.snapshot()
    facts, balance = Facts(snapshot), Balance(snapshot)
    if not facts.waiting:
        return
    claim = a_claim(facts, choice)
    named = [(level.importance, each.id) for level in balance.levels(claim) for each in level.members]
    yielding = [each for each in facts.evictable if balance.yields(each, claim, {})]
    assert sorted(named) == sorted((balance.importance(each), each.id) for each in yielding)
    assert [importance for importance, _ in named] == sorted(importance for importance, _ in named)
    assert balance.any_lesser(claim) or not named


def most_important_victim(snapshot: PoolSnapshot, facts: Facts, claim: Claim, agent: AgentId) -> Importance | None:
    """Importance of the most important victim on the agent, each taken in its turn; None if they do not free enough slots."""
    balance, room = Balance(snapshot), snapshot.rooms[agent]
    there = {each.id: len(room_slots) for each in facts.evictable if (room_slots := usable_of(snapshot, each, agent))}
    lost: dict[Path, int] = {}
    taken: list[tuple[Importance, int]] = []

    def in_turn(each: Allocation) -> tuple[object, ...]:
        wasted = (snapshot.now - each.wasted_since).total_seconds() * each.slots_needed
        return balance.importance(each), max(wasted, 0.0), -each.requested_at.timestamp(), each.id

    missing = claim.slots - len(room.free) - room.leaving
    ripe = [
        each
        for each in facts.evictable
        if (snapshot.now - each.running_since).total_seconds() >= snapshot.policy.min_runtime_s
    ]
    for each in sorted((each for each in ripe if each.id in there), key=in_turn):
        if missing > 0 and balance.yields(each, claim, lost):
            missing -= there[each.id]
            taken.append((balance.importance(each), there[each.id]))
            for group in balance.groups(each):
                lost[group] = lost.get(group, 0) + each.slots_held
    if missing > 0 or claim.slots > room.size:
        return None
    needed: list[Importance] = []
    for importance, slots in reversed(taken):
        if missing + slots <= 0:
            missing += slots
        else:
            needed.append(importance)
    return max(needed)


def usable_of(snapshot: PoolSnapshot, allocation: Allocation, agent: AgentId) -> frozenset[int]:
    """Slots of the agent that it would leave."""
    held = {slot for each in allocation.containers if each.agent == agent and not each.ended for slot in each.slots}
    return snapshot.agents[agent].usable_slots & held


@SETTINGS
@given(SHARED, st.integers(0, 1000))
def test_room_is_made_where_a_look_at_every_agent_finds_the_least_important_victims(world: World, choice: int) -> None:
    snapshot = world.snapshot()
    facts, balance = Facts(snapshot), Balance(snapshot)
    if not facts.waiting:
        return
    claim = a_claim(facts, choice)
    full = [agent for agent, room in snapshot.rooms.items() if len(room.free) + room.leaving < claim.slots]
    found = Evictions(snapshot, Rooms(snapshot), balance).find(claim, None)
    possible = [each for agent in full if (each := most_important_victim(snapshot, facts, claim, agent)) is not None]
    assert (found is None) == (not possible)
    if found is not None:
        # The choice itself changed what everybody is charged.
        before = Balance(snapshot)
        assert max(map(before.importance, found.victims)) == min(possible)
