"""The spending of a virtual pool and its jobs, and its limits: the accounts of `lifecycle.spending`, in virtual time.

The rules of `lifecycle.budget` determine when a limit is reached and when spending resumes. Only accounts with limits are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from resolute_master.domain.account import NOTHING, Account, Owner, Rate, account_id
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AllocationId, InstanceId, PoolName
from resolute_master.lifecycle import budget


@dataclass(slots=True, kw_only=True)
class Accounts:
    """Accounts of a virtual pool. `known`: the accounts by id; `machines`: the cost of each machine of the pool; `held`: what
    each allocation pays for its slots, and its accounts."""

    pool: PoolName
    known: dict[str, Account] = field(default_factory=dict)
    machines: dict[InstanceId, Rate] = field(default_factory=dict)
    held: dict[AllocationId, tuple[Rate, tuple[str, ...]]] = field(default_factory=dict)
    pending: list[tuple[str, Rate, float | None]] = field(default_factory=list)
    """Changes to book: an account, its additional rate, and the duration of a save. They are booked after a decision, as in a
    live master."""

    def copy(self) -> Accounts:
        return replace(
            self, known=dict(self.known), machines=dict(self.machines), held=dict(self.held), pending=list(self.pending)
        )

    @property
    def of_pool(self) -> Account | None:
        return self.known.get(account_id(Owner.POOL, self.pool))

    @property
    def hold(self) -> str:
        """Why no work may start in the pool; "" if it may."""
        account = self.of_pool
        return "" if account is None else account.wind_down_reason

    def limited(self, ids: Iterable[str]) -> tuple[Account, ...]:
        """The accounts with limits among these."""
        return tuple(known for id_ in ids if (known := self.known.get(id_)) is not None and known.limits)

    # -- bookings ----------------------------------------------------------------------------------------------

    def machine_costs(self, id_: InstanceId, rate: Rate) -> None:
        """Sets the rate of a machine from now on, 0 when it has ended."""
        before = self.machines.pop(id_, NOTHING)
        if rate != NOTHING:
            self.machines[id_] = rate
        self._pay((account_id(Owner.POOL, self.pool),), rate - before)

    def slots_cost(self, id_: AllocationId, rate: Rate, payers: tuple[str, ...]) -> None:
        """Sets the rate of what an allocation holds, 0 when it has ended."""
        before, paid_by = self.held.pop(id_, (NOTHING, payers))
        if rate != NOTHING:
            self.held[id_] = (rate, paid_by)
        self._pay(paid_by, rate - before)

    def saved(self, id_: AllocationId, took_s: float) -> None:
        """Records the time that a preempted allocation took to save and end."""
        _, payers = self.held.get(id_, (NOTHING, ()))
        for account in (*payers, account_id(Owner.POOL, self.pool)):
            self.pending.append((account, NOTHING, took_s))

    def _pay(self, ids: Iterable[str], more: Rate) -> None:
        self.pending += [(id_, more, None) for id_ in ids if more != NOTHING]

    def book(self, now: datetime) -> None:
        """Books all changes since the last booking, at this time."""
        for id_, more, took_s in self.pending:
            account = self.known.get(id_)
            if account is not None and more != NOTHING:
                account = account.paying(more, now)
            if account is not None:
                self.known[id_] = account if took_s is None else account.having_saved(took_s)
        self.pending.clear()

    # -- limits ------------------------------------------------------------------------------------------------

    def due(self) -> datetime | None:
        """When a limit must be checked again if nothing changes; None for never."""
        return min((at for each in self.known.values() if (at := budget.due(each)) is not None), default=None)

    def fall_due(self, now: datetime) -> tuple[list[Account], list[Account]]:
        """The accounts that wind down now, and those that wound down before and whose work must be killed because it has not
        ended."""
        wound_down: list[Account] = []
        overdue: list[Account] = []
        for id_, account in sorted(self.known.items()):
            at = budget.due(account)
            if at is None or at > now:
                continue
            if account.wind_down is not None and account.wind_down.until is None:
                overdue.append(account)
                continue
            current = budget.resumed(account, now)
            found = budget.reached(current, now)
            if found is not None:
                current = budget.wound_down(current, budget.reason(current, found, current.name), found.until, now)
                wound_down.append(current)
            self.known[id_] = current
        return wound_down, overdue

    def refuse(self, id_: str, more: Rate, found: budget.Reached | None, unpriced: str, now: datetime) -> Account:
        """Winds the account down, because the work that was to start would add the rate `more`."""
        account = self.known[id_]
        reason = f"the price of {unpriced} is not known" if unpriced or found is None else ""
        until = None if found is None else found.until
        if found is not None and not unpriced:
            reason = budget.reason(account, found, account.name)
        self.known[id_] = budget.wound_down(account, reason, until, now, more=more)
        return self.known[id_]
