"""Machines that are starting and machines that could be launched, during one pass, and the allocations that may use them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from resolute_master.domain.ids import AgentId
from resolute_master.scheduler.fitting import Refuses, Rooms
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.supply import AvailableOffer
from resolute_master.scheduler.wait_or_evict import expected_wait_s
from resolute_provisioner.offers import price_order

_SOME_DAY = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class _Machine:
    """A starting machine during the pass; mutable."""

    name: str
    size: int
    free: int
    aux: int
    expected_at: datetime
    gangs: tuple[str, ...]

    def order(self, token: str) -> tuple[object, ...]:
        return (token not in self.gangs, self.expected_at, self.name)


@dataclass(slots=True)
class _Stock:
    """An offer, with the number of its machines that the pass may still use."""

    offer: AvailableOffer
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """Machines of one size for one gang: starting ones, present agents, and the number to launch of an offer. `stock` None: none
    are missing."""

    size: int
    coming: list[_Machine]
    present: list[AgentId]
    missing: int
    stock: _Stock | None


class Machines:
    """Machines are assigned in the order of the calls: a machine that one allocation uses is not offered to the next."""

    def __init__(self, snapshot: PoolSnapshot, rooms: Rooms) -> None:
        supply = snapshot.supply
        self.kept_back = False
        """Whether some could be launched, and are kept for an allocation that cannot use them yet."""
        self._rooms = rooms
        self._now = snapshot.now
        self._aux = snapshot.policy.max_aux_containers_per_agent
        self._room = supply.room
        self._present_sizes = tuple(snapshot.sizes) if supply.machines or supply.offers else ()
        offers = sorted(supply.offers, key=lambda o: (price_order(o.price_per_hour), o.slots, o.offer_id))
        self._stocks = [_Stock(each, supply.room if each.room is None else each.room) for each in offers]
        """The offers, the cheapest first."""
        self._of_size: dict[int, list[_Stock]] = {}
        for stock in self._stocks:
            self._of_size.setdefault(stock.offer.slots, []).append(stock)
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
        """Whether no allocation can use any: none has free slots left, and none may be launched."""
        launchable = self._room > 0 and any(stock.room > 0 for stock in self._stocks)
        return not launchable and all(m.free <= 0 and m.aux <= 0 for m in self._machines)

    def own(self, slots: int, token: str) -> bool:
        """Whether a machine that was launched for the allocation is starting and has enough free slots for it."""
        return any(token in machine.gangs and machine.free >= slots for machine in self._machines)

    def cover_one(self, slots: int, token: str, *, launch: bool) -> bool:
        """Use one machine for all of it: one that is starting or, with `launch`, one that could be launched."""
        machine = self._coming_for(slots, token)
        if machine is None:
            stock = self._launchable(slots) if launch else None
            if stock is None:
                return False
            machine = self._launched(stock)
        machine.free -= slots
        machine.aux -= not slots
        return True

    def wait_for_one(self, slots: int, token: str, *, launch: bool) -> float | None:
        """Seconds until the machine of `cover_one` joins; None when unknown, or if there is none."""
        machine = self._coming_for(slots, token)
        if machine is not None:
            return self._wait_s(machine)
        stock = self._launchable(slots) if launch else None
        return None if stock is None else stock.offer.expected_s

    def cover_whole(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> dict[AgentId, int] | None:
        """Use whole machines of one size. The result is the slots to hold on present agents."""
        found = self._whole_for(slots, token, refuses, launch=launch)
        if found is None:
            return None
        launched = [] if found.stock is None else [self._launched(found.stock) for _ in range(found.missing)]
        for machine in found.coming + launched:
            machine.free = 0
        return dict.fromkeys(found.present, found.size)

    def wait_for_whole(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> float | None:
        """Seconds until the last of the machines of `cover_whole` joins; None as in `wait_for_one`."""
        found = self._whole_for(slots, token, refuses, launch=launch)
        if found is None:
            return None
        waits = [self._wait_s(machine) for machine in found.coming]
        if found.stock is not None:
            waits.append(found.stock.offer.expected_s)
        known = [wait for wait in waits if wait is not None]
        return max(known, default=0.0) if len(known) == len(waits) else None

    def shares(self, slots: int) -> Iterator[tuple[int, int, int]]:
        """How a gang may be composed of machines of one size, the largest first: the size, the number it needs, and how many of
        these are starting and unassigned, or could be launched."""
        for size in self._sizes_for(slots, launch=True):
            count = slots // size
            coming = sum(machine.size == size == machine.free for machine in self._machines)
            most = max((stock.room for stock in self._of_size.get(size, ()) if not stock.offer.one_only), default=0)
            if more := min(count, coming + max(min(most, self._room), 0)):
                yield size, count, more

    def keep_back(self, size: int, count: int) -> None:
        """Keeps `count` starting or available machines of the size from later calls."""
        self.kept_back = True
        for machine in [each for each in self._machines if each.size == size == each.free][:count]:
            machine.free, count = 0, count - 1
        stock = self._launchable_whole(size, count) if count else None
        if stock is not None:
            for _ in range(count):
                self._launched(stock).free = 0

    def _coming_for(self, slots: int, token: str) -> _Machine | None:
        fitting = [m for m in self._machines if (m.free >= slots if slots else m.aux > 0)]
        own = [m for m in fitting if token in m.gangs]
        return min(own or fitting, key=lambda m: (m.free, m.expected_at, m.name), default=None)

    def _launchable(self, slots: int) -> _Stock | None:
        """The cheapest offer whose machine has enough slots."""
        if self._room <= 0 or not (slots or self._aux):
            return None
        return next((stock for stock in self._stocks if stock.room > 0 and stock.offer.slots >= slots), None)

    def _launchable_whole(self, size: int, count: int) -> _Stock | None:
        """The cheapest offer that provides `count` more machines of one gang. The machines of a gang have one offer, as the
        provisioner launches them."""
        if count > self._room:
            return None
        of_size = self._of_size.get(size, ())
        return next((stock for stock in of_size if stock.room >= count and not stock.offer.one_only), None)

    def _whole_for(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> _Whole | None:
        for size in self._sizes_for(slots, launch=launch):
            count = slots // size
            coming = sorted((m for m in self._machines if m.size == size == m.free), key=lambda m: m.order(token))
            own = [m for m in coming if token in m.gangs][:count]
            present = self._rooms.idle_agents(size, count - len(own), refuses, later=True) if count > len(own) else []
            others = coming[len(own) : count - len(present)]
            missing = max(count - len(own) - len(present) - len(others), 0)
            stock = self._launchable_whole(size, missing) if missing and launch else None
            if stock is not None or not missing:
                return _Whole(size=size, coming=own + others, present=list(present), missing=missing, stock=stock)
        return None

    def _sizes_for(self, slots: int, *, launch: bool) -> list[int]:
        """Sizes of which a gang takes several whole machines; the largest first."""
        sizes = {*self._present_sizes, *(m.size for m in self._machines), *(self._of_size if launch else ())}
        return sorted((size for size in sizes if 0 < size < slots and slots % size == 0), reverse=True)

    def _wait_s(self, machine: _Machine) -> float | None:
        if machine.expected_at == _SOME_DAY:
            return None
        return expected_wait_s((machine.expected_at - self._now).total_seconds())

    def _launched(self, stock: _Stock) -> _Machine:
        self._room -= 1
        stock.room -= 1
        size, join_s = stock.offer.slots, stock.offer.expected_s
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
