"""The small process that ends containers when the agent cannot: standard library only, one per agent directory.

    python -m resolute_agent.runtimes.docker_watch --detach <directory> <socket of the engine>
    python -m resolute_agent.runtimes.docker_watch --end <directory> <socket of the engine>

It outlives the agent and ensures that an expired lease ends its container, that a requested kill
is carried out to its end, and that on the local cloud the death of the machine's process is that of its containers.
With `--end` it removes every container of the directory and returns.

All is said through files of the directory, each replaced as a whole:

    containers/<id>/lease         "<until> <grace>", as for a supervisor
    containers/<id>/kill.json     {"grace_s", "at"}: end it; `at` is when that was asked, on the boot-time clock
    containers/<id>/started.json  the container was started; before that there is nothing to end
    containers/<id>/ended.json    {"hard_at"}: written here when the lease was over, before anything is done about it
    containers/<id>/exit.json     the end is recorded, there is nothing to do any more
    watch.lock                    held by the one watch
    agent.lock                    held, shared, by every agent process that uses the directory
    watch.wake                    a FIFO: a byte makes the watch look; without a reader there is no watch
"""

from __future__ import annotations

import argparse
import fcntl
import http.client
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from resolute_agent import supervisor

CONTAINERS, WATCH_LOCK, AGENT_LOCK, WAKE = "containers", "watch.lock", "agent.lock", "watch.wake"
STARTED, ENDED, LEASE, KILL, EXIT = "started.json", "ended.json", supervisor.LEASE, supervisor.KILL, supervisor.EXIT
OWNER_LABEL = "ai.resolute.owner"
"""Whose a container is: its agent's directory, for several agents may share one engine."""

LOOK_S = 1.0
"""How often an undisturbed watch looks at its directory."""
RETRY_S = 2.0
"""Time after which a signal without effect is repeated."""
REQUEST_TIMEOUT_S = 30.0
END_LIMIT_S = 60.0


def name_of(container_id: str) -> str:
    """The container's name in the engine: of two creations of one container the second is refused."""
    return f"resolute-{container_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What is due for one container: `stop_at` and `kill_at` are times of the boot-time clock, infinite for never."""

    stop_at: float
    kill_at: float
    lease_over: bool

    @property
    def next(self) -> float:
        return min(self.stop_at, self.kill_at)


def orders_of(now: float, lease: str, kill: Mapping[str, Any] | None, ended: Mapping[str, Any] | None) -> Orders:
    """Pure: when a container is to be asked to end, and when it is ended.

    A lease that was found over is over: a renewal that comes after the container was asked to end does not save it.
    """
    stop_at = kill_at = float("inf")
    until, _, grace = lease.partition(" ")
    if ended is not None:
        stop_at, kill_at = now, float(ended["hard_at"])
    elif until:
        stop_at, kill_at = float(until) - float(grace or 0), float(until)
    over = stop_at <= now
    if kill is not None:
        at, grace_s = float(kill["at"]), float(kill["grace_s"])
        stop_at, kill_at = min(stop_at, at), min(kill_at, at + grace_s)
    return Orders(stop_at=stop_at, kill_at=kill_at, lease_over=over)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=REQUEST_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask_engine(path: str, method: str, target: str) -> tuple[int, bytes]:
    """One request to the engine: status and body. Raises `OSError` when it does not answer."""
    connection = _UnixConnection(path)
    try:
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"the engine at {path} did not answer: {error!r}") from error
    finally:
        connection.close()


def end_all(directory: Path, engine: str) -> None:
    """Remove every container of the directory, also those that are only just being made. Raises `OSError`."""
    filters = quote(json.dumps({"label": [f"{OWNER_LABEL}={directory}"]}))
    until = time.monotonic() + END_LIMIT_S
    empty = 0
    while empty < 2:  # one that was being created when its agent died may appear a moment later
        status, body = ask_engine(engine, "GET", f"/containers/json?all=1&filters={filters}")
        if status != 200:
            raise OSError(f"the engine at {engine} cannot list containers: {body.decode(errors='replace')}")
        listed = [each["Id"] for each in json.loads(body)]
        threads = [threading.Thread(target=_remove, args=(engine, one)) for one in listed]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if listed and time.monotonic() > until:
            raise OSError(f"these containers do not end: {', '.join(listed)}")
        empty = 0 if listed else empty + 1
        time.sleep(0.1)


def _remove(engine: str, container: str) -> None:
    try:
        ask_engine(engine, "DELETE", f"/containers/{container}?force=1&v=1")
    except OSError:
        pass  # it is listed again


