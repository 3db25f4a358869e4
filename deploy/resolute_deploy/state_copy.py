"""A copy of a state that is a file of this machine.

Terraform empties the file of its state before it writes it. When it is killed in between, the state records nothing of a cluster
that is there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def keep(state: Path) -> None:
    """While Terraform works: what it is just writing is left out, and is kept with the next resource."""
    if whole(state):
        fresh = state.with_name(state.name + ".copy.new")
        fresh.touch(mode=0o600)  # it holds what the state holds
        fresh.write_bytes(state.read_bytes())
        if whole(fresh):
            fresh.replace(_copy(state))


def restore(state: Path) -> bool:
    """When no Terraform works any more. Whether the state was cut off, and is its last copy now."""
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
