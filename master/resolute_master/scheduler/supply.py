"""Machines that are no agents yet, on their way or to be had, and those that have just become agents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.ids import InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingMachine:
    """A machine that was asked for and whose agent has not joined. `gangs` are the allocations it was launched for."""

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
    """A kind of machine that may be asked for now. An offer that the cloud refuses for the moment is none."""

    offer_id: str
    slots: int
    price_per_hour: float | None = None
    expected_s: float | None = None
    """Seconds from the request to the agent, as far as is known."""
    room: int | None = None
    """How many machines of it may still be asked for; None: as many as of all offers together."""
    one_only: bool = False
    """For the moment it is asked for no machine of a gang that needs several; of work that needs one machine, for any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """What may come. The empty supply is that of a pool that never grows.

    `room` is how many machines of all offers together may still be asked for; `reason` says in words why none may or none can be
    had.
    """

    machines: tuple[ComingMachine, ...] = ()
    unused: tuple[UnusedMachine, ...] = ()
    offers: tuple[AvailableOffer, ...] = ()
    room: int = 0
    reason: str = ""
