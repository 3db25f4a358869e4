"""The machines of one packing, indexed by their free slots. Pure.

The order of use: machines that were launched for the gang itself, then machines without a hold of others; among those present
machines before starting ones before new ones, then the tightest fit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, merge

from resolute_provisioner.model import Gang, Market
from resolute_provisioner.planning.gangs import fits_one_machine
from resolute_provisioner.ranking import Forecast

Place = tuple[bool, int, int]
"""Kept for others, preference, free slots: in this order machines are filled."""


@dataclass(slots=True, kw_only=True, eq=False)
class Machine:
    """One machine while gangs are put on it. Mutable, and private to one packing."""

    name: str
    size: int
    """All of its slots, used or not."""
    free_slots: int
    free_aux: int
    untouched: bool
    """Whether no slot of it is in use, so that a gang may use it whole."""
    preference: int = 0
    """Lower is filled first: connected machines before starting ones before bought ones."""
    reserved_for: tuple[str, ...] = ()
    market: Market | None = None
    """None if the purchase is unknown: it serves every gang."""
    bought: Forecast | None = None
    """Set for a machine that would have to be bought."""
    tokens: list[str] = field(default_factory=list)
    awaited_by: int = 0
    """Number of gangs for which it was launched and which are still pending."""

    @property
    def place(self) -> Place:
        return (self.awaited_by > 0, self.preference, self.free_slots)

    def copy(self) -> Machine:
        """The machine before any gang was placed on it in this packing."""
        return Machine(
            name=self.name,
            size=self.size,
            free_slots=self.free_slots,
            free_aux=self.free_aux,
            untouched=self.untouched,
            preference=self.preference,
            reserved_for=self.reserved_for,
            market=self.market,
        )


class _OffersOfSize:
    """Machines by their place. A machine whose place has changed is inserted again, and skipped at its old place."""

    def __init__(self, *, aux: bool = False) -> None:
        self._aux = aux
        self._places: list[Place] = []
        self._at: dict[Place, list[tuple[str, Machine]]] = {}

    def put(self, machine: Machine) -> None:
        place = machine.place
        if place not in self._at:
            self._at[place] = []
            insort(self._places, place)
        heappush(self._at[place], (machine.name, machine))

    def first(self, least: int, accepts: Callable[[Machine], bool]) -> Machine | None:
        """The first accepted machine with at least this number of free slots."""
        emptied: list[Place] = []
        found: Machine | None = None
        for place in self._places:
            if place[2] < least:
                continue
            heap, refused = self._at[place], []
            while heap and found is None:
                machine = heap[0][1]
                if machine.place != place or (self._aux and machine.free_aux <= 0):
                    heappop(heap)
                elif accepts(machine):
                    found = machine
                else:
                    refused.append(heappop(heap))
            for each in refused:
                heappush(heap, each)
            if not heap:
                emptied.append(place)
            if found is not None:
                break
        for place in emptied:
            del self._at[place]
            self._places.remove(place)
        return found


class _Whole:
    """Machines of one size and market that are unused, in the order of use."""

    def __init__(self) -> None:
        self._heap: list[tuple[bool, int, str, Machine]] = []

    def put(self, machine: Machine) -> None:
        kept, preference, _ = machine.place
        heappush(self._heap, (kept, preference, machine.name, machine))

    def first(self, count: int, accepts: Callable[[Machine], bool]) -> list[tuple[bool, int, str, Machine]]:
        met: list[tuple[bool, int, str, Machine]] = []
        found: list[tuple[bool, int, str, Machine]] = []
        while self._heap and len(found) < count:
            entry = heappop(self._heap)
            machine = entry[3]
            if not machine.untouched or entry[0] != machine.place[0]:
                continue
            met.append(entry)
            if accepts(machine):
                found.append(entry)
        for entry in met:
            heappush(self._heap, entry)
        return found


class OffersBySize:
    """All machines of one pass. `gangs`: those that are not placed yet."""

    def __init__(self, machines: Iterable[Machine], gangs: Sequence[Gang]) -> None:
        self.machines: list[Machine] = []
        self._waiting = {gang.token for gang in gangs}
        # An index that no gang of the pass reads is not kept.
        self._keeps_aux = any(gang.slots == 0 for gang in gangs)
        self._keeps_whole = any(gang.slots > 1 and not gang.single_machine for gang in gangs)
        self._slots: dict[Market | None, _OffersOfSize] = {}
        self._aux: dict[Market | None, _OffersOfSize] = {}
        self._whole: dict[tuple[int, Market | None], _Whole] = {}
        self._reserved: dict[str, list[Machine]] = {}
        for machine in machines:
            self.add(machine)

    def add(self, machine: Machine) -> None:
        self.machines.append(machine)
        tokens = [token for token in machine.reserved_for if token in self._waiting]
        machine.awaited_by = len(tokens)
        for token in tokens:
            self._reserved.setdefault(token, []).append(machine)
        self._put(machine)

    @property
    def sizes(self) -> set[int]:
        """Slots of machines that were empty when they were added."""
        return {size for size, _ in self._whole}

    def take(self, machine: Machine, gang: Gang, slots: int) -> None:
        machine.tokens.append(gang.token)
        if slots == 0:
            machine.free_aux -= 1
            return
        machine.free_slots -= slots
        machine.untouched = False
        self._put(machine)

    def served(self, gang: Gang) -> None:
        """Records that the gang is placed: machines that were held only for it are free."""
        self._waiting.discard(gang.token)
        for machine in self._reserved.pop(gang.token, ()):
            machine.awaited_by -= 1
            if machine.awaited_by == 0:
                self._put(machine)

    def kept_for_others(self, machine: Machine, gang: Gang) -> bool:
        """Whether the machine is held for other gangs. A machine that one plan bought for two gangs must serve the same two in
        the next."""
        return machine.awaited_by > 0 and gang.token not in machine.reserved_for

    def one(self, gang: Gang) -> Machine | None:
        """The machine that takes the whole gang."""

        def accepts(machine: Machine) -> bool:
            return self._may_use(machine, gang) and fits_one_machine(gang, machine.size) and _has(machine, gang)

        own = [machine for machine in self._reserved.get(gang.token, ()) if accepts(machine)]
        if own:
            return min(own, key=_fill_order)
        by_size = self._aux if gang.slots == 0 else self._slots
        found = [
            machine
            for market in (*sorted(gang.markets), None)
            if market in by_size and (machine := by_size[market].first(gang.slots, accepts)) is not None
        ]
        return min(found, key=_fill_order, default=None)

    def whole(self, gang: Gang, size: int, count: int) -> list[Machine]:
        """At most `count` unused machines of the size."""

        def accepts(machine: Machine) -> bool:
            return self._may_use(machine, gang) and gang.token not in machine.reserved_for

        own = sorted(
            (
                machine
                for machine in self._reserved.get(gang.token, ())
                if machine.untouched and machine.size == size and self._may_use(machine, gang)
            ),
            key=_fill_order,
        )[:count]
        missing = count - len(own)
        stacks = [self._whole[key] for key in ((size, m) for m in (*sorted(gang.markets), None)) if key in self._whole]
        others = merge(*(stack.first(missing, accepts) for stack in stacks), key=lambda entry: entry[:3])
        return own + [entry[3] for entry, _ in zip(others, range(missing), strict=False)]

    def sharing(self, gang: Gang, share: int, count: int) -> list[Machine]:
        """At most `count` machines with this number of free slots each."""
        fitting = (m for m in self.machines if m.free_slots >= share and self._may_use(m, gang))
        return sorted(fitting, key=lambda m: (gang.token not in m.reserved_for, _fill_order(m)))[:count]

    def _put(self, machine: Machine) -> None:
        if machine.free_slots > 0:
            self._slots.setdefault(machine.market, _OffersOfSize()).put(machine)
        if self._keeps_aux and machine.free_aux > 0:
            self._aux.setdefault(machine.market, _OffersOfSize(aux=True)).put(machine)
        if self._keeps_whole and machine.untouched and machine.size > 0:
            self._whole.setdefault((machine.size, machine.market), _Whole()).put(machine)

    def _may_use(self, machine: Machine, gang: Gang) -> bool:
        bought_right = machine.market is None or machine.market in gang.markets
        return bought_right and machine.name not in gang.excluded_instances


def _fill_order(machine: Machine) -> tuple[object, ...]:
    return (*machine.place, machine.name)


def _has(machine: Machine, gang: Gang) -> bool:
    return machine.free_aux > 0 if gang.slots == 0 else machine.free_slots >= gang.slots


def copies(machines: Sequence[Machine]) -> list[Machine]:
    return [machine.copy() for machine in machines]
