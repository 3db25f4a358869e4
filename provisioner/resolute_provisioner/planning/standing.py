"""The use of each machine now, derived from the stored facts and the time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from operator import attrgetter

from resolute_provisioner.model import InstanceView, Intent, Observed, PoolScaling

NOTICE_GRACE_S = 60.0
"""Time after the deadline of its notice at which the pool ends a machine itself."""

MASS_LOSS_SHARE = 0.5
"""Share of the machines that are out of contact at once from which on the master's own network is the likely cause."""

MASS_LOSS_GRACE_S = 1800.0
"""Time past the ordinary limit for which the suspicion protects them. Healthy machines that cannot reach their master end
themselves long before, so what is still paid for then is broken."""

by_id = attrgetter("instance_id")
"""A sort key of machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One machine, judged at one time. Several of these may hold together."""

    view: InstanceView
    stopping: bool
    """Whether it was ordered to end, or the cloud is ending it."""
    never_joined: bool
    lost: bool
    """Whether it is out of contact for too long while most others are not, or for much too long."""
    suspect: bool
    """Whether it is out of contact for too long, together with a part of the pool that is large enough (`MASS_LOSS_SHARE`) to
    take no action."""
    capacity: bool
    """Whether work may be planned on it: it is present or starting."""

    @property
    def counts(self) -> bool:
        """Whether it counts against the pool's maximum: it does until it has ended, except under notice."""
        return self.view.notice is None

    @property
    def staying(self) -> bool:
        """Whether it will still be in the pool after all ordered changes."""
        view = self.view
        return not (self.stopping or self.never_joined or self.lost or view.notice or view.draining_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The machines of a pool that have not ended, at one time, each in one of three lists.

    Those of `full` and `open` are there, in contact with the master, and take work. Both lists are empty where the pool has more
    machines than its maximum: then any may have to end, and each is judged.
    """

    full: Sequence[InstanceView]
    """Machines with work and without free slots. No rule releases or moves one, and they accept only work without slots. In any
    order."""
    open: Sequence[InstanceView]
    """Machines with free slots or without work. In any order."""
    others: Sequence[Standing]
    """Machines that start, end, drain, are under notice, out of contact or disabled. By id."""

    @property
    def counted(self) -> int:
        """Number of machines that count against the pool's maximum."""
        return len(self.full) + len(self.open) + sum(each.counts for each in self.others)

    def views(self) -> Iterator[InstanceView]:
        """All machines, in any order."""
        return chain(self.full, self.open, (each.view for each in self.others))


def judge(pool: PoolScaling, instances: Iterable[InstanceView], now: datetime) -> Fleet:
    """The fleet of these instances, given in any order; ended ones are left out."""
    full: list[InstanceView] = []
    open_: list[InstanceView] = []
    others: list[InstanceView] = []
    for each in instances:
        if not _is_steady(each):
            if not each.observed.final:
                others.append(each)
        elif each.idle_since is None and 0 < each.slots_in_use >= each.slots + each.closed_slots_in_use:
            full.append(each)
        else:
            open_.append(each)
    if len(full) + len(open_) + len(others) > pool.max_instances:
        full, open_, others = [], [], full + open_ + others
    others.sort(key=by_id)
    # Those that are ending are counted, too: to end one of two that are away must not make the other one look alone.
    joined = [each for each in others if each.joined_at is not None]
    away = sum(not each.agent_connected for each in joined)
    mass_loss = away >= 2 and away >= MASS_LOSS_SHARE * (len(full) + len(open_) + len(joined))
    return Fleet(full=full, open=open_, others=[_judge(pool, each, now, mass_loss) for each in others])


def _is_steady(view: InstanceView) -> bool:
    return (
        view.agent_connected
        and view.joined_at is not None
        and view.notice is None
        and view.draining_since is None
        and view.disconnected_since is None
        and not view.disabled
        and view.intent is Intent.RUN
        and view.observed is not Observed.STOPPING
        and view.observed is not Observed.GONE
    )


def _judge(pool: PoolScaling, view: InstanceView, now: datetime, mass_loss: bool) -> Standing:
    stopping = view.intent is Intent.STOP or view.observed is Observed.STOPPING
    started = view.launched_at or view.requested_at
    never_joined = view.joined_at is None and seconds_between(started, now) >= pool.boot_timeout_s
    away_s = 0.0 if view.disconnected_since is None else seconds_between(view.disconnected_since, now)
    overdue = view.joined_at is not None and not view.agent_connected and away_s >= pool.disconnect_timeout_s
    spared = mass_loss and away_s < pool.disconnect_timeout_s + MASS_LOSS_GRACE_S
    reachable = view.joined_at is None or view.agent_connected or away_s < pool.reconnect_wait_s
    leaving = stopping or view.notice is not None or view.draining_since is not None
    return Standing(
        view=view,
        stopping=stopping,
        never_joined=never_joined and not stopping,
        lost=overdue and not spared and not stopping,
        suspect=overdue and spared and not stopping,
        capacity=reachable and not (leaving or never_joined or overdue or view.disabled),
    )


def seconds_between(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()
