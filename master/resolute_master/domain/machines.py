"""Reports of machines and clouds outside of a launch, as commands."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_provisioner.model import Observed


class SpendJoinToken(Struct, frozen=True, kw_only=True, gc=False):
    """The machine of this agent has kept a secret of its own."""

    agent: AgentId
    incarnation: str


class ForgetAgent(Struct, frozen=True, kw_only=True, gc=False):
    """Free the name of an agent outside of cloud pools: its credential is refused from now on, what runs there has failed."""

    agent: AgentId
    force: bool = False
    """Also while it is connected."""


class RecordBootFailure(Struct, frozen=True, kw_only=True, gc=False):
    """A machine reports that it cannot start its agent, and ends itself."""

    instance: InstanceId
    stage: str
    message: str
    """The last lines of its log."""


class RecordStray(Struct, frozen=True, kw_only=True, gc=False):
    """A machine with the cluster's tag and without a row of a running machine was found and ordered to end."""

    pool: PoolName
    provider_id: str
    token: str
    instance_id: InstanceId | None = None
    """From its tag; None without such a tag, and then no row is reopened for it."""
    observed: Observed = Observed.RUNNING
    paid_from: datetime | None = None
    """As the cloud lists it."""


class PriceWord(Struct, frozen=True, kw_only=True, gc=False):
    """One offer's price of the moment, an hour, and since when it holds."""

    offer_id: str
    per_hour: float
    as_of: datetime


class RecordPrices(Struct, frozen=True, kw_only=True, gc=False):
    """The cloud of a pool has reported prices. Known prices, and those of offers that the pool no longer has, change nothing."""

    pool: PoolName
    source: str
    prices: tuple[PriceWord, ...]
