"""Machines are asked for only for work whose experiment and workspace can pay for them.

An experiment and a workspace pay from the assignment on, so that nothing but a start can be refused (`spending.affords`). A machine
that is bought for such a start would idle at the pool's expense. What work costs is judged by the cheapest machines of the pool's
offers that would take it, beside what its payers spend already.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from functools import cached_property

from resolute_master.domain.account import NOTHING, Account, Owner, Rate
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.lifecycle import budget, spending
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.prices import offer_price
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Demand, Gang, PoolScaling
from resolute_provisioner.planning.gangs import fits_one_machine, needs_whole_machines

LOOK_AGAIN = timedelta(seconds=budget.LEAST_LIFE_S)
"""What a payer spends in another pool may end without a change in this one."""


class Payers:
    """Of a pool's waiting work, in one cycle. `before` is the state that the cycle began with: what has changed since is in no
    account yet."""

    def __init__(self, step: Step, before: ClusterState, scaling: PoolScaling) -> None:
        self._step = step
        self._before = before
        self._scaling = scaling
        self.revisit_at: datetime | None = None
        """When those of whom somebody could not pay are to be asked again if nothing changes."""
        self.landed = False
        """An experiment was paused for its limit, and what it waited for is gone."""

    # Where nobody has a limit, nothing of these two is reckoned.

    @cached_property
    def _more(self) -> defaultdict[str, Rate]:
        """By account: what it spends, or will, beside what is booked."""
        return defaultdict(Rate, spending.changes(self._step, self._before))

    @cached_property
    def _rates(self) -> list[tuple[int, Rate]]:
        """Slots and rate of each offer."""
        step, pool = self._step, PoolName(self._scaling.pool)
        return [
            (offer.slots, spending.rate_at(offer_price(step, pool, offer), moves=offer.price_moves))
            for offer in self._scaling.offers
        ]

    def any_short(self, slots: int) -> bool:
        """Whether any could not pay for so many slots on the dearest machines: else all can pay for less."""
        limited = [each for each in self._step.all(Account) if each.limits and each.owner is not Owner.POOL]
        if not limited:
            return False
        dearest = max((rate.most_per_hour / size for size, rate in self._rates), default=0.0) * slots
        return dearest > 0.0 and any(self._limit(account, Rate(per_hour=dearest)) is not None for account in limited)

    def why_not(self, allocation: Allocation, gang: Gang) -> str:
        """Why the work cannot be paid for beside what its payers spend; empty when it can, or when `paid` pauses it for that."""
        least = self._least(gang)
        for owner in spending.owners(self._step, allocation) if least != NOTHING else ():
            account = spending.account_of(self._step, owner)
            found = self._limit(account, least)
            if found is not None:
                return "" if self._is_to_be_paused(account) else self._refused(account, found)
        return ""

    def paid(self, demand: Demand) -> Demand:
        """Without what cannot be paid for beside what comes before it. An experiment that spends nothing and could not pay for
        its first start is paused, as when the start itself is refused."""
        kept = tuple(gang for gang in demand.gangs if self._pay_for(gang))
        return demand if len(kept) == len(demand.gangs) else replace(demand, gangs=kept)

    def _pay_for(self, gang: Gang) -> bool:
        allocation = self._step.get(Allocation, gang.token)
        if allocation is None:
            return True
        accounts = [spending.account_of(self._step, owner) for owner in spending.owners(self._step, allocation)]
        if not any(account.limits for account in accounts):
            return True
        least = self._least(gang)
        for account in accounts if least != NOTHING else ():
            if self._limit(account, least) is None:
                continue
            if self._is_to_be_paused(account):
                self.landed |= spending.refuse_start(self._step, account, more=least)
            return False
        for account in accounts:
            self._more[account.id] += least
        return True

    def _is_to_be_paused(self, account: Account) -> bool:
        """Nothing of it will end and leave it more."""
        return account.owner is Owner.EXPERIMENT and account.landing is None and self._rate(account) == NOTHING

    def _rate(self, account: Account) -> Rate:
        return account.rate + self._more[account.id]

    def _limit(self, account: Account, more: Rate) -> budget.Reached | None:
        """The limit that would be reached if so much more were spent for as long as is worth a machine."""
        current = account.paying(self._more[account.id], self._step.now)
        # A max_cost may be meant for a minute; the rest of a day's budget is not worth a boot.
        hard = account.owner is Owner.EXPERIMENT
        life_s = current.landing_s if hard else max(current.landing_s, budget.LEAST_LIFE_S)
        cost = more.most_per_hour * life_s / 3600.0
        return next((limit for limit, left in budget.left(current, life_s) if cost >= left), None)

    def _refused(self, account: Account, found: budget.Reached) -> str:
        later = self._step.now + LOOK_AGAIN
        moments = [found.until, later if self._rate(account) != NOTHING else None, self.revisit_at]
        self.revisit_at = min((each for each in moments if each is not None), default=None)
        return spending.no_machine(self._step, account, found)

    def _least(self, gang: Gang) -> Rate:
        """What the slots cost on the cheapest machines that would take them; nothing where that is not known."""
        shares = (
            Rate(per_hour=rate.per_hour / size * gang.slots, moving_per_hour=rate.moving_per_hour / size * gang.slots)
            for size, rate in self._rates
            if fits_one_machine(gang, size) or needs_whole_machines(gang, size) is not None
        )
        return min(shares, key=lambda rate: rate.most_per_hour, default=NOTHING)
