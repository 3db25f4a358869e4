"""What offers cost at the moment, asked of a cloud: the port, and nothing of how a cloud answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from resolute_provisioner.model import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePrice:
    """One price as a cloud told it."""

    offer_id: str
    per_hour: float
    """In the currency of the account."""
    as_of: datetime
    """Since when the cloud has had this price; where it does not say, when it was asked."""


class PriceSource(Protocol):
    """Tells the prices of the moment. Shipped: `clouds.aws.prices` for AWS, `clouds.fake` for tests."""

    @property
    def name(self) -> str:
        """Where the prices come from, for people: "EC2 spot price history"."""
        ...

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        """The newest price of each of these offers that the cloud knows; an offer that it does not price is left out,
        never guessed. `offers` are spot offers of one pool. Raises a `clouds.base.CloudError`."""
        ...
