"""All inputs of the decision about one pool, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

from resolute_master.domain.account import NOTHING, Account, Rate
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import InstanceView, OfferBelief
from resolute_provisioner.planning.deadline import INTERRUPTIONS_PER_HOUR

Key = TypeVar("Key")
Value = TypeVar("Value")

STARTS_A_PASS = 50
"""Most allocations of a pool that one decision places. Each causes states, log lines and orders, which take a part of a
millisecond, and other commands wait meanwhile. Further decisions, which follow at once, place the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of an allocation with a deadline. Durations are seconds on the slots that it requests."""

    submitted_at: datetime
    total_s: float | None
    """Duration from the first step to the last; None if neither the pace nor an estimate is known."""
    saved: float = 0.0
    """The part in the newest checkpoint, 0 to 1."""
    done: float = 0.0
    """The part that is done, 0 to 1."""
    unsaved_s: float = 0.0
    """The work since the newest checkpoint."""
    interruptions_per_hour: float = INTERRUPTIONS_PER_HOUR
    """See `deadline.Work`."""

    def begun(self, *, runs: bool, elapsed_s: float) -> float:
        """The fraction that was done before the current run, by its duration."""
        if not runs:
            return self.saved
        return max(0.0, self.done - elapsed_s / self.total_s) if self.total_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPrice:
    """Cost of one slot of an agent per hour."""

    per_hour: float | None
    """None if unknown."""
    moves: bool = False
    """Whether it may change while the slot is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolBudget:
    """The limits on the cost of a pool's machines."""

    account: Account
    """The pool's account, which has limits and has reached none."""
    machines: Rate = NOTHING
    """Cost of the pool's machines, including requested ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """The budgets that limit a decision."""

    pool: PoolBudget | None = None
    """None: nothing limits what the pool buys, or a limit is reached and the snapshot is held."""
    payers: Mapping[AllocationId, tuple[Account, ...]] = field(default_factory=dict)
    """The accounts with limits that would pay for a waiting allocation: those of its experiment and its workspace."""
    prices: Mapping[AgentId, SlotPrice] = field(default_factory=dict)
    """The prices of agents whose slots are paid for."""


NO_BUDGETS = Budgets()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """`snapshot` has the pool's settings, its agents, jobs and allocations (what runs and what waits), why nothing may start in it,
    and the time of the decision.

    `machines` None: which machines may come is in the snapshot's `supply`, and none is asked for or released. Else these are
    the pool's machines by id, and the supply is derived from them.
    """

    snapshot: PoolSnapshot
    machines: tuple[InstanceView, ...] | None = None
    beliefs: Mapping[str, OfferBelief] = field(default_factory=dict)
    """Facts about each offer, by id: its present price, and the refusals, boot times and interruptions so far."""
    budgets: Budgets = NO_BUDGETS
    progress: Mapping[AllocationId, Progress] = field(default_factory=dict)
    """Progress of the allocations with a deadline. It is not read where the pool has no choice of markets."""
    starts: int | None = STARTS_A_PASS
    """Allocations that may be placed at most; None for any number."""
    changed: Mapping[AllocationId, Allocation] = field(default_factory=dict)
    """Allocations that differ from the snapshot (`occupation.after`)."""

    @property
    def now(self) -> datetime:
        return self.snapshot.now

    @property
    def policy(self) -> PoolPolicy:
        return self.snapshot.policy

    def allocation(self, id_: str) -> Allocation | None:
        """The allocation in its present state, by id or token."""
        known = AllocationId(id_)
        return self.changed.get(known) or self.snapshot.allocations.get(known)


class Keys(Protocol[Key]):
    """A set of keys, or a mapping by them."""

    def __contains__(self, key: Key, /) -> bool: ...

    def __iter__(self) -> Iterator[Key]: ...

    def __len__(self) -> int: ...


class ReadWhenAsked(Mapping[Key, Value]):
    """A mapping whose values are read from a larger state on access, because a decision reads only a few of them."""

    def __init__(self, keys: Keys[Key], read: Callable[[Key], Value | None]) -> None:
        """`read` answers None for a key that has no value after all."""
        self._keys = keys
        self._read = read

    def __getitem__(self, key: Key) -> Value:
        value = self._read(key) if key in self._keys else None
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