class Watch:
    """The watch of one directory, from `run` until there is nothing left to watch."""

    def __init__(self, directory: Path, engine: str) -> None:
        self._directory = directory
        self._homes = directory / CONTAINERS
        self._engine = engine
        self._sent: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        lock = (self._directory / WATCH_LOCK).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return
        wake = self._directory / WAKE
        if not wake.exists():
            os.mkfifo(wake, 0o600)
        woken = os.open(wake, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        machine = _machine()
        while True:
            if machine is not None and select.select([machine], [], [], 0)[0]:
                self._end_machine()
                return
            next_at, homes = self._look()
            if not homes and self._is_unused(lock, woken):
                return
            left_s = max(0.0, min(LOOK_S, next_at - supervisor.boot_time()))
            ready, _, _ = select.select([woken, *([machine] if machine is not None else [])], [], [], left_s)
            if woken in ready:
                os.read(woken, 4096)

    def _end_machine(self) -> None:
        """The containers go with their machine, and an engine that is away just then is waited for."""
        while True:
            try:
                end_all(self._directory, self._engine)
                return
            except OSError as error:
                print(f"the machine has ended, but its containers have not: {error}", file=sys.stderr, flush=True)
                time.sleep(LOOK_S)

    def _is_unused(self, lock: Any, woken: int) -> bool:
        """No agent uses the directory, and none can start to before this watch has visibly ended."""
        with (self._directory / AGENT_LOCK).open("w") as agents:
            try:
                fcntl.flock(agents, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if any(self._homes.iterdir()):
                return False
            os.close(woken)
            lock.close()
            return True

    def _look(self) -> tuple[float, int]:
        """Do what is due; returns when to look again, and how many containers there are."""
        next_at, homes = float("inf"), 0
        for home in sorted(self._homes.iterdir()):
            homes += 1
            if (home / STARTED).exists() and not (home / EXIT).exists():
                next_at = min(next_at, self._see_to(home))
            else:
                self._sent = {key: at for key, at in self._sent.items() if key[0] != home.name}
        return next_at, homes

    def _see_to(self, home: Path) -> float:
        now = supervisor.boot_time()
        kill, ended = supervisor.read_json(str(home / KILL)), supervisor.read_json(str(home / ENDED))
        orders = orders_of(now, _text(home / LEASE), kill, ended)
        if orders.lease_over and ended is None:
            try:
                hard_at = json.dumps({"hard_at": orders.kill_at})
                supervisor.write_small(str(home / ENDED), hard_at.encode())
            except FileNotFoundError:
                return float("inf")  # forgotten meanwhile
        if orders.kill_at <= now:
            return self._signal(home.name, signal.SIGKILL, now)
        if orders.stop_at <= now:
            self._signal(home.name, signal.SIGTERM, now, once=True)
            return orders.kill_at
        return orders.next

    def _signal(self, container_id: str, number: signal.Signals, now: float, *, once: bool = False) -> float:
        """Send, beside the loop, unless it was just done; returns when it may be due again."""
        key = (container_id, int(number))
        again = self._sent.get(key, -RETRY_S) + RETRY_S
        if key in self._sent and (once or now < again):
            return again
        self._sent[key] = now
        threading.Thread(target=self._send, args=(key,), daemon=True).start()
        return now + RETRY_S

    def _send(self, key: tuple[str, int]) -> None:
        container_id, number = key
        try:
            status, _ = ask_engine(self._engine, "POST", f"/containers/{name_of(container_id)}/kill?signal={number}")
        except OSError:
            status = 503
        if status not in (204, 404, 409):
            self._sent.pop(key, None)  # the engine was not there: soon again


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _machine() -> int | None:
    """A descriptor that becomes readable when the machine's process has ended, on the local cloud."""
    pid = int(os.environ.get(supervisor.MACHINE_PID_VARIABLE) or 0)
    if not pid:
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return os.open("/dev/null", os.O_RDONLY)  # it has ended already; always readable


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute_agent.runtimes.docker_watch")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--detach", action="store_true", help="return at once and leave the watch running")
    kind.add_argument("--end", action="store_true", help="remove every container of the directory and return")
    parser.add_argument("directory", type=Path)
    parser.add_argument("engine", help="path of the engine's socket")
    options = parser.parse_args(arguments)
    if options.end:
        try:
            end_all(options.directory, options.engine)
        except OSError as error:
            print(f"the containers of {options.directory} could not be removed: {error}", file=sys.stderr)
            return 1
        return 0
    if options.detach:
        if os.fork():
            return 0
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        log = os.open(options.directory / "watch.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 2)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    Watch(options.directory, options.engine).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
