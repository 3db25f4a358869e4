"""Commands of the contract that `det` does not have yet, with an error that says so. A command that is added leaves this table: a
test compares it with the commands that there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NOT_YET: Mapping[str, tuple[str, ...]] = {
    "det": (
        "auth",
        "cmd",
        "command",
        "config-policies",
        "dev",
        "m",
        "model",
        "notebook",
        "oauth",
        "rbac",
        "res",
        "resources",
        "shell",
        "tensorboard",
        "tkn",
        "token",
        "user-group",
    ),
    "det deploy": ("gke-experimental",),
    "det experiment": ("continue",),
    "det master": ("cluster-message",),
    "det task": (
        "config",
        "create",
        "fork",
        "kill",
        "pause",
        "unpause",
    ),
    "det trial": ("support-bundle",),
    "det user": ("edit",),
    "det workspace": ("bindings", "list-members", "resource-quota"),
}

INSTEAD: Mapping[str, str] = {
    "det dev": "call the REST API with any client, as docs/your-own-model.md shows with curl",
    "det token": "log in with `det user login`",
}
"""What does it meanwhile."""

_INVALID = re.compile(r"invalid choice: '([^']*)'")


def explained(program: str, message: str) -> str | None:
    """The text instead of `message` for a command that does not exist yet; None for any other mistake."""
    found = _INVALID.search(message)
    if found is None or found.group(1) not in NOT_YET.get(program, ()):
        return None
    command = f"{program} {found.group(1)}"
    instead = INSTEAD.get(command)
    return f"`{command}` is not there yet{f'; {instead}' if instead else ''}. `{program} --help` lists what is."
