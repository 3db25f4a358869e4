"""Replaces the process by the user's program, or runs it as a child that cannot outlive the launcher, with signals passed on."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1


def exit_code_of(returncode: int) -> int:
    """The exit code in the form of a shell: 128+N for a death by signal N."""
    return 128 - returncode if returncode < 0 else returncode


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel kills the child when its parent dies. None where the system does not support it.

    Without it a launcher killed with -9 would leave a program that continues to train and reports for an allocation that has ended.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def ask_kernel() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(128 + signal.SIGKILL)

    return ask_kernel


def become(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Replace this process by the program. Returns only if it cannot be started, with the code that a shell would report."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # Python ignores it, and a program that is executed would inherit that
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except OSError as error:
        return _not_started(command, error)


def _not_started(command: Sequence[str], error: OSError) -> int:
    if isinstance(error, FileNotFoundError):
        print(f"ERROR: resolute.launch: command not found: {command[0]}", file=sys.stderr)
        return 127
    print(f"ERROR: resolute.launch: {command[0]} cannot be run: {error}", file=sys.stderr)
    return 126


def run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run to the end and return the exit code; 126 and 127 when the command cannot be started, as a shell would."""
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, frame: Any) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    for forwarded in FORWARDED:
        signal.signal(forwarded, forward)
    try:
        # The launcher has no threads here, so running code between fork and exec is safe.
        child = subprocess.Popen(list(command), env=dict(environ), preexec_fn=die_with_parent())
    except OSError as error:
        return _not_started(command, error)
    for number in early:
        child.send_signal(number)
    return exit_code_of(child.wait())
