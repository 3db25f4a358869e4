"""Identity as an input: every process is given one `IdSource` by its composition root."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol

_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
"""The digit of a UUID that encodes its variant, by the random digit that it replaces: two bits of that are kept."""


def uuid_of(octets: bytes) -> str:
    """The version-4 UUID of 16 random octets, in its canonical text form: as `uuid.UUID` has it, at a third of the price."""
    digits = octets.hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


class IdSource(Protocol):
    """A source of new ids."""

    def uuid(self) -> str:
        """A version-4 UUID in its canonical text form."""
        ...

    def bits(self, count: int) -> int:
        """A non-negative integer of at most `count` random bits."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def uuid(self) -> str:
        return uuid_of(secrets.token_bytes(16))

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
        return uuid_of(self._octets(16))

    def bits(self, count: int) -> int:
        octets = (count + 7) // 8
        return int.from_bytes(self._octets(octets)) >> (8 * octets - count)

    def _octets(self, count: int) -> bytes:
        drawn = hashlib.shake_256(f"{self._seed}:{self._drawn}".encode()).digest(count)
        self._drawn += 1
        return drawn
