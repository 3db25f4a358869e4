"""Starts a program that outlives its starter: `python -m resolute_cli.detach LOG DIRECTORY PROGRAM [ARGUMENT...]`.

The program gets a session of its own, no input, its output appended to LOG, and the first process as its parent, so
that a long-lived caller keeps no zombie of it. Prints its process id.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def start(log: str, directory: str, command: Sequence[str]) -> int:
    """The process id of the started program. What keeps it from starting is written to the log."""
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        child = os.fork()
        if child == 0:
            _become(log, directory, command)
        os.write(writing, str(child).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    with os.fdopen(reading) as answer:
        return int(answer.read())


def _become(log: str, directory: str, command: Sequence[str]) -> None:
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 256)
        os.chdir(directory)
        os.execv(command[0], list(command))
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    print(start(sys.argv[1], sys.argv[2], sys.argv[3:]))
