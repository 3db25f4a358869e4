"""Machines that are coming and machines that could be launched, during one pass: who may count on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from resolute_master.domain.ids import AgentId
from resolute_master.scheduler.fitting import Refuses, Rooms
from resolute_master.scheduler.snapshot import PoolSnapshot

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


class Machines:
    """What is asked first counts first: a machine that one has counted on is not offered to the next."""

    def __init__(self, snapshot: PoolSnapshot, rooms: Rooms) -> None:
        supply = snapshot.supply
        self._rooms = rooms
        self._aux = snapshot.policy.max_aux_containers_per_agent
        self._room = supply.room
        self._present_sizes = tuple(snapshot.sizes) if supply.machines or supply.offers else ()
        offers = sorted(
            supply.offers, key=lambda o: (o.price_per_hour is None, o.price_per_hour or 0.0, o.slots, o.offer_id)
        )
        self._offered_sizes = tuple(dict.fromkeys(offer.slots for offer in offers))
        """The cheapest first."""
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
        fitting = [m for m in self._machines if (m.free >= slots if slots else m.aux > 0)]
        if fitting:
            machine = min(fitting, key=lambda m: (token not in m.gangs, m.free, *m.order(token)))
        elif (
            launch
            and self._room > 0
            and (sizes := [s for s in self._offered_sizes if s >= slots])
            and (slots or self._aux)
        ):
            machine = self._launched(sizes[0])
        else:
            return False
        machine.free -= slots
        machine.aux -= not slots
        return True

    def cover_whole(self, slots: int, token: str, refuses: Refuses, *, launch: bool) -> dict[AgentId, int] | None:
        """Count on whole machines of one size. The answer is what must be kept of agents that are there already."""
        offered = self._offered_sizes if launch else ()
        sizes = {*self._present_sizes, *(m.size for m in self._machines), *offered}
        for size in sorted((s for s in sizes if 0 < s < slots and slots % s == 0), reverse=True):
            count = slots // size
            coming = sorted((m for m in self._machines if m.size == size == m.free), key=lambda m: m.order(token))
            own = [m for m in coming if token in m.gangs][:count]
            present = self._rooms.idle_agents(size, count - len(own), refuses, later=True) if count > len(own) else []
            others = coming[len(own) : count - len(present)]
            missing = count - len(own) - len(present) - len(others)
            if missing > 0 and not (size in offered and missing <= self._room):
                continue
            used = own + others + [self._launched(size) for _ in range(missing)]
            for machine in used:
                machine.free = 0
            return dict.fromkeys(present, size)
        return None

    def _launched(self, size: int) -> _Machine:
        self._room -= 1
        machine = _Machine(
            name=f"~{len(self._machines):06d}", size=size, free=size, aux=self._aux, expected_at=_SOME_DAY, gangs=()
        )
        self._machines.append(machine)
        return machine
