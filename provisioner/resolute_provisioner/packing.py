"""Puts waiting gangs on machines that are there, on machines that are coming, and on machines that could be had. Pure.

Gangs are taken in order of importance. Each goes whole onto the layout that adds the least cost, on what is there and
coming first. How machines of several sizes are best bought for many small gangs is found by trying: each usable
offer is once the preferred one, and the purchase that serves the most important gangs at the lowest price wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from resolute_provisioner.model import Gang, Offer

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class Machine:
    """One machine while gangs are put on it. Mutable, and private to one packing."""

    name: str
    size: int
    """All of its slots, used or not."""
    free_slots: int
    free_aux: int
    untouched: bool
    """Nothing uses its slots, so that a gang may take it whole."""
    preference: int = 0
    """Lower is filled first: connected machines before starting ones before bought ones."""
    reserved_for: tuple[str, ...] = ()
    offer: Offer | None = None
    """Set for a machine that would have to be bought."""
    tokens: list[str] = field(default_factory=list)

    def take(self, gang: Gang, slots: int) -> None:
        self.tokens.append(gang.token)
        if slots == 0:
            self.free_aux -= 1
        else:
            self.free_slots -= slots
            self.untouched = False

    def copy(self) -> Machine:
        return replace(self, tokens=list(self.tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One set of machines on which a gang without machines would run."""

    machines_missing: int
    """How many more machines it would take."""
    would_use: tuple[str, ...]
    """The machines that are there or coming and that it would use beside those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """A gang that got no machines. `ways`: the one that misses the fewest machines first; none when no offer that can be
    asked for now serves the gang."""

    gang: Gang
    ways: tuple[Way, ...]

    @property
    def machines_missing(self) -> int | None:
        return self.ways[0].machines_missing if self.ways else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Which machine takes which gangs (by token, in the order of their importance)."""

    on_machines: Mapping[str, tuple[str, ...]]
    bought: tuple[tuple[Offer, tuple[str, ...]], ...]
    unserved: tuple[Unserved, ...]


