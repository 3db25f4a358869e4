"""Running the user's program as a child that cannot outlive us, with signals passed on and its exit code returned."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LINGER_S = 2.0
"""A command that has ended waits so long for what runs beside it."""
_PR_SET_PDEATHSIG = 1


def exit_code_of(returncode: int) -> int:
    """What a shell would report: 128+N for a death by signal N."""
    return 128 - returncode if returncode < 0 else returncode


def die_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: the kernel kills the child when its parent dies. None where there is no such thing.

    Without it a launcher killed with -9 would leave a program that trains on and reports for a dead allocation.
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


def run(command: Sequence[str], environ: Mapping[str, str], *, meanwhile: Callable[[], None] = lambda: None) -> int:
    """Run to the end and return the exit code; 126 and 127 when the command cannot be started, as a shell would.

    `meanwhile` runs in a thread beside the command; it must not raise, and is not waited for longer than `LINGER_S`.
    """
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
    except FileNotFoundError:
        print(f"ERROR: resolute.launch: command not found: {command[0]}", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"ERROR: resolute.launch: {command[0]} cannot be run: {error}", file=sys.stderr)
        return 126
    for number in early:
        child.send_signal(number)
    beside = threading.Thread(target=meanwhile, daemon=True)
    beside.start()
    code = exit_code_of(child.wait())
    beside.join(LINGER_S)
    return code
