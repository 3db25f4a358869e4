"""Converts the configured entrypoint to the command that is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput

_TRIAL_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NAMES_RELEASED = re.compile(r"\bdetermined\b")
_IMPORTS_RELEASED = re.compile(r"^[ \t]*(?:import[ \t]+(?:[\w., \t]+,[ \t]*)?|from[ \t]+)determined\b", re.MULTILINE)


def command_of(entrypoint: Any, *, processes: int, python: str) -> list[str]:
    """The argument vector of an entrypoint: a list as it is, a text through the shell, `module:Class` by our runner.

    `processes` is how many the whole job has when each slot gets one: a trial class of more than one runs under
    `process_per_slot`. `python` is the interpreter of our runners. Raises `InvalidInput` for anything else.
    """
    if isinstance(entrypoint, str) and entrypoint.strip():
        if _TRIAL_CLASS.fullmatch(entrypoint.strip()):
            runner = [python, "-m", "resolute.pytorch.run", entrypoint.strip()]
            wrapper = [python, "-m", "resolute.launch.process_per_slot", "--"] if processes > 1 else []
            return wrapper + runner
        return ["/bin/sh", "-c", entrypoint]
    if isinstance(entrypoint, (list, tuple)) and entrypoint and all(isinstance(word, str) for word in entrypoint):
        return list(entrypoint)
    raise InvalidInput(f"the entrypoint is {entrypoint!r}; it must be a command, as a text or a list of texts")


def uses_released_harness(command: Sequence[str], code: Path) -> str | None:
    """The place where a task names the released client package `determined`; None if it does not."""
    if any(_NAMES_RELEASED.search(word) for word in command):
        return f"its entrypoint ({shlex.join(command)})"
    for path in sorted(code.rglob("*.py")):
        if path.is_file() and _IMPORTS_RELEASED.search(path.read_text(encoding="utf-8", errors="replace")):
            return str(path.relative_to(code))
    return None
