"""Retries while a store is unavailable for some time."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from resolute.storage.base import StorageAway

logger = logging.getLogger("resolute.storage")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How long a request is repeated while the store is unavailable: `total_s` from the first failure, with pauses that double from
    `first_s` to `longest_s`, each shortened by up to half at random, so that the ranks of a job do not retry at once.
    """

    total_s: float = 600.0
    """Longer than the outages and the throttling of object stores that pass by themselves."""
    first_s: float = 0.5
    longest_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    random: random.Random = field(default_factory=random.Random)

    def call(self, action: Callable[[], T]) -> T:
        """The result of `action`, which may be carried out several times. Raises what it raises, `StorageAway` once too often."""
        pause, until = self.first_s, None
        while True:
            try:
                return action()
            except StorageAway as error:
                now = self.monotonic()
                if until is None:
                    until = now + self.total_s
                if now + pause > until:
                    raise
                logger.warning("%s Trying again in %.1f s.", error, pause)
            self.sleep(pause * self.random.uniform(0.5, 1.0))
            pause = min(2 * pause, self.longest_s)
