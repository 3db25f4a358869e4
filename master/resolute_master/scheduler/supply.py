"""Machines without an agent yet, starting or available, and those whose agent has just joined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingMachine:
    """A machine that was requested and whose agent has not joined. `gangs` are the allocations it was launched for."""

    instance: InstanceId
    slots: int
    expected_at: datetime | None = None
    gangs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedMachine:
    """A machine whose agent has joined and has run nothing yet. `gangs` are the allocations it was launched for."""

    instance: InstanceId
    gangs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableOffer:
    """A kind of machine that may be requested now. An offer that is skipped after a refusal is not in it."""

    offer_id: str
    slots: int
    price_per_hour: float | None = None
    expected_s: float | None = None
    """Seconds from the request to the agent, if known."""
    room: int | None = None
    """Number of its machines that may still be requested; None: as many as of all offers together."""
    one_only: bool = False
    """Whether it currently serves only work that needs one machine, for any number of machines, and no gang that needs several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Machines that may join. The empty supply is that of a pool that never grows.

    `room` is how many machines of all offers together may still be requested; `reason` is why none may be or none is available.
    """

    machines: tuple[ComingMachine, ...] = ()
    unused: tuple[UnusedMachine, ...] = ()
    offers: tuple[AvailableOffer, ...] = ()
    room: int = 0
    reason: str = ""
