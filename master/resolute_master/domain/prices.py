"""What a cloud says of its prices, as a command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.ids import PoolName


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceWord:
    """One offer's price of the moment, an hour, and since when it holds."""

    offer_id: str
    per_hour: float
    as_of: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPrices:
    """The cloud of a pool has told prices. Words that are known already, or of offers that the pool no longer has, change
    nothing."""

    pool: PoolName
    source: str
    prices: tuple[PriceWord, ...]
