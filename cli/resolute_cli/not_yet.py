"""Words of the contract that `det` does not have yet. Who types one is told so, and not that there is no such word.

A word that is added leaves this table: a test compares it with the commands that there are.
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
        "preview-search",
        "rbac",
        "res",
        "resources",
        "shell",
        "template",
        "tensorboard",
        "tkn",
        "token",
        "tpl",
        "user-group",
    ),
    "det checkpoint": ("rm",),
    "det deploy": ("aws", "gcp", "gke-experimental"),
    "det experiment": ("continue", "delete-tb-files", "move"),
    "det experiment set": ("gc-policy", "log-retention"),
    "det master": ("cluster-message",),
    "det master config": ("set",),
    "det project": ("archive", "delete", "describe", "edit", "list-experiments", "unarchive"),
    "det task": ("cleanup-logs", "config", "create", "fork", "kill", "logs", "pause", "unpause"),
    "det trial": ("set", "support-bundle"),
    "det user": ("edit", "link-with-agent-user"),
    "det workspace": ("archive", "bindings", "list-members", "resource-quota", "unarchive"),
}

INSTEAD: Mapping[str, str] = {
    "det deploy aws": "describe the cloud in a pool of the master's configuration: docs/production.md",
    "det deploy gcp": "describe the cloud in a pool of the master's configuration: docs/production.md",
    "det dev": "call the REST API with any client, as docs/your-own-model.md shows with curl",
    "det task logs": "the log of a trial is shown by `det trial logs`",
    "det token": "log in with `det user login`",
}
"""What does it meanwhile."""

_INVALID = re.compile(r"invalid choice: '([^']*)'")


def explained(program: str, message: str) -> str | None:
    """What to say instead of `message` to a word that is not there yet; None for any other mistake."""
    found = _INVALID.search(message)
    if found is None or found.group(1) not in NOT_YET.get(program, ()):
        return None
    command = f"{program} {found.group(1)}"
    instead = INSTEAD.get(command)
    return f"`{command}` is not there yet{f'; {instead}' if instead else ''}. `{program} --help` lists what is."
