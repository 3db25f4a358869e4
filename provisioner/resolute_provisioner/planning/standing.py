"""What each machine is good for now, derived from the facts that are stored and the time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from resolute_provisioner.model import InstanceView, Intent, Observed, PoolScaling

NOTICE_GRACE_S = 60.0
"""Time after the deadline of its notice at which the pool ends a machine itself."""

MASS_LOSS_SHARE = 0.5
"""When so large a part of the machines is out of contact at once, our own network is the suspect, not the machines."""

MASS_LOSS_PATIENCE_S = 1800.0
"""Time past the ordinary limit for which the suspicion protects them. Healthy machines that cannot reach their master end
themselves long before, so what is still paid for then is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One machine, judged at one time. Several of these may hold together."""

    view: InstanceView
    stopping: bool
    """It has been ordered to end, or the cloud is ending it."""
    never_joined: bool
    lost: bool
    """Out of contact for too long, while most others are not, or for much too long."""
    suspect: bool
    """Out of contact for too long, together with so large a part of the pool that no action is taken."""
    capacity: bool
    """Work may be planned on it: it is there, or it is coming."""

    @property
    def counts(self) -> bool:
        """Whether it counts against the pool's maximum: it does until it has ended, except under notice."""
        return self.view.notice is None

    @property
    def staying(self) -> bool:
        """Part of what the pool will still have when everything ordered so far is done."""
        view = self.view
        return not (self.stopping or self.never_joined or self.lost or view.notice or view.draining_since)

    @property
    def settled(self) -> bool:
        """It works, and the passing of time alone changes nothing about it."""
        view = self.view
        since = view.idle_since or view.disconnected_since or view.draining_since or view.notice
        return since is None and view.joined_at is not None

    @property
    def idle(self) -> bool:
        return self.view.joined_at is not None and self.view.agent_connected and not self.view.occupied


def judge(pool: PoolScaling, alive: Sequence[InstanceView], now: datetime) -> list[Standing]:
    """`alive` without the ended ones; the order is kept."""
    # Those that are ending are counted, too: to end one of two that are away must not make the other one look alone.
    joined = [each for each in alive if each.joined_at is not None]
    away = [each for each in joined if not each.agent_connected]
    mass_loss = len(away) >= 2 and len(away) >= MASS_LOSS_SHARE * len(joined)
    return [_judge(pool, view, now, mass_loss) for view in alive]


def _judge(pool: PoolScaling, view: InstanceView, now: datetime, mass_loss: bool) -> Standing:
    stopping = view.intent is Intent.STOP or view.observed is Observed.STOPPING
    started = view.launched_at or view.requested_at
    never_joined = view.joined_at is None and seconds_between(started, now) >= pool.boot_timeout_s
    away_s = 0.0 if view.disconnected_since is None else seconds_between(view.disconnected_since, now)
    overdue = view.joined_at is not None and not view.agent_connected and away_s >= pool.disconnect_timeout_s
    spared = mass_loss and away_s < pool.disconnect_timeout_s + MASS_LOSS_PATIENCE_S
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
