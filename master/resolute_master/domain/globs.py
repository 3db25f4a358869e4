"""Patterns of file names, as users write them for the files of a checkpoint.

`*`, `?` and `[a-z]` stay within a component, `**` matches any number of them. They are matched against names that were
listed, and never handed to the file system.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

MAX_GLOB_LETTERS = 1000
"""Most characters of one pattern. Paths have up to 4096 bytes, and patterns are shorter."""

_MATCH_MEMORY_BYTES = 1024 * 1024


@lru_cache(maxsize=128)
def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path (relative, POSIX) matches, in time linear in the path. Raises `ValueError` saying what is wrong."""
    if len(glob) > MAX_GLOB_LETTERS:
        raise ValueError(f"has more than {MAX_GLOB_LETTERS} letters")
    parts = glob.split("/")
    if not glob.strip() or glob.startswith("/") or ".." in parts or "\0" in glob:
        raise ValueError("must be a pattern inside the checkpoint, such as 'weights/**' or '*.pt'")
    expression = _compiled(_expression([part for part in parts if part not in ("", ".")]))

    def matches(path: str) -> bool:
        return expression.fullmatch(path) is not None

    return matches


def _compiled(expression: str) -> Any:
    # Imported where it is used: a master that removes no files of checkpoints does without.
    import re2

    options = re2.Options()
    options.log_errors, options.never_capture, options.dot_nl = False, True, True
    options.max_mem = _MATCH_MEMORY_BYTES
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        raise ValueError("is no pattern of file names; check its brackets") from None


def _expression(parts: list[str]) -> str:
    written = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            written.append(".+" if last else "(?:[^/]+/)*")
        else:
            written.append(_component(part) + ("" if last else "/"))
    return "".join(written)


def _component(part: str) -> str:
    written: list[str] = []
    at = 0
    while at < len(part):
        letter = part[at]
        at += 1
        if letter == "*":
            if written[-1:] != ["[^/]*"]:
                written.append("[^/]*")
        elif letter == "?":
            written.append("[^/]")
        elif letter == "[" and (end := part.find("]", at + 2 if part[at : at + 1] == "!" else at + 1)) > 0:
            written.append(_set(part[at:end]))
            at = end + 1
        else:
            written.append(_literal(letter))
    return "".join(written)


def _set(text: str) -> str:
    negated = text.startswith("!")
    inside = "".join(letter if letter == "-" else _literal(letter) for letter in (text[1:] if negated else text))
    return f"[^/{inside}]" if negated else f"[{inside}]"


def _literal(letter: str) -> str:
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}"
