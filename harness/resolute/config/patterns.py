"""Regular expressions of users, as RE2 reads them: without back-references and without look-around.

The time to search a text grows with its length alone, whatever the expression is. An engine that backtracks takes for ever on
an expression such as `(a+)+$`, so Python's engine gets no expression of a user.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

MAX_PATTERN_SIZE = 1000
"""Instructions of a compiled pattern; usual patterns have about fifty. Matching takes about 5 ns per byte and instruction at worst:
a third of a second for a batch of log lines and a pattern of this size."""

_MATCH_MEMORY_BYTES = 1024 * 1024
"""Memory of one pattern. If it does not suffice, matching is slower and equally exact."""


@lru_cache(maxsize=128)
def compiled(pattern: str) -> Any:
    """The pattern, ready to search bytes of UTF-8. Raises `ValueError` saying what is wrong with it.

    `search(bytes)` answers None when it is found nowhere; `programsize` is its size in instructions.
    """
    # Only the master looks through logs: agents and clients read their configuration without this library.
    import re2

    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MATCH_MEMORY_BYTES
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be read"
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    if expression.programsize > MAX_PATTERN_SIZE:
        raise ValueError(f"it takes {expression.programsize} instructions, over the limit of {MAX_PATTERN_SIZE}")
    return expression
