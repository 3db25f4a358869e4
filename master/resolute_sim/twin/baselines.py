"""Policies for comparison.

- `Determined`: the scale decider of the platform that this project succeeds, with its tick of five seconds and one machine size.
  Our scheduler places the jobs.
- `Static`: a fixed fleet from the start to the end; missing machines are requested again each minute. Our scheduler places the
  jobs.
- `FirstFit`: places each gang, in the order of submission, on the first machine with room, the cheapest type first and then the
  oldest; else on the first starting machine; else on a new one of the cheapest type that holds it. It ends a machine after five
  idle minutes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from resolute_master.decision.plan_pool import plan_pool
from resolute_master.domain.agent import SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, InstanceId
from resolute_master.forecast.pool import Decision, VirtualPool
from resolute_master.scheduler.plan import Placement, Plan
from resolute_provisioner.model import Cause, InstanceView, Launch, Offer, Termination
from resolute_provisioner.offers import price_order

TICK_S = 5.0
DETERMINED_IDLE_S = 1200.0
STARTING_S = 1200.0
FIRST_FIT_IDLE_S = 300.0
ASK_AGAIN_S = 60.0


@dataclass(slots=True, kw_only=True)
class Determined:
    """Desired machines = pending slots / slots of a machine, without regard to free slots. Starting machines are subtracted. A
    machine that is idle for twenty minutes is ended, even if jobs wait."""

    _next_tick: datetime | None = None

    def decide(self, pool: VirtualPool) -> Decision:
        plan = _place(pool)
        tick = _tick_after(pool.now, self._next_tick)
        if pool.now < tick:
            return Decision(
                place=plan.place, preempt=plan.preempt, reserve=plan.reserve, revisit_at=self._wake(pool, tick)
            )
        self._next_tick = pool.now + timedelta(seconds=TICK_S)
        ended = self._long_idle(pool)
        launches = self._launches(pool, len(pool.machines) - len(ended))
        return Decision(
            place=plan.place,
            preempt=plan.preempt,
            reserve=plan.reserve,
            launches=launches,
            terminations=ended,
            revisit_at=self._wake(pool, self._next_tick, ended={each.instance_id for each in ended}),
        )

    def _launches(self, pool: VirtualPool, there: int) -> tuple[Launch, ...]:
        scaling = pool.policy.scaling
        assert scaling is not None
        (offer,) = scaling.offers
        waiting = [allocation.slots_needed for allocation in pool.snapshot.pending()]
        slots = sum(n for n in waiting if n <= offer.slots or n % offer.slots == 0)
        desired = math.ceil(slots / offer.slots)
        recent = sum(view.joined_at is None and _younger(view, pool.now) for view in pool.machines.values())
        count = max(scaling.min_instances - there, desired - recent)
        return _of(offer, max(0, min(count, scaling.max_instances - there)), "desired by the scale decider")

    def _long_idle(self, pool: VirtualPool) -> tuple[Termination, ...]:
        scaling = pool.policy.scaling
        assert scaling is not None
        spare = len(pool.machines) - scaling.min_instances
        idle = _idle_since(pool, DETERMINED_IDLE_S)
        return _idle_ends(idle[: max(0, spare)], "long idle")

    def _wake(
        self, pool: VirtualPool, tick: datetime, ended: frozenset[str] | set[str] = frozenset()
    ) -> datetime | None:
        """The next tick that may change anything: every tick while jobs wait, else the one at which a machine has idled long
        enough."""
        if len(pool.snapshot.queue):
            return tick
        idle = [v.idle_since for v in pool.machines.values() if v.idle_since is not None and v.instance_id not in ended]
        first = min(idle, default=None)
        return None if first is None else _on_grid(max(tick, first + timedelta(seconds=DETERMINED_IDLE_S + TICK_S)))


@dataclass(slots=True, kw_only=True)
class Static:
    """Keeps `machines` of the one offer from the start on. A refused or interrupted machine is requested again."""

    machines: int
    _ask_at: datetime | None = None

    def decide(self, pool: VirtualPool) -> Decision:
        plan = _place(pool)
        launches: tuple[Launch, ...] = ()
        missing = self.machines - len(pool.machines)
        if missing > 0 and (self._ask_at is None or pool.now >= self._ask_at):
            self._ask_at = pool.now + timedelta(seconds=ASK_AGAIN_S)
            scaling = pool.policy.scaling
            assert scaling is not None
            launches = _of(scaling.offers[0], missing, "the fleet")
        return Decision(
            place=plan.place,
            preempt=plan.preempt,
            reserve=plan.reserve,
            launches=launches,
            revisit_at=self._ask_at if missing > 0 else None,
        )


def peak_machines(demand: Sequence[tuple[float, float, int]], size: int) -> int:
    """Machines of `size` slots for the largest demand if no job waited. `demand` contains (start, length, slots)."""
    changes = sorted(change for at, length, n in demand for change in ((at, n), (at + length, -n)))
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return max(1, math.ceil(peak / max(1, size)))


@dataclass(slots=True)
class _Room:
    """Free slots of one machine during one decision."""

    size: int
    free: int

    @property
    def whole(self) -> bool:
        return self.free == self.size


_Rooms = dict[InstanceId, _Room]


class FirstFit:
    """Places jobs and buys machines without our scheduler. A gang that is larger than every machine takes empty machines of the
    largest size that divides it."""

    def decide(self, pool: VirtualPool) -> Decision:
        views = (view for view in pool.machines.values() if view.notice is None and view.draining_since is None)
        open_ = sorted(views, key=lambda view: (_cheapest(pool.offers[view.offer_id]), view.instance_id))
        rooms = {InstanceId(v.instance_id): _Room(v.slots, v.slots - v.slots_in_use) for v in open_}
        there = {id_: room for id_, room in rooms.items() if pool.machines[id_].joined_at is not None}
        coming = {id_: room for id_, room in rooms.items() if id_ not in there}
        place: list[Placement] = []
        launches: list[Launch] = []
        for allocation in list(pool.snapshot.pending()):
            found = _first_fit(pool, allocation, there)
            if found is None:
                launches.extend(_buy(pool, allocation, there, coming, len(launches)))
            else:
                pool.apply_schedule((found,), (), ())
                place.append(found)
        kept = {id_ for id_, room in there.items() if not room.whole}
        ended = _idle_ends(
            [v for v in _idle_since(pool, FIRST_FIT_IDLE_S) if InstanceId(v.instance_id) not in kept], "idle"
        )
        return Decision(
            place=tuple(place),
            launches=tuple(launches),
            terminations=ended,
            revisit_at=_next_idle(pool, FIRST_FIT_IDLE_S),
        )


def _first_fit(pool: VirtualPool, allocation: Allocation, there: _Rooms) -> Placement | None:
    slots = allocation.slots_needed
    first = next((id_ for id_, room in there.items() if room.free >= slots), None)
    if first is not None:
        there[first].free -= slots
        return _placement(pool, allocation, {first: slots})
    if allocation.single_node:
        return None
    for size in _dividing(pool, slots):
        whole = [id_ for id_, room in there.items() if room.whole and room.size == size][: slots // size]
        if len(whole) == slots // size:
            for id_ in whole:
                there[id_].free = 0
            return _placement(pool, allocation, dict.fromkeys(whole, size))
    return None


def _buy(pool: VirtualPool, allocation: Allocation, there: _Rooms, coming: _Rooms, bought: int) -> list[Launch]:
    """Reserves a starting machine, else requests new ones. Machines that a gang takes whole are removed from `there` and
    `coming`."""
    scaling, slots = pool.policy.scaling, allocation.slots_needed
    assert scaling is not None
    first = next((room for room in coming.values() if room.free >= slots), None)
    if first is not None:
        first.free -= slots
        return []
    holding = [offer for offer in scaling.offers if offer.slots >= slots]
    if holding:
        offer, count, left = min(holding, key=_cheapest), 1, -slots
    else:
        size = _dividing(pool, slots)[0]
        offer, left = min((each for each in scaling.offers if each.slots == size), key=_cheapest), -size
        whole = [room for rooms in (there, coming) for room in rooms.values() if room.whole and room.size == size]
        count = max(0, slots // size - len(whole))
        for room in whole[: slots // size]:
            room.free = 0
    if len(pool.machines) + bought + count > scaling.max_instances:
        return []
    for number in range(count):
        # Later gangs of this decision may reserve it.
        coming[InstanceId(f"~{bought + number:06d}")] = _Room(offer.slots, offer.slots + left)
    return list(_of(offer, count, "first fit", allocation.id))


def _place(pool: VirtualPool) -> Plan:
    plan = plan_pool(replace(pool.view(), machines=None)).schedule
    pool.apply_schedule(plan.place, plan.preempt, plan.reserve)
    return plan


def _tick_after(now: datetime, tick: datetime | None) -> datetime:
    return _on_grid(now) if tick is None or tick <= now else tick


def _on_grid(at: datetime) -> datetime:
    """The tick at or after a moment."""
    steps = math.ceil(at.timestamp() / TICK_S)
    return datetime.fromtimestamp(steps * TICK_S, at.tzinfo)


def _younger(view: InstanceView, now: datetime) -> bool:
    return (now - view.requested_at).total_seconds() < STARTING_S


def _idle_since(pool: VirtualPool, idle_s: float) -> list[InstanceView]:
    """The longest idle first."""
    views = [view for view in pool.machines.values() if view.idle_since is not None and view.notice is None]
    over = [view for view in views if (pool.now - (view.idle_since or pool.now)).total_seconds() >= idle_s]
    return sorted(over, key=lambda view: (view.idle_since or pool.now, view.instance_id))


def _next_idle(pool: VirtualPool, idle_s: float) -> datetime | None:
    """When the next machine reaches `idle_s`; machines that have reached it are excluded."""
    ends = (v.idle_since + timedelta(seconds=idle_s) for v in pool.machines.values() if v.idle_since is not None)
    return min((at for at in ends if at > pool.now), default=None)


def _idle_ends(views: Sequence[InstanceView], reason: str) -> tuple[Termination, ...]:
    return tuple(Termination(instance_id=view.instance_id, cause=Cause.IDLE, reason=reason) for view in views)


def _of(offer: Offer, count: int, reason: str, token: str = "") -> tuple[Launch, ...]:
    return (Launch(offer_id=offer.offer_id, gang_tokens=(token,) if token else (), reason=reason),) * count


def _cheapest(offer: Offer) -> tuple[object, ...]:
    return (price_order(offer.price_per_hour), offer.slots, offer.offer_id)


def _dividing(pool: VirtualPool, slots: int) -> list[int]:
    scaling = pool.policy.scaling
    assert scaling is not None
    return sorted(
        {offer.slots for offer in scaling.offers if offer.slots < slots and slots % offer.slots == 0}, reverse=True
    )


def _placement(pool: VirtualPool, allocation: Allocation, shares: dict[InstanceId, int]) -> Placement:
    slots: list[SlotRef] = []
    for id_, count in shares.items():
        agent = AgentId(id_)
        used = {index for _, occupant in pool.snapshot.occupancy.get(agent) or () for index in occupant.slots}
        taken = {slot.index for slot in slots if slot.agent == agent}
        free = [i for i in range(pool.machines[id_].slots) if i not in used and i not in taken]
        slots.extend(SlotRef(agent=agent, index=index) for index in free[:count])
    return Placement(
        allocation=allocation.id, agents=tuple(AgentId(id_) for id_ in shares), slots=tuple(slots), reason="first fit"
    )
