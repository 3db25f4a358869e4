"""A task that runs under another Python than the agent's: what the agent leaves out of its way, and what it lends it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import resolute
from resolute.wire.agent_link import named_python
from resolute_agent import forkserver

PACKAGES = "python"
"""In a run directory: holds our package and nothing else, for a task with a Python of its own."""


def package_root() -> str:
    """Where our package lies on this machine, perhaps among everything else that the agent's environment has."""
    return str(Path(resolute.__file__).resolve().parent.parent)


def link_package(run: Path) -> None:
    """Our package alone: other packages beside it were installed for the agent's Python, and would take precedence over the
    task's own."""
    (run / PACKAGES).mkdir(mode=0o700)
    (run / PACKAGES / "resolute").symlink_to(Path(package_root()) / "resolute")


def homes(environment: Mapping[str, str]) -> list[str]:
    """The directories that the task's Python needs: its environment, and the one that this was made from."""
    value = named_python(environment)
    if not value.startswith("/"):
        return []
    named = [value, *(f"{value}/bin/{name}" for name in ("python3", "python"))]
    files = {form for path in named if os.path.isfile(path) for form in (path, os.path.realpath(path))}
    return [value, *sorted(_home_of(path) for path in files)]


def _home_of(interpreter: str) -> str:
    directory = os.path.dirname(interpreter)
    return os.path.dirname(directory) if os.path.basename(directory) == "bin" else directory


def launched(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], str | None]:
    """The command to execute, and the module that runs without a new interpreter when the command is our launcher: under the
    agent's Python, whatever the task's is."""
    if tuple(command[:3]) != ("python3", "-m", forkserver.LAUNCHER):
        return list(command), None
    if named_python(environment):
        return [sys.executable, *command[1:]], forkserver.LAUNCHER
    found = shutil.which("python3", path=environment["PATH"])
    ours = found and os.path.dirname(found) == os.path.dirname(sys.executable)
    return list(command), forkserver.LAUNCHER if ours else None
