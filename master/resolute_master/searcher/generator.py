"""The random numbers of one search: Mersenne Twister, seeded like NumPy's legacy `RandomState`.

The whole state is (seed, draws of 32 bits so far), so it is saved as two integers; taking it up again draws them anew, which costs
microseconds for the few draws that a search makes.

Source: Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998: `init_genrand`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

WORDS = 624
WORD = 0xFFFFFFFF


class Generator:
    """Deterministic; `state` is JSON."""

    def __init__(self, seed: int, draws: int = 0) -> None:
        self._seed = seed & WORD
        self._draws = draws
        self._twister: random.Random | None = None
        """Made by the first draw: most events of a search draw nothing, and making it is a part of a millisecond."""

    @property
    def state(self) -> list[int]:
        return [self._seed, self._draws]

    @classmethod
    def of(cls, state: Sequence[int]) -> Generator:
        return cls(state[0], state[1])

    def word(self) -> int:
        """32 random bits."""
        if self._twister is None:
            self._twister = _twister(self._seed, self._draws)
        self._draws += 1
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
        """Little-endian from successive draws."""
        octets = b"".join(self.word().to_bytes(4, "little") for _ in range((count + 3) // 4))
        return octets[:count]


def _twister(seed: int, draws: int) -> random.Random:
    twister = random.Random(0)  # without a seed it would ask the system for one
    twister.setstate((3, (*_initial_words(seed), WORDS), None))
    if draws:
        twister.getrandbits(32 * draws)
    return twister


def _initial_words(seed: int) -> list[int]:
    words = [word := seed]
    for index in range(1, WORDS):
        word = (1812433253 * (word ^ (word >> 30)) + index) & WORD
        words.append(word)
    return words
