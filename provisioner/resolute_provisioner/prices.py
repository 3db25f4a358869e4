"""Current prices of offers from a cloud: the port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from resolute_provisioner.model import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrice:
    """One price from a cloud."""

    offer_id: str
    per_hour: float
    """Price in the currency of the account."""
    as_of: datetime
    """Time since which the cloud has this price; if it does not report that, the time of the query."""


class PriceSource(Protocol):
    """Source of current prices. Shipped: `clouds.aws.prices` for AWS, `clouds.fake` for tests."""

    @property
    def name(self) -> str:
        """Source of the prices, for display: "EC2 spot price history"."""
        ...

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        """The newest price of each of these offers. An offer without a price at the cloud is left out, never guessed. `offers`
        are spot offers of one pool. Raises a `clouds.base.CloudError`."""
        ...
