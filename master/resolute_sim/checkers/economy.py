"""Nothing is launched that is not needed, paid that is not recorded, or kept that is not used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil

from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.clouds.fake import FakeCloud
from resolute_provisioner.model import Intent, Observed, PoolScaling
from resolute_provisioner.planning.standing import MASS_LOSS_GRACE_S
from resolute_sim.event_log import EventLog

CENT = 1e-6
"""Tolerance of an amount: the rounding error of sums."""

SLACK_S = 300.0
"""From a decision to give a machine back until its bill stops: lists that fail or lag, repeated orders, a slow end."""


def launches_are_needed(state: ClusterState, change: Change, pools: Mapping[PoolName, PoolPolicy]) -> Iterator[str]:
    """When something is launched, no more machines are on their way than the waiting work can use."""
    launching = [e for e in change.upserts if isinstance(e, Instance) and e.requested_at == change.journal.at]
    for pool in sorted({each.pool for each in launching}):
        scaling = pools[pool].scaling
        assert scaling is not None
        wanted = _wanted(state, pool, scaling)
        rows = [i for i in state.find(Instance, "instances_of_pool", pool) if not i.over]
        # What the cloud is ending already, because it has none after all, comes no more.
        promised = [i for i in rows if i.intent is Intent.RUN and i.observed is not Observed.STOPPING]
        coming = [i for i in promised if i.joined_at is None and i.notice is None]
        for_work = [i for i in coming if wanted.keys() & set(i.gangs)]
        need = sum(wanted.values()) + sum(i.notice is not None for i in rows)
        if len(for_work) > need:
            yield f"pool {pool} needs {need} machine(s) for its waiting work and has {len(for_work)} on their way"
        warm = [i for i in coming if not i.gangs]
        for_moves = int(scaling.consolidation is not None and _one_is_dearer(rows, warm))
        adds_one = any(each.pool == pool and not each.gangs for each in launching)
        if adds_one and len(warm) > scaling.min_instances + for_moves:
            yield (
                f"pool {pool} keeps {scaling.min_instances} machine(s), may move work to {for_moves}, and has {len(warm)} "
                "on their way for that alone"
            )


def _one_is_dearer(rows: Iterable[Instance], coming: Iterable[Instance]) -> bool:
    """Whether some machine with work costs more than one that comes, so that the work may move to it: one at a time."""
    cheapest = min((i.price_per_hour or 0.0 for i in coming), default=0.0)
    busy = (i for i in rows if i.joined_at is not None and i.idle_since is None)
    return any((i.price_per_hour or 0.0) > cheapest for i in busy)


def _wanted(state: ClusterState, pool: PoolName, scaling: PoolScaling) -> dict[str, int]:
    """By the tokens that launches name: how many machines at most."""
    smallest = min(offer.slots for offer in scaling.offers)
    found: dict[str, int] = {}
    for allocation in state.all(Allocation):
        if allocation.pool != pool or allocation.ended:
            continue
        machines = max(1, ceil(allocation.slots_needed / smallest))
        if scaling.has_both_markets and allocation.deadline is not None:
            machines *= 2  # a request on spot has no purpose any more when only machines on demand still keep it
        if allocation.assigned_at is None:
            found[allocation.id] = machines
        else:
            agents = (state.get(Agent, c.agent) for c in allocation.containers)
            if any(agent is not None and agent.leaving for agent in agents):
                found[f"{allocation.task_id}.{allocation.run_id + 1}"] = machines
    return found


def every_machine_is_recorded(cloud: FakeCloud, rows: Iterable[Instance]) -> Iterator[str]:
    """The row comes before the call, and one row is one machine."""
    known = {row.token for row in rows}
    tokens = Counter(machine.request.token for machine in cloud.machines.values())
    instances = Counter(machine.request.instance_id for machine in cloud.machines.values())
    for machine in cloud.machines.values():
        if machine.request.token not in known:
            yield f"the cloud has {machine.provider_id} for {machine.request.instance_id}, by a token that no row has"
    for what, counter in (("token", tokens), ("instance", instances)):
        for name, count in sorted(counter.items()):
            if count > 1:
                yield f"{count} machines were launched for {what} {name}"


class Lingering:
    """How long machines were paid for after the last use of their pool."""

    def __init__(self, pools: Mapping[PoolName, PoolPolicy]) -> None:
        self._pools = pools
        self._wanted_at: dict[PoolName, datetime] = {}
        self._away_s = 0.0
        self._frozen: set[str] = set()

    def froze(self, machine: str) -> None:
        """It can report nothing more, and the master may first suspect its own network."""
        self._frozen.add(machine)

    def note(self, state: ClusterState, now: datetime) -> None:
        for allocation in state.all(Allocation):
            if not allocation.ended:
                self._wanted_at[allocation.pool] = now

    def excuse(self, seconds: float) -> None:
        """Time for which no part could act."""
        self._away_s += seconds

    def check(self, cloud: FakeCloud, event_log: EventLog, now: datetime) -> Iterator[str]:
        used = {busy.machine: busy.end for busy in sorted(event_log.busy, key=lambda b: b.end)}
        of_pool: defaultdict[PoolName, list[tuple[datetime, datetime, str]]] = defaultdict(list)
        for line in cloud.bill.lines:
            pool = PoolName(cloud.machines[line.provider_id].request.pool)
            scaling = self._pools[pool].scaling
            assert scaling is not None
            last = max(used.get(line.instance_id, line.paid_from), self._wanted_at.get(pool, line.paid_from))
            last = max(last, line.paid_from)
            # By `max_idle_cost` the cheaper it becomes, the longer it may idle.
            least = min((price for _, price in line.prices), default=line.price_per_hour)
            allowed_s = max(_idle_s(scaling, least), scaling.disconnect_timeout_s, scaling.boot_timeout_s)
            if line.instance_id in self._frozen:
                allowed_s += MASS_LOSS_GRACE_S
            until = line.paid_until or now
            unused_s = (until - last).total_seconds()
            if unused_s > allowed_s + SLACK_S + self._away_s:
                overdue_at = last + timedelta(seconds=allowed_s + SLACK_S + self._away_s)
                of_pool[pool].append((overdue_at, until, f"{line.instance_id} was paid for {unused_s:.0f} s"))
        for pool, overdue in sorted(of_pool.items()):
            scaling = self._pools[pool].scaling
            assert scaling is not None
            for words in _beyond(overdue, scaling.min_instances):
                yield f"{words} after the last work of its pool, which keeps {scaling.min_instances}"


def _beyond(overdue: Sequence[tuple[datetime, datetime, str]], kept: int) -> Iterator[str]:
    """Machines that were overdue beyond the number that the pool keeps. Each entry of `overdue` has a beginning, an end and a
    text."""
    for number, (begin, _, words) in enumerate(sorted(overdue)):
        others = sum(until > begin for _, until, _ in sorted(overdue)[:number])
        if others >= kept:
            yield words


def _idle_s(scaling: PoolScaling, price_per_hour: float) -> float:
    """How long a machine at that price may be without work."""
    if scaling.max_idle_cost is None or not price_per_hour:
        return scaling.idle_timeout_s
    return max(scaling.idle_timeout_s, 3600.0 * scaling.max_idle_cost / price_per_hour)


def nothing_is_left(cloud: FakeCloud, event_log: EventLog, state: ClusterState) -> Iterator[str]:
    """After the end: what runs is what the pools are to keep, and every bill is booked as it was."""
    rows = {row.token: row for row in state.all(Instance)}
    for line in cloud.bill.running():
        if line.token not in rows:
            yield f"{line.instance_id} is still paid for, and has no row of a running machine"
    for task in event_log.live.values():
        yield f"{task.container} of {task.allocation} still runs on {task.machine}"


def accounts_are_booked(state: ClusterState, rows: Sequence[Instance], now: datetime) -> Iterator[str]:
    """What a pool has spent is the sum over its machines, and nothing is spent when none is left and nothing runs."""
    owed: dict[str, float] = defaultdict(float)
    for row in rows:
        if row.paid_from is not None:
            owed[account_id(Owner.POOL, row.pool)] += row.cost(row.paid_from, row.paid_until or now)
    accounts = {account.id: account.until(now) for account in state.all(Account)}
    for id_, amount in sorted(owed.items()):
        booked = accounts[id_].in_all if id_ in accounts else 0.0
        if abs(booked - amount) > CENT * max(1.0, amount):
            yield f"{id_} has {booked} on its account, and its machines have cost {amount}"
    for id_, account in sorted(accounts.items()):
        if (
            account.owner is not Owner.POOL
            and account.rate_per_hour
            and not any(a.price_per_hour for a in state.all(Allocation))
        ):
            yield f"{id_} goes on spending {account.rate_per_hour} an hour on nothing"


def bills_are_booked(cloud: FakeCloud, rows: Iterable[Instance]) -> Iterator[str]:
    """The cloud's charge equals the row, for machines that the cloud has confirmed."""
    by_token = {row.token: row for row in rows}
    for line in cloud.bill.lines:
        row = by_token.get(line.token)
        if row is None or row.provider_id != line.provider_id or row.paid_from is None:
            continue
        if row.paid_from != line.paid_from:
            yield f"{row.id} is booked from {row.paid_from}, and the cloud charges from {line.paid_from}"
        if row.over and row.paid_until is not None and row.paid_until != line.paid_until:
            yield f"{row.id} is booked until {row.paid_until}, and the cloud charged until {line.paid_until}"
