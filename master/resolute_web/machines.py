"""Machines of elastic pools as rows: what each is at, and what it has cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`seconds` were paid so far and cost `cost`, as far as its price is known; None when it never was."""

    instance: Instance
    state: str
    seconds: float
    cost: float | None


def machine_row(instance: Instance, now: datetime) -> Machine:
    begin, end = instance.paid_from, instance.paid_until or now
    seconds = 0.0 if begin is None else max(0.0, (end - begin).total_seconds())
    known = any(price is not None for *_, price in instance.prices(begin, end)) if begin is not None else False
    return Machine(
        instance=instance,
        state=state_of_machine(instance),
        seconds=seconds,
        cost=instance.cost(begin, end) if begin is not None and known else None,
    )


def state_of_machine(instance: Instance) -> str:
    """One word of what it is at: as the cloud and the agent tell."""
    if instance.refused:
        return "refused"
    if instance.over:
        return "gone"
    if instance.intent is Intent.STOP:
        return "stopping"
    if instance.notice is not None:
        return "leaving"
    if instance.draining_since is not None:
        return "draining"
    if instance.joined_at is None:
        return "requested" if instance.launched_at is None else "starting"
    return "busy" if instance.idle_since is None else "idle"
