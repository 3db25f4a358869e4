"""The shell scripts that a task runs before its entrypoint, in its own environment: the cluster's, then the context's.

Both are sourced by one shell, which then turns into the rest of the launcher: what they export, and limits that they set, hold
for the entrypoint. A hook that fails ends the task, and the last line of its output names the hook and the failure.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from resolute.task_info import TaskInfo
from resolute.wire.agent_link import STARTUP_HOOK_FILE

CONTEXT_HOOK = "startup-hook.sh"
CLUSTER_HOOK_NAME = "the startup hook of the cluster (task_container_defaults.startup_hook)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """`name` is its name in the task's output. `traced`: each command is written to the output before it runs."""

    name: str
    path: Path
    traced: bool


def hooks_of(info: TaskInfo) -> tuple[Hook, ...]:
    """The existing hooks, in the order in which they run.

    The cluster's is not traced: it may hold credentials, and every user may read the log of a task.
    """
    both = (
        Hook(name=CLUSTER_HOOK_NAME, path=info.run_dir / STARTUP_HOOK_FILE, traced=False),
        Hook(name=CONTEXT_HOOK, path=info.workdir / CONTEXT_HOOK, traced=True),
    )
    return tuple(hook for hook in both if hook.path.is_file())


def shell_of() -> str:
    """The shell that sources the hooks."""
    return shutil.which("bash") or "/bin/sh"


def script(hooks: Sequence[Hook], command: Sequence[str]) -> str:
    """Source the hooks, each until its first command that fails, and become `command`.

    The code of a failed hook becomes the task's. A hook that calls `exit 0` fails the task as well: its entrypoint has not run.
    """
    return "\n".join([*(line for hook in hooks for line in _lines(hook)), f"exec {shlex.join(command)}"])


def _lines(hook: Hook) -> tuple[str, ...]:
    silently = "{ set +x; } 2>/dev/null"
    early = f"{hook.name} ended before its last line"  # also what a shell says that is stopped by a signal
    at_exit = (
        "{ code=$?; set +x; } 2>/dev/null",
        f'said="{hook.name} failed with exit code $code"',
        f'test "$code" -ne 0 || {{ code=1; said="{early}"; }}',
        'echo "ERROR: [$$] resolute.launch: $said; the entrypoint was not run" >&2',
        "exit $code",
    )
    return (
        f"trap {shlex.quote('; '.join(at_exit))} EXIT",
        "set -e",
        *(("set -x",) if hook.traced else ()),
        f". {shlex.quote(str(hook.path))}",
        silently,
        "set +e",
        "trap - EXIT",
    )
