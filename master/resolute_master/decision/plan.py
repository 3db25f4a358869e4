"""The decision about one pool, with reasons. The code that applies it may refuse a part, and never makes a decision of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from resolute_master.domain.account import Rate
from resolute_master.domain.ids import AllocationId
from resolute_master.lifecycle.budget import Reached
from resolute_master.scheduler.outcome import Outcome
from resolute_master.scheduler.plan import Placement, Plan, Preemption, Reservation
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Launch, ScalePlan, Termination


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaffordable:
    """An allocation does not start: `account`, which would pay for it, has reached its limit or would reach it."""

    allocation: AllocationId
    account: str
    more: Rate
    """The rate that the allocation would add."""
    reached: Reached | None
    """The limit that would be reached; None where one was reached before, or a price is not known."""
    unpriced: str = ""
    """Agents whose price is unknown, so that no limit could be enforced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """A pending allocation fails: the pool has given up launching the machines that it needs."""

    allocation: AllocationId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """The decision about the machines of an elastic pool, after its allocations have been placed."""

    scale: ScalePlan = field(default_factory=ScalePlan)
    give_ups: tuple[GiveUp, ...] = ()
    revisit_at: datetime | None = None
    """When time alone may change the choice of markets, or when launches are overdue. `scale` has a time of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """All decisions about one pool at one moment, in the order in which they are applied: `preempt`, `starts`, `reserve`,
    `unaffordable`, `give_ups`, `launches`, `endings`."""

    snapshot: PoolSnapshot
    """The snapshot that the scheduler used: the view's, with machines that may be launched."""
    outcome: Outcome
    """The scheduler's plan, without the starts that no account can pay, and its findings about each allocation."""
    unaffordable: tuple[Unaffordable, ...] = ()
    machines: MachinePlan = field(default_factory=MachinePlan)

    @property
    def schedule(self) -> Plan:
        return self.outcome.plan

    @property
    def preempt(self) -> tuple[Preemption, ...]:
        return self.outcome.plan.preempt

    @property
    def starts(self) -> tuple[Placement, ...]:
        return self.outcome.plan.place

    @property
    def reserve(self) -> tuple[Reservation, ...]:
        return self.outcome.plan.reserve

    @property
    def give_ups(self) -> tuple[GiveUp, ...]:
        return self.machines.give_ups

    @property
    def launches(self) -> tuple[Launch, ...]:
        return self.machines.scale.launches

    @property
    def endings(self) -> tuple[Termination, ...]:
        return self.machines.scale.terminations

    @property
    def unfinished(self) -> bool:
        """Whether another decision must follow at once, because this one has changed its inputs. Reserved slots are a number, so
        with more allocations that leave, other slots may suffice. The end of a machine may permit another end. The demand for
        machines of a plan that was cut, or has give-ups, is incomplete."""
        return bool(self.schedule.cut or self.preempt or self.unaffordable or self.give_ups or self.endings)

    @property
    def revisit_at(self) -> datetime | None:
        """When time alone may change the decision; None for never."""
        moments = (self.schedule.revisit_at, self.machines.scale.revisit_at, self.machines.revisit_at)
        return min((at for at in moments if at is not None), default=None)

    @property
    def decided(self) -> tuple[object, ...]:
        """The decisions as values that can be stored and compared."""
        return self.schedule, self.unaffordable, self.machines
