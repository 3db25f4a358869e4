"""Our request for a machine, recorded before any cloud is called."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.agent import MachineNotice
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_provisioner.model import Intent, Observed, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Three facts are kept apart: what we intend, what the cloud reports, and whether its agent is connected.

    `token` is the idempotency token of the launch: the cloud gives at most one machine for it. `gangs` are the waiting
    allocations that the machine was launched for. `paid_from`/`paid_until` are the cloud's bill.
    """

    id: InstanceId
    pool: PoolName
    token: str
    offer_id: str
    slots: int
    price_per_hour: float | None
    requested_at: datetime
    reason: str = ""
    gangs: tuple[str, ...] = ()
    intent: Intent = Intent.RUN
    observed: Observed = Observed.UNKNOWN
    observed_at: datetime | None = None
    provider_id: str = ""
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    agent_id: AgentId | None = None
    joined_at: datetime | None = None
    idle_since: datetime | None = None
    unreachable_since: datetime | None = None
    """Since when its agent is out of contact, once the agent has been given up; it may still come back."""
    notice: MachineNotice | None = None
    launched_at: datetime | None = None
    """When the cloud confirmed it."""
    refused: str = ""
    """What the cloud said when it did not give it; nothing was paid then."""
    stop_reason: str = ""
    stopped_at: datetime | None = None
    found_again_at: datetime | None = None
    """When its machine was last found as a stray, after the row had counted as over: since then it ends, and nothing else."""
    draining_since: datetime | None = None
    join_token_spent_at: datetime | None = None
    """Since when its machine has a secret of its own, so that the token of its boot configuration is refused."""
    offer: Offer | None = None
    """As it was when the machine was asked for: a repeated request is the same request, whatever the configuration has
    become. None for machines from before it was kept."""

    @property
    def over(self) -> bool:
        """Nothing is left of it and nothing will be paid any more."""
        return self.observed is Observed.GONE
