"""A copy of a state in a local file.

Terraform truncates the file before it writes the state. If it is killed in between, the state is empty although the cluster exists.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def keep(state: Path) -> None:
    """Copies the state while Terraform works. A copy is skipped while Terraform writes; the next resource triggers another."""
    if whole(state):
        fresh = state.with_name(state.name + ".copy.new")
        fresh.touch(mode=0o600)  # it holds what the state holds
        fresh.write_bytes(state.read_bytes())
        if whole(fresh):
            fresh.replace(_copy(state))


def restore(state: Path) -> bool:
    """Restores the last copy if the state was cut off; call it when no Terraform works. Returns whether it restored."""
    if not state.exists() or whole(state) or not _copy(state).exists():
        return False
    os.replace(_copy(state), state)
    return True


def whole(file: Path) -> bool:
    try:
        return "serial" in json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError):
        return False


def _copy(state: Path) -> Path:
    return state.with_name(state.name + ".copy")
