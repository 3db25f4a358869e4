"""Identity as an input: every process is given one `IdSource` by its composition root."""

from __future__ import annotations

import hashlib
import random
import secrets
import uuid
from functools import cached_property
from typing import Protocol


class IdSource(Protocol):
    """Where new ids come from."""

    def uuid(self) -> str:
        """A version-4 UUID in its canonical text form."""
        ...

    def bits(self, count: int) -> int:
        """A non-negative integer of at most `count` random bits."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def uuid(self) -> str:
        return str(uuid.UUID(int=secrets.randbits(128), version=4))

    def bits(self, count: int) -> int:
        return secrets.randbits(count)


class SeededIds:
    """Ids drawn from a seeded generator: the same seed gives the same ids. For replay and simulation.

    A text seeds with the beginning of its SHA-256.
    """

    def __init__(self, seed: int | str) -> None:
        self._seed = seed

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.bits(128), version=4))

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    @cached_property
    def _random(self) -> random.Random:
        """Made when the first id is drawn: most sources never are asked for one, and a generator is dear to seed."""
        seed = self._seed
        if isinstance(seed, str):
            seed = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16])
        return random.Random(seed)
