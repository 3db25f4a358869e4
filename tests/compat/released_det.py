"""Runs commands of the released client as `det` does, each in a fork of this process, which has imported it.

The import is most of what a command takes. A line of JSON on the standard input is a command: its `arguments`, the files that are
its standard input (`typed`) and output (`printed`), and the `seconds` after which it is ended. Its exit code is the answer.
"""

import gc
import json
import os
import signal
import sys

import numpy  # noqa: F401  # the client imports it with its first request
from determined.cli.__main__ import main


def run(asked):
    os.setsid()  # without a terminal, passwords are read from the standard input
    signal.alarm(asked["seconds"])
    written = os.open(asked["printed"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in ((0, os.open(asked["typed"], os.O_RDONLY)), (1, written), (2, written)):
        os.dup2(source, number)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
    sys.argv = [os.path.join(os.path.dirname(sys.executable), "det"), *asked["arguments"]]
    sys.exit(main(asked["arguments"]))


if __name__ == "__main__":
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
