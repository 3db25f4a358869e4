"""Points of a program at which a process may be killed with SIGKILL. Standard library only, because tasks import this.

An order is a file with the name of its point. The process that reaches the point renames the file, so that exactly one process
executes the order: it writes a marker and kills the victim. Without an order a point costs one failed rename.

    <directory>/<point>.order    {"id", "victim"}
    <directory>/struck/<id>.json {"id", "point", "victim", "by", "pids"}
    <directory>/pids/<name>      the pid of a program outside of the machines: master, database
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SELF, MACHINE, HOST, AGENT, MASTER, DATABASE, BACKEND = (
    "self",
    "machine",
    "host",
    "agent",
    "master",
    "database",
    "backend",
)
"""The victim: the process at the point, its machine, that machine's host, that machine's agent, the master, every process of the
database server, or the server's process for the connection at the point."""

MACHINE_PROGRAM, AGENT_PROGRAM = "campaign.machine", "campaign.agent"


@dataclass(frozen=True)
class Order:
    """An order to kill `victim` at `point`."""

    id: str
    point: str
    victim: str


class Points:
    """The points of one process. Without a directory there are no orders."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def reached(self, point: str, *, backend: int = 0) -> None:
        """Executes the order for this point, if there is one. Does not return if this process is the victim."""
        order = self.take(point)
        if order is not None:
            pids = self.victims(order, backend=backend)
            self.mark(order, pids)
            kill_all(pids)

    def take(self, point: str) -> Order | None:
        """Takes the order for this point."""
        if self._directory is None:
            return None
        try:
            os.rename(self._directory / f"{point}.order", self._taken(point))
        except FileNotFoundError:
            return None
        order = json.loads(self._taken(point).read_text())
        return Order(id=order["id"], point=point, victim=order["victim"])

    def _taken(self, point: str) -> Path:
        """File of a taken order. If the process dies before it writes the marker, the file shows that no process will execute the
        order."""
        assert self._directory is not None
        return self._directory / f"{point}.taken-{os.getpid()}"

    def victims(self, order: Order, *, backend: int = 0) -> list[int]:
        """The processes to kill, in this order; empty if they do not exist."""
        match order.victim:
            case "self":
                return [os.getpid()]
            case "backend":
                return [backend] if backend else []
            case "database":
                return server_processes(self._pid(DATABASE))
            case "master":
                return _known(self._pid(MASTER))
            case _:
                return self._of_machine(order.victim)

    def _of_machine(self, victim: str) -> list[int]:
        machine = ancestor(os.getpid(), MACHINE_PROGRAM)
        if victim == MACHINE:
            return _known(machine)
        if victim == HOST:
            return _known(parent(machine))
        return [pid for pid in children(machine) if runs(pid, AGENT_PROGRAM)]

    def _pid(self, name: str) -> int:
        assert self._directory is not None
        try:
            return int((self._directory / "pids" / name).read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def mark(self, order: Order, pids: Sequence[int]) -> None:
        """Writes the marker atomically, before the signal if the writer is the victim."""
        assert self._directory is not None
        marker = {
            "id": order.id,
            "point": order.point,
            "victim": order.victim,
            "by": os.getpid(),
            "pids": list(pids),
        }
        beside = self._directory / "struck" / f".{order.id}"
        beside.write_text(json.dumps(marker))
        os.rename(beside, self._directory / "struck" / f"{order.id}.json")
        self._taken(order.point).unlink()


def kill_all(pids: Sequence[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def server_processes(postmaster: int) -> list[int]:
    """Every process of a database server. The server is stopped first, so that it starts no further process meanwhile."""
    if not postmaster:
        return []
    kill_all([postmaster], signal.SIGSTOP)
    return [*children(postmaster), postmaster]


# ------------------------------------------------------------------------------------------------- processes, by /proc


def parent(pid: int) -> int:
    """0 if there is no file or no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])


def children(pid: int) -> list[int]:
    """0 has none."""
    return [int(name) for name in os.listdir("/proc") if pid and name.isdigit() and parent(int(name)) == pid]


def runs(pid: int, program: str) -> bool:
    """Whether the process was started as `python -m <program>`."""
    try:
        return program in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def ancestor(pid: int, program: str) -> int:
    """The nearest ancestor of `pid` (or `pid` itself) that runs the program; 0 if there is none."""
    while pid > 1:
        if runs(pid, program):
            return pid
        pid = parent(pid)
    return 0


def _known(pid: int) -> list[int]:
    return [pid] if pid else []