def in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Most important first; the token decides between equals."""
    return sorted(gangs, key=lambda gang: (gang.priority, gang.deadline or _NEVER, gang.submitted_at, gang.token))


def pack(
    machines: Sequence[Machine], gangs: Sequence[Gang], offers: Sequence[Offer], *, room: int, max_aux: int
) -> Packing:
    """Pack `gangs`, in the order given, buying at most `room` machines of `offers`."""
    offers = sorted(offers, key=lambda offer: offer.offer_id)
    preferred: list[Offer | None] = [None]
    if len(offers) > 1:
        preferred.extend(offers)
    attempts = [_Attempt(machines, offers, prefer, room, max_aux) for prefer in preferred]
    best: tuple[tuple[object, ...], Packing] | None = None
    for index, attempt in enumerate(attempts):
        packing = attempt.run(gangs)
        missing = {each.gang.token for each in packing.unserved}
        served_in_order = tuple(gang.token in missing for gang in gangs)
        key = (served_in_order, *_cost(offer for offer, _ in packing.bought), len(packing.bought), index)
        if best is None or key < best[0]:
            best = (key, packing)
    assert best is not None
    return best[1]


def needs_whole_machines(gang: Gang, size: int) -> int | None:
    """How many machines of `size` slots a gang takes when no single machine holds it; None when it cannot."""
    if gang.single_machine or size <= 0:
        return None
    if gang.slots_per_machine is not None:
        each = gang.slots_per_machine
        return gang.slots // each if 0 < each <= size and gang.slots % each == 0 else None
    return gang.slots // size if gang.slots > size and gang.slots % size == 0 else None


def fits_one_machine(gang: Gang, size: int) -> bool:
    """Whether an empty machine of `size` slots holds the whole gang."""
    if gang.slots == 0:
        return True
    return gang.slots_per_machine in (None, gang.slots) and gang.slots <= size


def _cost(offers: Iterable[Offer]) -> tuple[int, float]:
    """Unknown prices first, so that a machine of known price is always preferred to one of unknown price."""
    prices = [offer.price_per_hour for offer in offers]
    return sum(price is None for price in prices), sum(price for price in prices if price is not None)


@dataclass(frozen=True, slots=True)
class _Layout:
    """One way to run a gang: so many slots on each of these machines and on each machine still to buy."""

    share: int
    used: tuple[Machine, ...]
    buy: tuple[Offer, ...]

    others: int = 0
    """How many of the used machines were launched for other gangs that still wait."""

    def key(self) -> tuple[object, ...]:
        return (*_cost(self.buy), len(self.buy), self.others, len(self.used), -self.share)


class _Attempt:
    """One pass over all gangs with one preferred offer."""

    def __init__(
        self,
        machines: Sequence[Machine],
        offers: Sequence[Offer],
        prefer: Offer | None,
        room: int,
        max_aux: int,
    ) -> None:
        self._machines = [machine.copy() for machine in machines]
        ordered = sorted(self._machines, key=lambda machine: (machine.preference, machine.name))
        # Full machines leave these lists, so that many waiting gangs do not look at them again and again.
        self._with_slots = [machine for machine in ordered if machine.free_slots > 0]
        self._with_aux = [machine for machine in ordered if machine.free_aux > 0]
        self._offers = offers
        self._prefer = prefer
        self._room = room
        self._max_aux = max_aux
        self._bought: list[Machine] = []
        self._waiting: set[str] = set()
        self._hopeless: dict[object, Unserved] = {}

    def run(self, gangs: Sequence[Gang]) -> Packing:
        unserved: list[Unserved] = []
        self._waiting = {gang.token for gang in gangs}
        for gang in gangs:
            shape = (gang.slots, gang.single_machine, gang.slots_per_machine, gang.excluded_instances)
            # Free machines and room together only shrink, so a shape that failed once fails again.
            if shape not in self._hopeless and self._place(gang, shape):
                continue
            unserved.append(replace(self._hopeless[shape], gang=gang))
        return Packing(
            on_machines={m.name: tuple(m.tokens) for m in self._machines if m.tokens and m.offer is None},
            bought=tuple((m.offer, tuple(m.tokens)) for m in self._bought if m.offer is not None),
            unserved=tuple(unserved),
        )

    def _place(self, gang: Gang, shape: object) -> bool:
        layouts = self._layouts(gang)
        affordable = [layout for layout in layouts if len(layout.buy) <= self._room]
        if not affordable:
            ways = tuple(
                Way(
                    machines_missing=len(layout.buy),
                    would_use=tuple(machine.name for machine in layout.used if machine.offer is None),
                )
                for layout in sorted(layouts, key=lambda layout: (len(layout.buy), layout.key()))
            )
            self._hopeless[shape] = Unserved(gang=gang, ways=ways)
            return False
        chosen = min(affordable, key=_Layout.key)
        self._waiting.discard(gang.token)
        for machine in chosen.used:
            machine.take(gang, chosen.share)
        for offer in chosen.buy:
            self._buy(offer).take(gang, chosen.share)
        self._with_slots = [machine for machine in self._with_slots if machine.free_slots > 0]
        self._with_aux = [machine for machine in self._with_aux if machine.free_aux > 0]
        return True

    def _buy(self, offer: Offer) -> Machine:
        machine = Machine(
            name=f"new-{len(self._bought):06d}",
            size=offer.slots,
            free_slots=offer.slots,
            free_aux=self._max_aux,
            untouched=True,
            preference=2,
            offer=offer,
        )
        self._room -= 1
        self._bought.append(machine)
        self._with_slots.append(machine)
        self._with_aux.append(machine)
        return machine

    def _layouts(self, gang: Gang) -> list[_Layout]:
        there = self._with_slots if gang.slots else self._with_aux
        candidates = [machine for machine in there if machine.name not in gang.excluded_instances]
        layouts = self._on_one_machine(gang, candidates)
        if layouts and not layouts[0].buy and not layouts[0].others:
            return layouts
        if gang.slots_per_machine is not None:
            layouts.extend(self._in_shares(gang, gang.slots_per_machine, candidates))
        else:
            sizes = {machine.size for machine in candidates} | {offer.slots for offer in self._offers}
            for size in sorted(sizes):
                layouts.extend(self._on_whole_machines(gang, size, candidates))
        return layouts

    def _on_one_machine(self, gang: Gang, candidates: Sequence[Machine]) -> list[_Layout]:
        there = [machine for machine in candidates if fits_one_machine(gang, machine.size) and _has(machine, gang)]
        if there:
            return [self._layout(gang, gang.slots, [min(there, key=lambda each: self._fit(each, gang))])]
        offers = [offer for offer in self._offers if fits_one_machine(gang, offer.slots) and self._takes(offer, gang)]
        if not offers:
            return []
        if self._prefer is not None and self._prefer in offers:
            return [_Layout(gang.slots, (), (self._prefer,))]
        cheapest = min(offers, key=lambda offer: (*_cost([offer]), offer.slots, offer.offer_id))
        return [_Layout(gang.slots, (), (cheapest,))]

    def _takes(self, offer: Offer, gang: Gang) -> bool:
        return gang.slots > 0 or self._max_aux > 0

    def _in_shares(self, gang: Gang, share: int, candidates: Sequence[Machine]) -> list[_Layout]:
        if share <= 0 or gang.slots % share or gang.slots == 0 or (gang.single_machine and share != gang.slots):
            return []
        count = gang.slots // share
        there = sorted((m for m in candidates if m.free_slots >= share), key=lambda each: self._fit(each, gang))[:count]
        return self._completed(gang, share, count, there, [offer for offer in self._offers if offer.slots >= share])

    def _on_whole_machines(self, gang: Gang, size: int, candidates: Sequence[Machine]) -> list[_Layout]:
        count = needs_whole_machines(gang, size)
        if count is None:
            return []
        whole = (machine for machine in candidates if machine.size == size and machine.untouched)
        there = sorted(whole, key=lambda each: self._fit(each, gang))[:count]
        return self._completed(gang, size, count, there, [offer for offer in self._offers if offer.slots == size])

    def _completed(
        self, gang: Gang, share: int, count: int, there: Sequence[Machine], offers: Sequence[Offer]
    ) -> list[_Layout]:
        missing = count - len(there)
        if missing == 0:
            return [self._layout(gang, share, there)]
        if not offers:
            return []
        cheapest = min(offers, key=lambda offer: (*_cost([offer]), offer.slots, offer.offer_id))
        return [self._layout(gang, share, there, (cheapest,) * missing)]

    def _layout(self, gang: Gang, share: int, used: Sequence[Machine], buy: tuple[Offer, ...] = ()) -> _Layout:
        return _Layout(share, tuple(used), buy, sum(self._for_others(machine, gang) for machine in used))

    def _for_others(self, machine: Machine, gang: Gang) -> bool:
        """Whether it is kept for gangs that would have to buy another one: what one plan bought for two gangs must
        serve the same two in the next."""
        return gang.token not in machine.reserved_for and not self._waiting.isdisjoint(machine.reserved_for)

    def _fit(self, machine: Machine, gang: Gang) -> tuple[object, ...]:
        """The machine launched for this gang first and those for others last; between them what is there before what
        is coming, then the tightest."""
        return (
            gang.token not in machine.reserved_for,
            self._for_others(machine, gang),
            machine.preference,
            machine.free_slots,
            machine.name,
        )


def _has(machine: Machine, gang: Gang) -> bool:
    return machine.free_aux > 0 if gang.slots == 0 else machine.free_slots >= gang.slots
