"""Agents, their slots, and what runs on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from resolute.wire.rest.agents import Agent as WireAgent
from resolute.wire.rest.agents import Container as WireContainer
from resolute.wire.rest.agents import DeviceStats, SlotStats
from resolute.wire.rest.agents import Slot as WireSlot
from resolute.wire.rest.enums import WireContainerState
from resolute_master.api.contract import CONTRACT_VERSION
from resolute_master.api.render.allocations import device
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container


def agent(value: Agent, allocations: Iterable[Allocation]) -> WireAgent:
    """`allocations` are those with a container on the agent; what has ended there is not shown."""
    held = [(a, c) for a in allocations for c in a.containers if c.agent == value.id and not c.ended]
    slots = {slot_id(s): slot(value, s, held) for s in value.slots}
    return WireAgent(
        id=value.id,
        addresses=(value.address,) if value.address else (),
        registered_time=value.registered_at,
        resource_pools=(value.pool,),
        version=CONTRACT_VERSION,
        resolute_version=value.version,
        # What is being drained takes nothing new: people are shown that it is off.
        enabled=value.enabled and not value.draining,
        draining=value.draining,
        slots=slots,
        containers={c.id: _container(value, a, c) for a, c in held},
        slot_stats=_stats(tuple(slots.values())),
    )


Held = Sequence[tuple[Allocation, Container]]


def slot_id(value: Slot) -> str:
    """Three digits, so that text sorts as numbers do."""
    return f"{value.index:03d}"


def slot(owner: Agent, value: Slot, held: Held) -> WireSlot:
    draining = value.draining or owner.draining
    using = next(((a, c) for a, c in held if value.index in c.slots), None)
    return WireSlot(
        id=slot_id(value),
        device=device(value),
        enabled=value.enabled and owner.enabled and not draining,
        draining=draining,
        container=_container(owner, *using) if using else None,
    )


def _container(owner: Agent, allocation: Allocation, container: Container) -> WireContainer:
    devices = tuple(device(s) for s in owner.slots if s.index in container.slots)
    return WireContainer(
        id=container.id, parent=allocation.id, state=WireContainerState[container.state.name], devices=devices
    )


def _stats(slots: Sequence[WireSlot]) -> SlotStats:
    return SlotStats(
        type_stats={name: _count(of) for name, of in _grouped(slots, "type").items()},
        brand_stats={name: _count(of) for name, of in _grouped(slots, "brand").items()},
    )


def _grouped(slots: Sequence[WireSlot], attribute: str) -> dict[str, list[WireSlot]]:
    groups: dict[str, list[WireSlot]] = {}
    for one in slots:
        groups.setdefault(str(getattr(one.device, attribute)), []).append(one)
    return groups


def _count(slots: Sequence[WireSlot]) -> DeviceStats:
    states = Counter(str(s.container.state) for s in slots if s.container is not None)
    return DeviceStats(
        total=len(slots),
        disabled=sum(not s.enabled for s in slots),
        draining=sum(s.draining for s in slots),
        states=dict(sorted(states.items())),
    )
