"""Machines that are coming and machines that could be launched, during one pass: who may count on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from resolute_master.domain.ids import AgentId
from resolute_master.scheduler.fitting import Refuses, Rooms
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.wait_or_evict import expected_wait_s
from resolute_provisioner.offers import price_order

_SOME_DAY = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class _Machine:
    """Mutable, and private to one pass."""

    name: str
    size: int
    free: int
    aux: int
    expected_at: datetime
    gangs: tuple[str, ...]

    def order(self, token: str) -> tuple[object, ...]:
        return (token not in self.gangs, self.expected_at, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """Machines of one size for one gang: those that come, agents that are there, and how many more must be launched."""

    size: int
    coming: list[_Machine]
    present: list[AgentId]
    missing: int


class Machines:
    """What is asked first counts first: a machine that one has counted on is not offered to the next."""

    def __init__(self, snapshot: PoolSnapshot, rooms: Rooms) -> None:
        supply = snapshot.supply
        self._rooms = rooms
        self._now = snapshot.now
        self._aux = snapshot.policy.max_aux_containers_per_agent
        self._room = supply.room
        self._present_sizes = tuple(snapshot.sizes) if supply.machines or supply.offers else ()
        offers = sorted(supply.offers, key=lambda o: (price_order(o.price_per_hour), o.slots, o.offer_id))
        self._offered_sizes = tuple(dict.fromkeys(offer.slots for offer in offers))
        """The cheapest first."""
        self._gang_sizes = {offer.slots for offer in offers if not offer.one_only}
        """Of which several may be had for one gang."""
        self._join_s = {offer.slots: offer.expected_s for offer in reversed(offers)}
        """Of the cheapest offer of each size, as far as is known."""
        self._machines = [
            _Machine(
                name=machine.instance,
                size=machine.slots,
                free=machine.slots,
                aux=self._aux,
                expected_at=machine.expected_at or _SOME_DAY,
                gangs=machine.gangs,
            )
            for machine in supply.machines
        ]

    @property
    def none(self) -> bool:
        """Nobody can count on any: none has room left, and none may be launched."""
        return not (self._room > 0 and self._offered_sizes) and all(m.free <= 0 and m.aux <= 0 for m in self._machines)

    def cover_one(self, slots: int, token: str, *, launch: bool) -> bool:
        """Count on one machine for all of it: one that comes or, with `launch`, one that could be launched."""
        machine = self._coming_for(slots, token)
        if machine is None:
            size = self._launchable_size(slots) if launch else None
            if size is None:
                return False
            machine = self._launched(size)
        machine.free -= slots
        machine.aux -= not slots
        return True

    def wait_for_one(self, slots: int, token: str, *, launch: bool) -> float | None:
        """Seconds until the machine that `cover_one` would count on; None when nobody knows, or there is none."""
        machine = self._coming_for(slots, token)
        if machine is not None:
            return self._wait_s(machine)
        size = self._launchable_size(slots) if launch else None
        return None if size is None else self._join_s.get(size)

    def cover_whole(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> dict[AgentId, int] | None:
        """Count on whole machines of one size. The answer is what must be kept of agents that are there already."""
        found = self._whole_for(slots, token, refuses, launch=launch)
        if found is None:
            return None
        for machine in found.coming + [self._launched(found.size) for _ in range(found.missing)]:
            machine.free = 0
        return dict.fromkeys(found.present, found.size)

    def wait_for_whole(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> float | None:
        """Seconds until the last of the machines that `cover_whole` would count on; None as in `wait_for_one`."""
        found = self._whole_for(slots, token, refuses, launch=launch)
        if found is None:
            return None
        waits = [self._wait_s(machine) for machine in found.coming]
        if found.missing:
            waits.append(self._join_s.get(found.size))
        known = [wait for wait in waits if wait is not None]
        return max(known, default=0.0) if len(known) == len(waits) else None

    def _coming_for(self, slots: int, token: str) -> _Machine | None:
        fitting = [m for m in self._machines if (m.free >= slots if slots else m.aux > 0)]
        return min(fitting, key=lambda m: (token not in m.gangs, m.free, *m.order(token)), default=None)

    def _launchable_size(self, slots: int) -> int | None:
        """The cheapest that holds it."""
        if self._room <= 0 or not (slots or self._aux):
            return None
        return next((size for size in self._offered_sizes if size >= slots), None)

    def _whole_for(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> _Whole | None:
        offered = self._gang_sizes if launch else set[int]()
        sizes = {*self._present_sizes, *(m.size for m in self._machines), *offered}
        for size in sorted((s for s in sizes if 0 < s < slots and slots % s == 0), reverse=True):
            count = slots // size
            coming = sorted((m for m in self._machines if m.size == size == m.free), key=lambda m: m.order(token))
            own = [m for m in coming if token in m.gangs][:count]
            present = self._rooms.idle_agents(size, count - len(own), refuses, later=True) if count > len(own) else []
            others = coming[len(own) : count - len(present)]
            missing = count - len(own) - len(present) - len(others)
            if missing <= 0 or (size in offered and missing <= self._room):
                return _Whole(size=size, coming=own + others, present=list(present), missing=max(missing, 0))
        return None

    def _wait_s(self, machine: _Machine) -> float | None:
        if machine.expected_at == _SOME_DAY:
            return None
        return expected_wait_s((machine.expected_at - self._now).total_seconds())

    def _launched(self, size: int) -> _Machine:
        self._room -= 1
        join_s = self._join_s.get(size)
        machine = _Machine(
            name=f"~{len(self._machines):06d}",
            size=size,
            free=size,
            aux=self._aux,
            expected_at=_SOME_DAY if join_s is None else self._now + timedelta(seconds=join_s),
            gangs=(),
        )
        self._machines.append(machine)
        return machine
