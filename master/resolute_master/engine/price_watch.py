"""Queries clouds for current prices and submits them to the engine: one watch per pool."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from resolute.clock import Clock
from resolute.errors import ResoluteError
from resolute.wire.rest.offers import PriceWatchStatus
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.machines import PriceWord, RecordPrices
from resolute_master.engine.engine import Engine
from resolute_provisioner.model import Offer
from resolute_provisioner.prices import LivePrice, PriceSource

log = logging.getLogger(__name__)

FIRST_RETRY_S = 15.0
LONGEST_RETRY_S = 3600.0
"""Longest time between two attempts: a price of an hour ago still ranks better than none."""
JITTER = 0.2
"""Jitter of a wait, as a fraction: pools of one account do not request prices together."""


class PriceWatch:
    """Watches the prices of one pool. A failure changes only `status`: the last known price stays in force, and its age is
    shown."""

    def __init__(
        self,
        engine: Engine,
        pool: PoolName,
        source: PriceSource,
        *,
        offers: Sequence[Offer],
        period_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._engine = engine
        self.pool = pool
        self._source = source
        self._offers = tuple(offer for offer in offers if offer.price_moves)
        self._clock = clock
        self._rng = rng
        self.status = PriceWatchStatus(source=source.name, period_s=period_s)
        self._submitted: dict[str, PriceWord] = {}
        """The latest price of each offer, which is reported once."""

    async def run(self) -> None:
        while self._offers:
            await self.ask()
            await asyncio.sleep(self.wait_s())
        await asyncio.Event().wait()  # a service does not end

    async def ask(self) -> None:
        """Queries the prices once."""
        try:
            await self._submit(await self._source.spot_prices(self._offers))
        except ResoluteError as error:  # the cloud's, or the engine's while its store is away
            self._failed(str(error))
        except Exception as error:  # an SDK's own: prices are worth less than the master
            log.exception("prices of pool %s: %s failed", self.pool, self._source.name)
            self._failed(f"{type(error).__name__}: {error}")
        else:
            self.status = replace(self.status, answered_at=self._clock.now(), failures=0, error="")

    async def _submit(self, prices: Sequence[LivePrice]) -> None:
        words = [PriceWord(offer_id=p.offer_id, per_hour=p.per_hour, as_of=p.as_of) for p in prices]
        news = tuple(word for word in words if self._submitted.get(word.offer_id) != word)
        if news:
            await self._engine.submit(RecordPrices(pool=self.pool, source=self._source.name, prices=news))
            self._submitted.update({word.offer_id: word for word in news})

    def wait_s(self) -> float:
        """Seconds until the next query: the period, or after failures a time that doubles with each."""
        failures, wait_s = self.status.failures, self.status.period_s
        if failures:
            wait_s = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(failures - 1, 16))
        return wait_s * (1.0 + JITTER * (2.0 * self._rng.random() - 1.0))

    def _failed(self, error: str) -> None:
        self.status = replace(self.status, failures=self.status.failures + 1, error=error)
        log.warning("prices of pool %s: %s: %s", self.pool, self._source.name, error)
