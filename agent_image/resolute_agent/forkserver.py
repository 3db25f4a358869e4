"""The process that starts supervisors: small, of one thread, and ready. Run by the agent as `python -m resolute_agent.forkserver`.

A supervisor that is forked from a process which has imported what it needs runs within a millisecond; a new interpreter
takes forty of them. The same holds for our launcher, with which every task begins: when a task's command is that of this very
interpreter, its first process is a fork that runs the launcher at once. What a user wrote is always executed again, so no task
shares a random state, a lock or a library's threads with another.

It holds no state but one supervisor in reserve, which ends with it. Requests come as messages on its standard input, each
with a pipe for the answer; the end of that input, which is the end of the agent, is its own end. Supervisors and tasks do not
depend on it. The launcher is imported after the first request, which is an agent's question about private roots: its start
does not wait for that.

    {"probe": launch}      answered with `supervisor.OK` when private roots work, else with why not
    {"start": directory}   become the supervisor of that directory; see `supervisor.Supervisor.run` for its answer
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from resolute_agent import kernel, supervisor

LAUNCHER = "resolute.launch"
"""The module that runs without a new interpreter; see `launch.json` of the supervisor."""

MAX_REQUEST_BYTES = 128 * 1024

MARK_ROOM = 128
"""Maximum length of a container's id: see `supervisor.MARK`."""


def environment_of(environ: dict[str, str], package_roots: list[str]) -> dict[str, str]:
    """The variables that this process is started with: those of its machine, and the mark that its children write over."""
    kept = (supervisor.MACHINE_PID_VARIABLE, "RESOLUTE_INSTANCE", "LD_LIBRARY_PATH")
    return {
        **{name: environ[name] for name in kept if name in environ},
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join(package_roots),
        supervisor.MARK: "-" * MARK_ROOM,
    }


class Server:
    """Answers requests until their end. Keeps one supervisor in reserve: forked already, and waiting for its directory."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._programs: dict[str, supervisor.Program] = {}
        self._reserve: socket.socket | None = None

    def run(self) -> None:
        while True:
            body, descriptors, _, _ = socket.recv_fds(self._requests, MAX_REQUEST_BYTES, 1)
            if not body:
                return
            (answer,) = descriptors
            os.set_inheritable(answer, False)
            request = json.loads(body)
            if "probe" in request:
                _in_child(functools.partial(_probe, request["probe"], answer))
            else:
                self._start(request["start"], answer)
            os.close(answer)
            if not self._programs:
                self._load()
            if self._reserve is None:
                self._make_reserve()

    def _load(self) -> None:
        launcher = importlib.import_module(f"{LAUNCHER}.__main__")
        with tempfile.TemporaryDirectory() as directory:
            launcher.rehearse(directory)
        self._programs[LAUNCHER] = launcher.main
        gc.collect()
        gc.freeze()  # what is shared with every child is not touched by its collector

    def _start(self, directory: str, answer: int) -> None:
        if self._reserve is not None:
            with self._reserve as reserve:
                self._reserve = None
                try:
                    socket.send_fds(reserve, [directory.encode()], [answer], socket.MSG_NOSIGNAL)
                    return
                except ConnectionError:
                    pass  # it was killed
        _detached(functools.partial(supervisor.supervise, directory, answer, self._programs))

    def _make_reserve(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            _detached(functools.partial(self._wait, ours, theirs))
        self._reserve = ours

    def _wait(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Body of the reserve: it ends when this server does, and keeps nothing of it open."""
        ours.close()
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), self._requests.fileno())
        directory, descriptors, _, _ = socket.recv_fds(theirs, MAX_REQUEST_BYTES, 1)
        theirs.close()
        if directory:
            os.set_inheritable(descriptors[0], False)
            supervisor.supervise(directory.decode(), descriptors[0], self._programs)


def _in_child(work: Callable[[], None]) -> None:
    """Run `work` in a child and wait for its end."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    os.waitpid(pid, 0)


def _probe(launch: dict[str, Any], answer: int) -> None:
    os.write(answer, (kernel.probe(launch) or supervisor.OK).encode())
    os._exit(0)


def _detached(work: Callable[[], None]) -> None:
    """Run `work` in an orphaned process, which the machine's init adopts."""

    def middle() -> None:
        os.setsid()
        if os.fork() == 0:
            work()
        os._exit(0)

    _in_child(middle)


def main() -> int:
    os.setsid()  # what a terminal sends to the agent's group is not for us
    Server(socket.socket(fileno=0)).run()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(main())
