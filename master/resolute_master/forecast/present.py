"""Conversion of a live pool into a virtual one, where a simulation of the future starts."""

from __future__ import annotations

from datetime import datetime

from resolute_master.decision.budgets import rate_of
from resolute_master.domain.account import NOTHING, Owner, account_id
from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.usage import Usage
from resolute_master.engine.memory import Memory
from resolute_master.forecast.accounts import Accounts
from resolute_master.forecast.pool import VirtualPool
from resolute_master.forecast.usage_book import UsageBook
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.spending import account_of, owners_of
from resolute_master.scheduler.snapshot import PoolSnapshot


def present_pool(memory: Memory, pool: PoolName, now: datetime) -> VirtualPool:
    """The pool as it is now, as if none of its budgets were used up: work that a budget holds back has no estimate; its
    explanation names the budget. What follows does not change `memory`."""
    view = memory.view(pool, now)
    snapshot, policy, state = view.snapshot.with_hold(""), view.policy, memory.state
    half_life_s = policy.usage_half_life_s
    progress = {id_: view.progress[id_] for id_ in view.progress if id_ in view.progress}
    return VirtualPool(
        policy=policy,
        now=now,
        snapshot=snapshot,
        offers={} if policy.scaling is None else {offer.offer_id: offer for offer in policy.scaling.offers},
        machines={InstanceId(each.instance_id): each for each in view.machines or ()},
        beliefs=dict(view.beliefs),
        accounts=_accounts(state, snapshot, now),
        usage=None if half_life_s is None else _usage(state, pool, half_life_s),
        progress_of=progress.get,
        deadlines=set(progress),
    )


def _usage(state: ClusterState, pool: PoolName, half_life_s: float) -> UsageBook:
    rows = {row.id: row for row in state.find(Usage, "usage_of_pool", pool)}
    return UsageBook(pool=pool, half_life_s=half_life_s, rows=rows)


def _accounts(state: ClusterState, snapshot: PoolSnapshot, now: datetime) -> Accounts | None:
    """Accounts with limits that are not reached: of the pool, and of the experiments and workspaces with work in it."""
    pool = snapshot.policy.name
    owners = {owner for id_ in snapshot.job_allocations if (job := snapshot.jobs.get(id_)) for owner in owners_of(job)}
    accounts = (account_of(state, id_, now) for id_ in sorted({account_id(Owner.POOL, pool), *owners}))
    known = {account.id: account for account in accounts if account.limits and account.wind_down is None}
    if not known:
        return None
    found = Accounts(pool=pool, known=known)
    for instance in state.find(Instance, "instances_of_pool", pool):
        rate = rate_of(instance.price_per_hour, moves=instance.price_moves)
        if instance.paid_from is not None and instance.paid_until is None and not instance.over and rate != NOTHING:
            found.machines[instance.id] = rate
    for allocation in snapshot.allocations.values():
        job = snapshot.jobs.get(allocation.job_id)
        rate = rate_of(allocation.price_per_hour, moves=allocation.price_moves)
        if job is not None and rate != NOTHING:
            found.held[allocation.id] = (rate, owners_of(job))
    return found
