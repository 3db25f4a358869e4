"""The random numbers of one search: Mersenne Twister, seeded like NumPy's legacy `RandomState`.

The whole state is (seed, draws of 32 bits so far), so it is saved as two integers; taking it up again draws them anew, which costs
microseconds for the few draws that a search makes.

Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998: `init_genrand`, and `genrand_int32` for early draws.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

WORDS = 624
SHIFT = 397
WORD = 0xFFFFFFFF

EARLY = WORDS - SHIFT
"""Draws that follow from the words of the seed alone, each from three of them. Most searches make no more than a few, and need not
wait for the others."""


class Generator:
    """Deterministic; `state` is JSON."""

    def __init__(self, seed: int, draws: int = 0) -> None:
        self._seed = seed & WORD
        self._draws = draws
        self._words = [self._seed]
        """Of the seed, as far as they were asked for."""
        self._twister: random.Random | None = None
        """Made by the first draw that is no early one: making it is a part of a millisecond."""

    @property
    def state(self) -> list[int]:
        return [self._seed, self._draws]

    @classmethod
    def of(cls, state: Sequence[int]) -> Generator:
        return cls(state[0], state[1])

    def word(self) -> int:
        """32 random bits."""
        draw, self._draws = self._draws, self._draws + 1
        if draw < EARLY:
            words = self._initial_words(draw + SHIFT + 1)
            return _tempered(_twisted(words[draw], words[draw + 1], words[draw + SHIFT]))
        if self._twister is None:
            self._twister = _twister(self._initial_words(WORDS), draw)
        return self._twister.getrandbits(32)

    def _initial_words(self, count: int) -> list[int]:
        """At least so many."""
        words = self._words
        word = words[-1]
        for index in range(len(words), count):
            word = (1812433253 * (word ^ (word >> 30)) + index) & 0xFFFFFFFF
            words.append(word)
        return words

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
        """Little-endian from successive draws."""
        octets = b"".join(self.word().to_bytes(4, "little") for _ in range((count + 3) // 4))
        return octets[:count]


def _twisted(word: int, following: int, far: int) -> int:
    mixed = (word & 0x80000000) | (following & 0x7FFFFFFF)
    return far ^ (mixed >> 1) ^ (0x9908B0DF if mixed & 1 else 0)


def _tempered(word: int) -> int:
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


def _twister(words: Sequence[int], draws: int) -> random.Random:
    """Python's own, which is the same one and quick, after so many draws."""
    twister = random.Random(0)  # without a seed it would ask the system for one
    twister.setstate((3, (*words, WORDS), None))
    twister.getrandbits(32 * draws)
    return twister
