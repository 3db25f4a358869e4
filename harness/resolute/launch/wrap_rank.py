"""`python -m resolute.launch.wrap_rank -- CMD ARG...`: run a command whose output lines get the prefix `[rank=N] `.

N is the variable RANK. Signals are passed on; the exit code is the command's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

from resolute.launch.child import FORWARDED, die_with_parent, exit_code_of
from resolute.launch.process_per_slot import copy_lines
from resolute.task_info import environment

LAST_OUTPUT_S = 1.0
"""Maximum wait for the output of a program that has ended: processes that it left may hold the pipe open."""


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    command = given[1:] if given[:1] == ["--"] else given
    environ = environment()
    rank = int(environ.get("RANK", "0"))
    early: list[int] = []
    running: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: Any) -> None:
        if running is None:
            early.append(number)
        else:
            running.send_signal(number)

    for forwarded in FORWARDED:
        signal.signal(forwarded, forward)
    try:
        running = subprocess.Popen(
            command,
            env={**environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=die_with_parent(),
        )
    except OSError as error:
        print(f"ERROR: resolute.launch: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return 127
    for number in early:
        running.send_signal(number)
    pumps = []
    for source, target in ((running.stdout, sys.stdout.buffer), (running.stderr, sys.stderr.buffer)):
        assert source is not None
        pumps.append(threading.Thread(target=copy_lines, args=(source, target, rank), daemon=True))
        pumps[-1].start()
    code = running.wait()
    for pump in pumps:
        pump.join(LAST_OUTPUT_S)
    return exit_code_of(code)


if __name__ == "__main__":
    sys.exit(main())
