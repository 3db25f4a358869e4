"""Identity as an input: every process is given one `IdSource` by its composition root."""

from __future__ import annotations

import hashlib
import secrets
import uuid
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
    """Ids drawn from a seed: the same seed gives the same ids. For replay and simulation.

    The n-th draw is SHAKE-256 of the seed and n, so a source costs nothing to make: each command of a cycle has one of its own.
    """

    def __init__(self, seed: int | str) -> None:
        self._seed = seed
        self._drawn = 0

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.bits(128), version=4))

    def bits(self, count: int) -> int:
        octets = (count + 7) // 8
        drawn = hashlib.shake_256(f"{self._seed}:{self._drawn}".encode()).digest(octets)
        self._drawn += 1
        return int.from_bytes(drawn) >> (8 * octets - count)
