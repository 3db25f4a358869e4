"""The decision about one pool, with reasons. The code that carries it out may refuse a part, and never decides again."""

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
    """An allocation does not start: `account`, which would pay for it, would reach its limit, or has. No more is spent from it."""

    allocation: AllocationId
    account: str
    more: Rate
    """What the allocation would spend."""
    reached: Reached | None
    """The limit that would be reached; None where one was reached before, or a price is not known."""
    unpriced: str = ""
    """The agents whose price is not known, so that no limit could be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """A waiting allocation fails: the pool has given up launching the machines that it needs."""

    allocation: AllocationId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlan:
    """What is decided about the machines of an elastic pool, after its allocations have been placed."""

    scale: ScalePlan = field(default_factory=ScalePlan)
    give_ups: tuple[GiveUp, ...] = ()
    revisit_at: datetime | None = None
    """When the choice of markets may change by time alone, or the launches have had their time; that of `scale` is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """All decisions about one pool at one moment, in the order in which they are carried out: `preempt`, `starts`, `reserve`,
    `unaffordable`, `give_ups`, `launches`, `endings`."""

    snapshot: PoolSnapshot
    """What the scheduler saw: the view's, with what may come."""
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
        """Another decision follows at once: this one has changed its inputs. Slots are kept in number, so that with more vacating
        allocations other slots may suffice; a machine that ends allows another; and of a cut plan, or one with give-ups, the
        demand for machines is not complete."""
        return bool(self.schedule.cut or self.preempt or self.unaffordable or self.give_ups or self.endings)

    @property
    def revisit_at(self) -> datetime | None:
        """When the passing of time alone may change the decision; None for never."""
        moments = (self.schedule.revisit_at, self.machines.scale.revisit_at, self.machines.revisit_at)
        return min((at for at in moments if at is not None), default=None)

    @property
    def decided(self) -> tuple[object, ...]:
        """The decisions as values that can be written down and compared."""
        return self.schedule, self.unaffordable, self.machines
