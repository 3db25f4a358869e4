"""The random numbers of one search: Mersenne Twister, seeded like NumPy's legacy `RandomState`.

The whole state is (seed, draws of 32 bits so far), so it is saved as two integers. To resume from it draws them again, which a
search of ten thousand trials must not do for each of them: a generator that continues where another has stopped takes over its
twister.

Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998, with the seeding of 2002.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

WORDS = 624
OFFSET = 397
WORD = 0xFFFFFFFF
EARLY = WORDS - OFFSET
"""Number of draws that need only the words of the seed, up to `OFFSET` beyond the draw."""
AT_ONCE = 5
"""Number of draws for the id and the seed of a trial: their words are generated together."""


class Generator:
    """A deterministic generator; `state` is JSON."""

    def __init__(self, seed: int, draws: int = 0) -> None:
        self._seed = seed & WORD
        self._draws = draws
        self._words = [self._seed]
        """Words from the seed, as many as were needed. All of them take a part of a millisecond, and most searches draw once per
        trial or never."""
        self._twister: random.Random | None = None
        """Generator of the draws that are not early."""

    def leave(self) -> tuple[int, int]:
        """The state to continue from: the twister passes to the next generator."""
        if self._twister is not None:
            _leave((self._seed, self._draws), self._twister)
            self._twister = None
        return self._seed, self._draws

    @classmethod
    def of(cls, state: Sequence[int]) -> Generator:
        return cls(state[0], state[1])

    def word(self) -> int:
        """32 random bits."""
        draw = self._draws
        self._draws += 1
        if draw < EARLY:
            if len(self._words) <= draw + OFFSET:
                _extend(self._words, min(WORDS, draw + OFFSET + AT_ONCE))
            return _early(self._words, draw)
        if self._twister is None:
            self._twister = _left.pop((self._seed, draw), None)
        if self._twister is None:
            _extend(self._words, WORDS)
            self._twister = _twister(self._words, draw)
        return self._twister.getrandbits(32)

    def unit(self) -> float:
        """Uniform in [0, 1) with 53 bits."""
        high, low = self.word() >> 5, self.word() >> 6
        return (high * 67108864.0 + low) / 9007199254740992.0

    def bounded(self, limit: int) -> int:
        """Uniform in 0...limit, both ends included; 0 draws nothing."""
        if limit == 0:
            return 0
        mask = (1 << limit.bit_length()) - 1
        while True:
            value = self._bits(mask.bit_length()) & mask
            if value <= limit:
                return value

    def _bits(self, count: int) -> int:
        if count <= 32:
            return self.word()
        high, low = self.word(), self.word()
        return (high << 32) | low

    def octets(self, count: int) -> bytes:
        """Random bytes, little-endian from successive draws."""
        octets = b"".join([self.word().to_bytes(4, "little") for _ in range((count + 3) // 4)])
        return octets[:count]


def _extend(words: list[int], count: int) -> None:
    """`init_genrand`."""
    word = words[-1]
    words += [word := (1812433253 * (word ^ (word >> 30)) + index) & WORD for index in range(len(words), count)]


def _early(words: list[int], draw: int) -> int:
    """`genrand_int32` before the state has been renewed once."""
    joined = (words[draw] & 0x80000000) | (words[draw + 1] & 0x7FFFFFFF)
    word = words[draw + OFFSET] ^ (joined >> 1) ^ (0x9908B0DF if joined & 1 else 0)
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def _twister(words: list[int], draws: int) -> random.Random:
    twister = random.Random(0)  # without a seed it would ask the system for one
    twister.setstate((3, (*words, WORDS), None))
    twister.getrandbits(32 * draws)
    return twister


LEFT = 64
"""Number of cached twisters, the newest; they take 3 kB each, and few searches are active."""

_left: dict[tuple[int, int], random.Random] = {}
"""Cached twisters, by seed and draws so far. A missing one is drawn again, which affects the time of a draw, but no draw."""


def _leave(state: tuple[int, int], twister: random.Random) -> None:
    _left[state] = twister
    while len(_left) > LEFT:
        _left.pop(next(iter(_left), state), None)
