"""Which environment variables hold secrets, by their names: shell patterns, of which an operator may add more."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

BUILT_IN_PATTERNS: tuple[str, ...] = (
    "*SECRET*",
    "*PASSWORD*",
    "*PASSWD*",
    "*PASSPHRASE*",
    "*_PASS",
    "*_PWD",
    "*TOKEN",
    "*TOKENS",
    "*TOKEN_*",
    "*TOKEN[0-9]*",
    "*CREDENTIAL*",
    "*_KEY",
    "*_KEY[0-9]*",
    "*APIKEY*",
    "*API_KEY*",
    "*ACCESS_KEY*",
    "*PRIVATE_KEY*",
    "*_PAT",
    "*_AUTH",
    "*_DSN",
    "*COOKIE*",
    "*WEBHOOK*",
    "*CONNECTION_STRING*",
)
"""`TOKENIZERS_PARALLELISM` and the like are none: a task's owner could not submit again what was shown."""

REMEMBERED_NAME = 64
"""Longest name whose answer is kept for the next time: the same few are looked at again and again."""


class SecretNames:
    """Whether a variable of some name holds a secret: by the built-in patterns and `more`, in any case of letters.

    The patterns of `fnmatch` are matched without going back: the time grows with the length of the name.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        self.patterns = (*BUILT_IN_PATTERNS, *(pattern.upper() for pattern in more))

    def __contains__(self, name: str) -> bool:
        match = _matches_again if len(name) <= REMEMBERED_NAME else _matches
        return match(name.upper(), self.patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretNames) and other.patterns == self.patterns

    def __hash__(self) -> int:
        return hash(self.patterns)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_matches_again = lru_cache(maxsize=4096)(_matches)

BUILT_IN_NAMES = SecretNames()
