"""What a pool may buy, in the order in which it would be tried: beyond the contract.

GET /api/v1/resource-pools/{poolName}/offers            GetPoolOffersResponse
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOffer:
    """One type in one zone on one market, and what is known of it. Prices are for an hour; None is unknown."""

    id: str
    instance_type: str
    zone: str
    """Empty leaves it to the cloud."""
    region: str
    market: str
    """on_demand or spot."""
    slots: int
    slot_type: str
    accelerator: str = ""
    accelerators: int = 0
    vcpus: int | None = None
    memory_gib: float | None = None
    reservation: str = ""
    quota: str = ""
    """Offers with the same one use up the same quota of the account."""
    price: float | None = None
    price_source: str = ""
    """The source of the price."""
    price_as_of: datetime | None = None
    """Since when it holds; None if unknown."""
    max_price: float | None = None
    expected_price: float | None = None
    """The price, raised by what interruptions, refusals and slow starts are expected to cost."""
    blocked: str = ""
    """Why it is not asked for now; empty when it is."""
    blocked_until: datetime | None = None
    """None with `blocked` set: until something else than time has changed."""
    machines: int = 0
    """How many there are or are coming."""
    launches: int = 0
    consecutive_refusals: int = 0
    last_refusal: str = ""
    last_refusal_at: datetime | None = None
    last_message: str = ""
    """The cloud's message."""
    join_time_s: float | None = None
    """From the request to the agent, on average; None before the first."""
    boot_failures: int = 0
    """Machines in a row that started and never joined."""
    interruptions: int = 0
    interruptions_per_hour: float = 0.0
    """Expected, from what was seen and from what is usual on the market."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceWatchStatus:
    """How the cloud is asked for prices of the moment."""

    source: str
    period_s: float
    answered_at: datetime | None = None
    """None before the first answer."""
    failures: int = 0
    """In a row."""
    error: str = ""
    """The newest one, until there is an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPoolOffersResponse:
    """In the order in which they would be tried, for work that fits on any of them."""

    pool: str
    now: datetime
    """The master's time, against which ages are to be read."""
    offers: tuple[PoolOffer, ...] = ()
    min_instances: int = 0
    max_instances: int = 0
    prices: PriceWatchStatus | None = None
    """None if no cloud is queried for prices."""
    retired: tuple[str, ...] = ()
    """Machines whose offer was removed from the configuration: they are kept until they are idle."""
    left_to_master: tuple[str, ...] = ()
    """For a file: the keys that are missing because a master in the same cloud detects them on its own machine."""
    asks_prices_of: str = ""
    """For a file: the cloud that a master queries for spot prices; empty if none publishes them."""
